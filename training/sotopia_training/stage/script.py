"""The frame of every training script: command line, settings, exit codes and one-sentence errors."""

from __future__ import annotations

import argparse
import inspect
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from sotopia_env.concurrency.stopping import Terminated
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.settings import Settings, read_settings
from sotopia_training.stage.configurations import find_configuration
from sotopia_training.stage.directory import DONE, STAGE, StageDirectory
from sotopia_training.stage.inputs import check_inputs

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


_SettingsT = TypeVar("_SettingsT", bound=Settings)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The assumptions and measurements of a forecast.

    Attributes:
        rows: the number of rows of training data that do not exist yet; ``None`` counts the existing ones.
        devices: the number of devices.
        probe: whether a step is measured on this device; ``None`` measures it on a GPU only.
    """

    rows: int | None = None
    devices: int = 1
    probe: bool | None = None

    def __post_init__(self) -> None:
        """Refuses numbers below 1."""
        for name, value in (("rows", self.rows), ("devices", self.devices)):
            if value is not None and value < 1:
                raise InvalidValueError(field=name, expected="at least 1", got=value)


class _Parser(argparse.ArgumentParser):
    """Reports wrong flags with the prefix of every other message of the command."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"sotopia: {escape(message)}\n")


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Makes SIGTERM end this process and its child processes, as Ctrl-C does; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread handle signals
        return

    def end(number: int, frame: FrameType | None) -> None:
        # Ctrl-C in a terminal reaches the whole process group; SIGTERM reaches only this process.
        for child in multiprocessing.active_children():
            child.terminate()
        raise Terminated

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def run_script(
    description: str | None,
    kind: type[_SettingsT],
    run: Callable[[_SettingsT], object],
    arguments: Sequence[str] | None = None,
    check: Callable[[_SettingsT], object] | None = None,
    forecast: Callable[[_SettingsT, DryRun], str] | None = None,
    program: str | None = None,
) -> int:
    """Runs a stage from the command line and returns the exit code.

    The code is 0, 2 for an error that the user can correct, 130 for Ctrl-C, 143 for SIGTERM, 1 for out of memory.

    Args:
        description: the text of ``--help``.
        kind: the class of the stage's settings.
        run: runs the stage.
        arguments: the arguments of the command line; by default those of the process.
        check: raises on contradictory settings, for ``--check``.
        forecast: returns the cost of the stage as text, for ``--dry-run``.
        program: the name of the command in its help; by default the process's script.
    """
    parser = _Parser(
        program,
        description=inspect.cleandoc(description or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, help="the stage's settings: a name in --list, or a YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting (a.b=3)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="read the settings, look for missing input, and stop: nothing is loaded",
    )
    if forecast is not None:
        parser.add_argument("--dry-run", action="store_true", help="print steps and tokens, and stop")
        parser.add_argument("--rows", type=int, help="assumed number of training rows (with --dry-run)")
        parser.add_argument("--devices", type=int, default=1, help="number of devices (with --dry-run)")
        parser.add_argument(
            "--probe",
            action=argparse.BooleanOptionalAction,
            help="load the model and measure memory and time of a step (with --dry-run; default: if there is a GPU)",
        )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    # peft imports bitsandbytes, which warns of a missing CPU kernel that no stage uses.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    logging.getLogger("huggingface_hub").propagate = False  # it has its own handler
    settings: _SettingsT | None = None
    try:
        config = find_configuration(options.config)
        settings = read_settings(config, kind, options.set)
        if forecast is not None and options.dry_run:
            text = forecast(settings, DryRun(options.rows, options.devices, options.probe))
            if os.environ.get("RANK", "0") == "0":  # accelerate starts several processes with the same forecast
                sys.stdout.write(text)
        elif not options.check:
            check_inputs(settings, config)
            with ended_by_sigterm():
                run(settings)
        else:
            if check is not None:
                check(settings)
            check_inputs(settings, config)
    except SotopiaError as error:
        return _report(str(error), 2)
    except KeyboardInterrupt as error:
        code = 143 if isinstance(error, Terminated) else 130
        return _report("stopped; the same command continues from the last complete output", code)
    # PyTorch reports a lack of main memory as a plain RuntimeError, so the message must be examined.
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error).lower() for sign in _OUT_OF_MEMORY):
            raise
        return _report(_out_of_memory(settings), 1)
    return 0


def _out_of_memory(settings: Settings | None) -> str:
    """Returns the error message, which names the settings to lower and the point where the same command continues."""
    output = getattr(settings, "output", None)
    path = None if output is None else _interrupted_stage(Path(output))
    checkpoint = None if path is None else StageDirectory(path, "", Settings()).last_checkpoint()
    if checkpoint is None:
        progress = "No checkpoint was complete yet: the same command continues from the other complete output"
    else:
        progress = f"The last complete checkpoint is kept: the same command continues from {checkpoint}"
    advice = "halve the batch and double gradient_accumulation_steps, or shorten max_length, with another output"
    if getattr(settings, "processes", 1) > 1:
        advice = "lower processes, which changes no result"
    elif path is not None and path != Path(str(output)):
        advice = (
            f"{path} was cut off. If it trained, halve its batch, double its gradient_accumulation_steps and remove "
            "that directory; if a model played, lower sampling.max_batch. The output of other stages is kept"
        )
    return f"out of memory; {advice}. {progress}"


def _interrupted_stage(output: Path) -> Path:
    """Returns the directory of the interrupted stage: ``output``, or in a pipeline the latest one below it."""
    if (output / "checkpoints").is_dir():
        return output
    stages = {file.parent for file in output.rglob(STAGE)} | {path.parent for path in output.rglob("checkpoints")}
    under_way = [path for path in stages - {output} if not (path / DONE).is_file()]
    return max(under_way, key=lambda path: (path.stat().st_mtime_ns, str(path)), default=output)


def _report(sentence: str, code: int) -> int:
    sys.stderr.write(f"sotopia: {escape(sentence)}\n")
    return code
