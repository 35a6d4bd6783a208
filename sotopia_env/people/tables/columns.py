"""Columns of tables about people: each states its meaning, type, unit and source, and computes its cell.

A table and its codebook are made from the same columns, so no column lacks its description. The same columns give two
forms: *wide*, with one line per record, and *long*, with one line per value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from sotopia_env.foundation.files import csv_text

Cell = str | int | float | bool | None
"""The value of a cell; ``None`` where there is none."""
Kind = Literal["text", "number", "yes/no", "choice", "JSON"]
"""The type of a column's cells."""
R = TypeVar("R")
S = TypeVar("S")
CODEBOOK = ("table", "column", "meaning", "type", "unit_or_range", "source")
"""The columns of a codebook."""


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table.

    Attributes:
        name: its name in the wide form.
        meaning: the quantity or property, in words.
        kind: the type of its cells.
        cell: returns the cell of a record.
        unit: the unit or the range of a number, or the possible values of a choice.
        source: the origin of the values: a form, the moves of the episode, an evaluator, the clock of the server.
        is_key: whether it identifies the line, and is therefore in every line of the long form.
        agent: the seat that the value is about; empty for others.
        turn: the number of the turn, from 1, that the value is about.
        variable: its name in the long form, where agent and turn have columns of their own; ``name`` by default.
    """

    name: str
    meaning: str
    kind: Kind
    cell: Callable[[R], Cell]
    unit: str = ""
    source: str = ""
    is_key: bool = False
    agent: str = ""
    turn: int | None = None
    variable: str = ""

    def of(self, part: Callable[[S], R | None]) -> Column[S]:
        """Returns the column for records that contain what it is about; its cell is empty where ``part`` is ``None``.

        Args:
            part: returns the part of a record.
        """

        def cell(record: S) -> Cell:
            inner = part(record)
            return None if inner is None else self.cell(inner)

        return replace(self, cell=cell)  # type: ignore[arg-type,return-value]


LONG = ("agent", "turn", "question", "answer")
"""The columns of the long form after the keys."""
_LONG_MEANINGS = (
    ("the seat that the value is about; empty for the person or the whole item", "text", "agent_0, agent_1, …"),
    ("the number of the turn that the value is about", "number", "from 1"),
    ("name of the question or quantity, each with a line of its own in this codebook", "text", ""),
    ("the number, the choice or the text", "text", "see the line of the question"),
)


def wide_csv(columns: Sequence[Column[R]], records: Iterable[R]) -> str:
    """Returns the wide form as CSV: a line for each record, a column for each column."""
    rows = [[column.cell(record) for column in columns] for record in records]
    return csv_text([column.name for column in columns], rows)


def long_rows(columns: Sequence[Column[R]], records: Iterable[R]) -> list[dict[str, Cell]]:
    """Returns the long form: a line for each value of each record, with the keys and :data:`LONG`; none if it is empty.

    Values of answers that were not given are left out, as in the wide form their cells are empty.
    """
    keys, values = ([c for c in columns if c.is_key is is_key] for is_key in (True, False))
    rows: list[dict[str, Cell]] = []
    for record in records:
        base = {column.name: column.cell(record) for column in keys}
        for column in values:
            if (value := column.cell(record)) is not None:
                variable = column.variable or column.name
                about = dict(zip(LONG, (column.agent, column.turn, variable, value), strict=True))
                rows.append({**base, **about})
    return rows


def long_csv(columns: Sequence[Column[R]], records: Iterable[R]) -> str:
    """Returns the long form as CSV."""
    header = [*(column.name for column in columns if column.is_key), *LONG]
    return csv_text(header, [[row[name] for name in header] for row in long_rows(columns, records)])


def codebook(table: str, columns: Sequence[Column[R]], *, long: bool = False) -> list[dict[str, str]]:
    """Returns a line of the codebook for each column of a table, in order.

    Args:
        table: the name of the table.
        columns: the columns of the table.
        long: whether the table is in the long form: then there is a line for each key, for each of :data:`LONG`, and
            for each variable.
    """
    keys = [column for column in columns if column.is_key or not long]
    lines: list[tuple[str, str, str, str, str]] = [(c.name, c.meaning, c.kind, c.unit, c.source) for c in keys]
    if long:
        lines += [(name, *about, "") for name, about in zip(LONG, _LONG_MEANINGS, strict=True)]
        others = {column.variable or column.name: column for column in columns if not column.is_key}
        lines += [(f"question = {name}", c.meaning, c.kind, c.unit, c.source) for name, c in others.items()]
    return [dict(zip(CODEBOOK, (table, *line), strict=True)) for line in lines]


def codebook_csv(lines: Sequence[dict[str, str]]) -> str:
    """Returns a codebook as CSV."""
    return csv_text(CODEBOOK, [[line[name] for name in CODEBOOK] for line in lines])
