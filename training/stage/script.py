"""The frame of every training script: settings, exit codes, and a sentence for what went wrong."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from sotopia_env.errors import SotopiaError
from sotopia_env.runs.stopping import Terminated
from training.stage.directory import DONE, STAGE, StageDirectory
from training.stage.settings import Settings, read_settings

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


_SettingsT = TypeVar("_SettingsT", bound=Settings)


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
