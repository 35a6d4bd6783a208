"""What studies of several stages share: the end of their command, and the times of their stages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from sotopia_training.stage.script import ended_by_sigterm

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.files import read_lines
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.reports.sheet import Sheet, Value

TIMES = "times.jsonl"
"""A file with a line for each run of a stage: ``stage``, ``seconds`` and ``cpu_seconds``."""


def exit_code(run: Callable[[], None]) -> int:
    """Runs a study that the same command continues, and returns the exit code of the command."""
    try:
        with ended_by_sigterm():
            run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the same command continues after the last complete stage\n")
        return 130
    except SotopiaError as error:
        sys.stderr.write(f"sotopia: {error}\n")
        return 2
    return 0


def times_sheet(folder: Path) -> Sheet:
    """Returns wall and processor minutes by stage, summed over seeds and over the runs of an interrupted study.

    Args:
        folder: the directory of the study, with :data:`TIMES`.
    """
    sums: dict[str, list[float]] = {}
    for _, line in read_lines(folder / TIMES):
        record = decode_json(line)
        item = sums.setdefault(record["stage"], [0.0, 0.0])
        item[0] += record["seconds"] / 60
        item[1] += record["cpu_seconds"] / 60
    sums["all"] = [sum(item[0] for item in sums.values()), sum(item[1] for item in sums.values())]
    one = "{:.1f}".format
    rows: list[tuple[Value, ...]] = [(name, *item) for name, item in sums.items()]
    return Sheet("minutes", ("stage", "wall", "processor"), rows, formats={"wall": one, "processor": one})
