"""A stage of training on disk, and the frame every script runs in.

A stage directory holds ``stage.json`` (what was asked for, with versions), ``checkpoints/`` (of the trainer),
``model/`` (what the next stage begins from) and, once it is complete, ``done.json`` (its figures). Called again with
the same settings it continues from the last complete checkpoint, or does nothing when it is done. Until it has produced
something it may be called with others, for these are corrected ones.
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

from pydantic import ValidationError

from sotopia_env.difference import first_difference
from sotopia_env.errors import InvalidValueError, SotopiaError
from sotopia_env.provenance import package_versions, source_revision
from sotopia_env.stopping import Terminated
from sotopia_env.taskset import write_text_atomically
from training.settings import Settings, read_settings

STAGE, DONE = "stage.json", "done.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets")
_MAY_DIFFER = ("access", "processes")
"""Settings at any depth that say where models are, what may be spent and how much is done at once, not what is done."""
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
        """Makes the directory, or finds out that it holds the same stage; one that holds nothing yet is begun anew.

        Raises:
            InvalidValueError: it holds another stage, or the same with other settings; says which differs first.
        """
        asked = {"stage": self.name, "settings": _lasting(self.settings.model_dump(mode="json"))}
        found = self._noted()
        held = {"stage": found.get("stage"), "settings": _lasting(self._completed(found.get("settings")))}
        if found and held != asked and self._has_produced():
            where, ours, theirs = first_difference(STAGE, held, asked)
            raise InvalidValueError(
                f"{self.path}: holds a stage with other settings ({where}: {ours} there, {theirs} "
                "now); choose another output"
            )
        if os.environ.get("RANK", "0") != "0":
            return  # the first process of a distributed run writes, for all
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if held != asked:
            self._note({**asked, "packages": _versions(), "revision": source_revision(), "processes": processes})
        elif processes < found.get("processes", 1):
            self._note({**found, "processes": processes})

    def _noted(self) -> dict[str, Any]:
        file = self.path / STAGE
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        return found

    def _completed(self, settings: Any) -> Any:
        """Settings of an earlier version, with the defaults of those that it did not have yet."""
        try:
            return type(self.settings).model_validate(settings).model_dump(mode="json")
        except ValidationError:
            return settings

    def _note(self, facts: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.path / STAGE, json.dumps(dict(facts), indent=2) + "\n")

    def _has_produced(self) -> bool:
        """Whether there is any file but the note of what was asked for."""
        return any(file.is_file() and file != self.path / STAGE for file in self.path.rglob("*"))

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

        The first process writes that file last, so a checkpoint in which it is missing or ends early was cut short. The
        other processes write their random state when they come to it: without the state of each, the losses after a
        resumption would be others. A stage that went on with fewer processes needs but as many.
        """
        processes = self._noted().get("processes", 1)
        found = []
        for place in self.checkpoints.glob("checkpoint-*"):
            if not (place / "rng_state.pth").is_file() and len(list(place.glob("rng_state_*.pth"))) < processes:
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


def _lasting(settings: Any) -> Any:
    """What must stay the same when a stage is continued."""
    if isinstance(settings, dict):
        return {key: _lasting(value) for key, value in settings.items() if key not in _MAY_DIFFER}
    return [_lasting(value) for value in settings] if isinstance(settings, list) else settings


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
        return _say(_out_of_memory(settings), 1)
    return 0


def _out_of_memory(settings: Settings | None) -> str:
    """Says what to lower, and what the same command goes on from."""
    output = getattr(settings, "output", None)
    place = None if output is None else _cut_off(Path(output))
    found = None if place is None else StageDirectory(place, "", Settings()).last_checkpoint()
    if found is None:
        kept = "No checkpoint was complete yet: the same command begins with what else is complete on disk"
    else:
        kept = f"The last complete checkpoint is kept: the same command continues from {found}"
    advice = "halve the batch and double gradient_accumulation_steps, or shorten max_length, with another output"
    if getattr(settings, "processes", 1) > 1:
        advice = "lower processes, which changes no result"
    elif place is not None and place != Path(str(output)):
        advice = (
            f"{place} was cut off. If it trained, halve its batch, double its gradient_accumulation_steps and remove "
            "that directory; if a model played, lower sampling.max_batch; what the other stages have made is kept"
        )
    return f"out of memory; {advice}. {kept}"


def _cut_off(output: Path) -> Path:
    """The directory of the stage that was under way: ``output``, or in a pipeline the one below it begun last."""
    if (output / "checkpoints").is_dir():
        return output
    stages = {file.parent for file in output.rglob(STAGE)} | {place.parent for place in output.rglob("checkpoints")}
    under_way = [place for place in stages - {output} if not (place / DONE).is_file()]
    return max(under_way, key=lambda place: (place.stat().st_mtime_ns, str(place)), default=output)


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    return code
