"""A stage of training on disk, and the frame every script runs in.

A stage directory holds ``stage.json`` (what was asked for, with versions), ``checkpoints/`` (of the trainer),
``model/`` (what the next stage begins from) and, once it is complete, ``done.json`` (its figures). Called again with
the same settings it continues from the last complete checkpoint, or does nothing when it is done.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from sotopia_env.difference import first_difference
from sotopia_env.errors import InvalidValueError, SotopiaError
from sotopia_env.provenance import package_versions, source_revision
from sotopia_env.stopping import Terminated
from sotopia_env.taskset import write_text_atomically
from training.settings import Settings, read_settings

STAGE, DONE = "stage.json", "done.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")
_SettingsT = TypeVar("_SettingsT", bound=Settings)


@dataclass(frozen=True)
class StageDirectory:
    """Where one stage writes.

    Attributes:
        path: the directory; made when the stage is opened.
        name: of the stage, e.g. ``behavior_cloning``.
        settings: what was asked for.
    """

    path: Path
    name: str
    settings: Settings

    @property
    def model(self) -> Path:
        """Where the next stage looks for the trained model or adapter."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """Where the trainer keeps its checkpoints."""
        return self.path / "checkpoints"

    def open(self) -> None:
        """Makes the directory, or finds out that it holds the same stage.

        Raises:
            InvalidValueError: it holds another stage, or the same with other settings; says which differs first.
        """
        file = self.path / STAGE
        # Where models are and what may be spent may differ when a stage is continued.
        asked = {"stage": self.name, "settings": self.settings.model_dump(mode="json", exclude={"access"})}
        if file.is_file():
            found = json.loads(file.read_text(encoding="utf-8"))
            held = {key: found.get(key) for key in asked}
            if held != asked:
                where, ours, theirs = first_difference(STAGE, held, asked)
                raise InvalidValueError(
                    f"{self.path}: holds a stage with other settings ({where}: {ours} there, {theirs} "
                    "now); choose another output"
                )
            return
        if os.environ.get("RANK", "0") != "0":
            return  # the first process of a distributed run writes, for all
        self.path.mkdir(parents=True, exist_ok=True)
        noted = {**asked, "packages": _versions(), "revision": source_revision()}
        write_text_atomically(file, json.dumps(noted, indent=2) + "\n")

    @property
    def figures(self) -> dict[str, Any] | None:
        """The figures of the complete stage; ``None`` while it is not complete."""
        file = self.path / DONE
        if not file.is_file():
            return None
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def finish(self, figures: Mapping[str, Any]) -> None:
        """Notes that the stage is complete."""
        write_text_atomically(self.path / DONE, json.dumps(dict(figures), indent=2) + "\n")

    def complete_checkpoints(self) -> list[tuple[Path, dict[str, Any]]]:
        """The checkpoints that were written completely, oldest first, each with its ``trainer_state.json``.

        The trainer writes that file last, so a checkpoint in which it is missing or ends early was cut short.
        """
        found = []
        for place in self.checkpoints.glob("checkpoint-*"):
            if not any(place.glob("rng_state*.pth")):
                continue
            try:
                state = json.loads((place / "trainer_state.json").read_text(encoding="utf-8"))
            except (OSError, json.JSONDecodeError):
                continue
            found.append((place, state))
        return sorted(found, key=lambda item: int(item[1]["global_step"]))

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint that was written completely; ``None`` where there is none."""
        found = self.complete_checkpoints()
        return found[-1][0] if found else None


@cache
def _versions() -> dict[str, str]:
    found = package_versions()
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Makes SIGTERM end this process, and those it started for itself, as Ctrl-C does; in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def end(number: int, frame: FrameType | None) -> None:
        for child in multiprocessing.active_children():  # Ctrl-C in a terminal reaches them as well
            child.terminate()
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def run_script(
    description: str | None,
    kind: type[_SettingsT],
    run: Callable[[_SettingsT], None],
    arguments: Sequence[str] | None = None,
    check: Callable[[_SettingsT], None] | None = None,
) -> int:
    """Runs a stage from the command line and returns the exit code.

    That is 0, 2 for what the user can mend, 130 for Ctrl-C, 143 for SIGTERM, 1 for memory that ran out.

    Args:
        description: shown by ``--help``.
        kind: the stage's settings.
        run: the stage.
        arguments: of the command line; the process's own by default.
        check: finds contradictions in the settings, for ``--check``.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path, help="YAML file with the stage's settings")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting (a.b=3)")
    parser.add_argument("--check", action="store_true", help="read the settings and stop: nothing is loaded")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    settings: _SettingsT | None = None
    try:
        settings = read_settings(given.config, kind, given.set)
        if not given.check:
            with ended_by_sigterm():
                run(settings)
        elif check is not None:
            check(settings)
    except SotopiaError as error:
        return _say(str(error), 2)
    except KeyboardInterrupt as error:
        code = 143 if isinstance(error, Terminated) else 130
        return _say("stopped; the same command continues with what is complete on disk", code)
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error).lower() for sign in _OUT_OF_MEMORY):
            raise
        return _say(_out_of_memory(getattr(settings, "output", None)), 1)
    return 0


def _out_of_memory(output: str | None) -> str:
    found = None
    if output is not None:
        found = StageDirectory(Path(output), "", Settings()).last_checkpoint()
    if found is None:
        kept = "No checkpoint was complete yet: the same command begins with what else is complete on disk"
    else:
        kept = f"The last complete checkpoint is kept: the same command continues from {found}"
    advice = "halve the batch and double gradient_accumulation_steps, or shorten max_length, with another output"
    return f"out of memory; {advice}. {kept}"


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    return code
