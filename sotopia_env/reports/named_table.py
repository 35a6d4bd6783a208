"""Tables of named columns, which are read on the screen and written as sheets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.files import csv_text
from sotopia_env.quoting import disarm_line
from sotopia_env.reports.intervals import CASTINGS, PARTICIPANTS, Estimate


@dataclass(frozen=True, slots=True)
class Missing:
    """The cell of a value that does not exist, with the reason; empty in a sheet."""

    reason: str


Value = str | int | float | bool | Estimate | Missing
"""A cell."""
MARKS: Mapping[str, str] = {CASTINGS: "†", PARTICIPANTS: "‡"}
"""The marks of intervals that are not over scenarios."""
ESTIMATE = ("n", "over", "clusters", "mean", "low", "high")
"""The columns of an estimate in a sheet."""


def show_number(value: float | None) -> str:
    """Returns a number with two decimals, ``n/a`` for none."""
    return "n/a" if value is None else f"{round(value, 2) + 0.0:.2f}"  # adding 0 turns -0.0 into 0.0


def show_estimate(estimate: Estimate) -> str:
    """Returns ``mean [low, high] n``, with a mark of :data:`MARKS`; or why there is no interval."""
    interval = f"[{show_number(estimate.low)}, {show_number(estimate.high)}]"
    interval = f"[n/a: {estimate.missing}]" if estimate.low is None else interval
    mark = "" if estimate.low is None else MARKS.get(estimate.over, "")
    return f"{show_number(estimate.mean)} {interval}{mark} {estimate.n}"


def show_p(value: float | None) -> str:
    """Returns a p-value with three decimals, ``n/a`` for none."""
    return "n/a" if value is None else ("<0.001" if value < 0.001 else f"{value:.3f}")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns aligned columns: the first to the left, the others to the right."""
    lines = [[disarm_line(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_aligned_row(line, widths) for line in lines)


def _aligned_row(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0]), *(c.rjust(width) for c, width in zip(line[1:], widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


_FORMATS: Mapping[str, Callable[[float], str]] = {"p": show_p, "q": show_p, "cost $": "{:.4f}".format}


@dataclass(frozen=True, slots=True)
class NamedTable:
    """Rows under named columns.

    Attributes:
        name: of its file.
        columns: their names.
        rows: a cell for each column.
        folding: columns that are left out on the screen, with a line that says their value, where all rows have it.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    folding: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns aligned columns, and a line on those that are folded; empty without rows."""
        if not self.rows:
            return ""
        lines = [[_show(name, cell) for name, cell in zip(self.columns, row, strict=True)] for row in self.rows]
        folded = self._folded(lines)
        shown = [column for column, name in enumerate(self.columns) if name not in folded]
        grid = table([self.columns[c] for c in shown], ([line[c] for c in shown] for line in lines))
        by_value: dict[str, list[str]] = {}
        for name, value in folded.items():
            by_value.setdefault(value, []).append(name)
        note = "; ".join(f"{', '.join(names)} = {disarm_line(value)}" for value, names in by_value.items())
        return f"{grid}\n(in all rows: {note})" if note else grid

    def _folded(self, lines: Sequence[Sequence[str]]) -> dict[str, str]:
        columns = {name: {line[column] for line in lines} for column, name in enumerate(self.columns)}
        several = len(lines) > 1
        return {name: min(columns[name]) for name in self.folding if several and len(columns[name]) == 1}

    def csv(self) -> str:
        """Returns a sheet, in which an estimate has columns of its own (:data:`ESTIMATE`)."""
        estimates = {c for c in range(len(self.columns)) if any(isinstance(row[c], Estimate) for row in self.rows)}
        header = [part for c, name in enumerate(self.columns) for part in (ESTIMATE if c in estimates else (name,))]
        rows = ([part for c, cell in enumerate(row) for part in _parts(cell, c in estimates)] for row in self.rows)
        return csv_text(header, rows)


def _show(column: str, cell: Value) -> str:
    if isinstance(cell, Estimate):
        return show_estimate(cell)
    if isinstance(cell, Missing):
        return f"n/a: {cell.reason}"
    if isinstance(cell, float):
        return _FORMATS.get(column, show_number)(cell)
    return {True: "yes", False: "no"}[cell] if isinstance(cell, bool) else str(cell)


def _parts(cell: Value, is_estimate: bool) -> tuple[object, ...]:
    if isinstance(cell, Estimate):
        return (cell.n, cell.over, cell.clusters, cell.mean, cell.low, cell.high)
    empty = isinstance(cell, Missing)
    return (None,) * len(ESTIMATE) if is_estimate else (None if empty else cell,)
