"""Sheets (rows under named columns), and reports made of them, as text, Markdown, CSV and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.files import csv_text, write_texts
from sotopia_env.foundation.quoting import escape_line
from sotopia_env.reports.charts import check_formats, save_figure
from sotopia_env.reports.intervals import CASTINGS, CROSSED, PARTICIPANTS, Estimate, show_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Missing:
    """The cell of a missing value, with the reason; empty in CSV."""

    reason: str = ""


Value = str | int | float | bool | Estimate | Missing | None
"""The value of a cell."""
Format = Callable[[float], str]
"""Converts a number of a column, or of an estimate, to text."""
ESTIMATE = "estimate"
"""The name of a column whose parts have no prefix in CSV."""
_PARTS = ("n", "over", "clusters", "mean", "low", "high")
_MARKS: Mapping[str, tuple[str, str]] = {
    CASTINGS: (
        "†",
        "one scenario or vignette: over castings of these characters; it extends neither to other scenarios nor to "
        "other characters",
    ),
    CROSSED: ("‡", "people and scenarios both vary: degrees of freedom are at most the smaller number minus 1"),
    PARTICIPANTS: (
        "§",
        "people in one scenario: the interval is over them and does not extend to other scenarios",
    ),
}


def show_p(value: float | None) -> str:
    """Returns a p-value with three decimals, or ``n/a`` for ``None``."""
    return "n/a" if value is None else ("<0.001" if value < 0.001 else f"{value:.3f}")


def show_percent(value: float) -> str:
    """Returns a share in percent with one decimal, without the sign."""
    return f"{round(100 * value, 1) + 0.0:.1f}"


def show_estimate(estimate: Estimate, show: Format = show_number) -> str:
    """Returns ``mean [low, high] n``, marked if the interval is not over scenarios; or why there is no interval."""
    if estimate.low is None or estimate.high is None:
        return f"{show(estimate.mean)} [n/a: {estimate.missing}] {estimate.n}"
    mark, _ = _MARKS.get(estimate.over, ("", ""))
    return f"{show(estimate.mean)} [{show(estimate.low)}, {show(estimate.high)}]{mark} {estimate.n}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows under named columns.

    Attributes:
        name: the name of its file, without the suffix.
        columns: the names of the columns.
        rows: the rows, each with a cell for each column.
        title: the title above the table.
        notes: lines below the table.
        labels: the headings of columns whose names are not shown as they are.
        formats: the formats of columns; by default p and q have three decimals, and all other floats two.
        folding: columns that are replaced by a line below the table if all rows have the same value.
        hidden: columns that only the CSV and JSON files contain.
        footnotes: whether the reasons of missing values are listed below the table instead of in its cells.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    title: str = ""
    notes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, Format] = field(default_factory=dict)
    folding: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    footnotes: bool = False

    @classmethod
    def of(cls, name: str, records: Iterable[object], columns: tuple[str, ...], **options: Any) -> Sheet:
        """Returns a sheet with a row for each record, whose columns are attributes of the records."""
        rows = [tuple(getattr(record, column) for column in columns) for record in records]
        return cls(name, columns, rows, **options)

    def where(self, **values: Value) -> Sheet:
        """Returns the rows with these values in the named columns, without those columns."""
        positions = [c for c, name in enumerate(self.columns) if name not in values]
        at = {self.columns.index(name): value for name, value in values.items()}
        rows = [row for row in self.rows if all(row[c] == value for c, value in at.items())]
        columns = tuple(self.columns[c] for c in positions)
        return replace(self, columns=columns, rows=[tuple(row[c] for c in positions) for row in rows])

    def column(self, name: str) -> list[Value]:
        """Returns the values of one column, row by row."""
        position = self.columns.index(name)
        return [row[position] for row in self.rows]

    def among(self, column: str, values: Container[Value]) -> Sheet:
        """Returns the rows that have one of these values in the column."""
        pairs = zip(self.rows, self.column(column), strict=True)
        return replace(self, rows=[row for row, value in pairs if value in values])

    def split(self, column: str) -> list[Sheet]:
        """Returns a sheet for each value of a column, with the value as its title."""
        values = dict.fromkeys(self.column(column))
        return [replace(self.where(**{column: value}), title=escape_line(str(value))) for value in values]

    def crossed(
        self,
        down: Sequence[str],
        across: str,
        cell: str = ESTIMATE,
        *,
        corner: str = "",
        missing: str = "",
        means: bool = False,
    ) -> Sheet:
        """Returns a cross table, in which the values of one column are columns.

        Args:
            down: the columns that identify a row.
            across: the column whose values become columns, in the order of their first occurrence.
            cell: the column whose values become cells.
            corner: the heading of the last column of ``down``.
            missing: the reason shown in cells without a value.
            means: whether estimates are reduced to their means.
        """
        at = {name: position for position, name in enumerate(self.columns)}
        columns, gap = list(dict.fromkeys(str(row[at[across]]) for row in self.rows)), Missing(missing)
        cells: dict[tuple[Value, ...], dict[str, Value]] = {}
        for row in self.rows:
            value = row[at[cell]]
            content = value.mean if means and isinstance(value, Estimate) else value
            cells.setdefault(tuple(row[at[name]] for name in down), {})[str(row[at[across]])] = content
        return Sheet(
            name=self.name,
            columns=(*down, *columns),
            rows=[(*key, *(own.get(column, gap) for column in columns)) for key, own in cells.items()],
            labels={**self.labels, down[-1]: corner or self.labels.get(down[-1], down[-1])},
            formats=dict.fromkeys(columns, self.formats[cell]) if cell in self.formats else {},
            folding=tuple(name for name in self.folding if name in down),
            hidden=tuple(name for name in self.hidden if name in down),
        )

    def pages(self, keep: int, most: int) -> list[Sheet]:
        """Returns parts of the sheet, each with the first ``keep`` columns and at most ``most`` of the others."""
        # Columns are hidden and not removed, so that all parts share the rows.
        parts = [self.columns[start : start + most] for start in range(keep, len(self.columns), most)]
        hidden = [tuple(name for name in self.columns[keep:] if name not in part) for part in parts]
        return [replace(self, hidden=(*self.hidden, *names)) for names in hidden]

    # --- as text --------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Returns aligned columns for a terminal; empty without rows."""
        header, lines, notes = self.visible()
        return "\n".join([*filter(None, [self.title]), table(header, lines), *notes]) if lines else ""

    def markdown(self) -> str:
        """Returns a Markdown table; empty without rows."""
        header, lines, notes = self.visible()
        if not lines:
            return ""
        # After `escape_line` a cell is one line, so that a bar is the only character that could end it.
        lines = [[_plain(escape_line(cell)).replace("|", r"\|") for cell in line] for line in (header, *lines)]
        lines.insert(1, ["---", *("---:" for _ in header[1:])])
        grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([*([f"## {self.title}"] if self.title else []), grid, *notes])

    def visible(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Returns the headings and cells of the visible columns, and the notes below the table."""
        lines = [[self._show(name, cell) for name, cell in zip(self.columns, row, strict=True)] for row in self.rows]
        folded = self._folded(lines)
        visible = [c for c, name in enumerate(self.columns) if name not in folded and name not in self.hidden]
        by_value: dict[str, list[str]] = {}
        for name, value in folded.items():
            by_value.setdefault(value, []).append(self.labels.get(name, name))
        # Columns with the same value share a clause: "(in all rows: illegal, invalid = 0)".
        note = "; ".join(f"{', '.join(names)} = {escape_line(value)}" for value, names in by_value.items() if value)
        notes = [f"(in all rows: {note})"] if note else []
        header = [self.labels.get(self.columns[c], self.columns[c]) for c in visible]
        return header, [[line[c] for c in visible] for line in lines], [*notes, *self._footnotes(), *self.notes]

    def _show(self, column: str, cell: Value) -> str:
        if isinstance(cell, Missing):
            return f"n/a: {cell.reason}" if cell.reason and not self.footnotes else "n/a"
        if cell is None or isinstance(cell, str | bool):
            return {None: "n/a", True: "yes", False: "no"}.get(cell, cell)  # type: ignore[arg-type, return-value]
        is_p = column in ("p", "q") or column.endswith(("_p", "_q"))
        show = self.formats.get(column, show_p if is_p else show_number)
        if isinstance(cell, Estimate):
            return show_estimate(cell, show)
        return str(cell) if isinstance(cell, int) else show(cell)

    def _folded(self, lines: Sequence[Sequence[str]]) -> dict[str, str]:
        values = {name: {line[c] for line in lines} for c, name in enumerate(self.columns) if name in self.folding}
        # In a single row every column would be constant, and nothing would be left of the table.
        return {name: min(distinct) for name, distinct in values.items() if len(distinct) == 1 < len(lines)}

    def _footnotes(self) -> list[str]:
        """A line for each reason, with the rows in which a value is missing for that reason."""
        where: dict[str, dict[str, None]] = {}
        for row in self.rows if self.footnotes else ():
            for cell in row:
                if isinstance(cell, Missing) and cell.reason:
                    where.setdefault(cell.reason, {})[str(row[0])] = None
        return [escape_line(f"n/a in {', '.join(rows)}: {reason}") for reason, rows in where.items()]

    # --- as data --------------------------------------------------------------------------------------------------

    def csv(self) -> str:
        """Returns CSV with a column for each part of an estimate; an empty field means n/a."""
        return csv_text(*self._flat())

    def records(self) -> list[dict[str, Any]]:
        """Returns the rows of the CSV as dicts, for JSON."""
        header, rows = self._flat()
        return [dict(zip(header, row, strict=True)) for row in rows]

    def _flat(self) -> tuple[list[str], list[list[object]]]:
        # The estimate column is expanded even if all its cells are missing, so that the header does not depend on data.
        estimates = {
            c
            for c, name in enumerate(self.columns)
            if name == ESTIMATE or any(isinstance(row[c], Estimate) for row in self.rows)
        }
        header: list[str] = []
        for c, name in enumerate(self.columns):
            prefix = "" if name == ESTIMATE else f"{name}_"
            header += [f"{prefix}{part}" for part in _PARTS] if c in estimates else [name]
        rows = [[part for c, cell in enumerate(row) for part in _parts(cell, c in estimates)] for row in self.rows]
        return header, rows


def _parts(cell: Value, is_estimate: bool) -> Iterable[object]:
    if isinstance(cell, Estimate):
        return [getattr(cell, part) for part in _PARTS]
    value = None if isinstance(cell, Missing) else cell
    return [None] * len(_PARTS) if is_estimate else [value]


def _plain(text: str) -> str:
    """The text without HTML and links, as which Markdown would show names from outside."""
    return re.sub(r"<(?=[A-Za-z/!?])|(?<=\])\(", r"\\\g<0>", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns aligned columns: the first is left-aligned, the others right-aligned."""
    lines = [[escape_line(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_aligned_row(line, widths) for line in lines)


def _aligned_row(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0]), *(c.rjust(width) for c, width in zip(line[1:], widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


@dataclass(frozen=True, slots=True)
class Report:
    """The text that a command prints, and the files that it writes.

    Attributes:
        name: the name of the text file and of the JSON file, without suffixes.
        parts: the texts and sheets of the page, in order; empty ones are left out.
        sheets: the sheets that are written as CSV.
        content: a dataclass or plain data that is written as JSON; ``None`` to write no JSON.
        charts: draws the charts and returns them by file name; called only if files are written.
        title: the title of the Markdown page.
        headline: what the report says, in a sentence; also one of ``parts``.
    """

    name: str
    parts: Sequence[str | Sheet]
    sheets: Sequence[Sheet] = ()
    content: Any = None
    charts: Callable[[], Mapping[str, Figure]] = dict
    title: str = ""
    headline: str = ""

    def text(self) -> str:
        """Returns the parts as plain text."""
        return self._joined([part if isinstance(part, str) else part.text() for part in self.parts])

    def markdown(self, images: Sequence[str] = ()) -> str:
        """Returns the parts as a Markdown page that shows the files ``images`` at its end."""
        parts = [_plain(part) if isinstance(part, str) else part.markdown() for part in self.parts]
        links = [f"![{Path(name).stem.replace('_', ' ')}]({name})" for name in images]
        return self._joined([f"# {_plain(self.title)}" if self.title else "", *parts, *links])

    @staticmethod
    def _joined(parts: Iterable[str]) -> str:
        text = "\n\n".join(part for part in parts if part)
        # A mark follows the bracket of an interval; only marks that occur are explained.
        marks = [f"{mark}: {note}" for mark, note in _MARKS.values() if f"]{mark}" in text]
        return "\n\n".join([text, *(["\n".join(marks)] if marks else [])]) + "\n"

    def csv(self) -> dict[str, str]:
        """Returns the CSV of the sheets by name."""
        return {sheet.name: sheet.csv() for sheet in self.sheets}

    def json(self) -> str:
        """Returns the content as JSON; missing values are ``null``."""
        content = asdict(self.content) if is_dataclass(self.content) else self.content  # type: ignore[arg-type]
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, folder: str | Path, formats: Sequence[str] = ("png",), *, markdown: bool = False) -> list[Path]:
        """Writes text, JSON, CSV and charts into ``folder``, each file atomically, and returns their paths.

        Args:
            folder: the folder, created if it does not exist.
            formats: the formats of the charts, from :data:`~sotopia_env.reports.charts.FORMATS`.
            markdown: whether the text is a Markdown page with the charts.

        Raises:
            UnknownNameError: a format is unknown.
            InvalidValueError: the folder cannot be written to.
        """
        # Before anything is drawn or written.
        check_formats(formats)
        folder, charts = Path(folder), self.charts()
        images = [f"{name}.{formats[0]}" for name in charts] if formats else []
        texts = {f"{self.name}.md": self.markdown(images)} if markdown else {f"{self.name}.txt": self.text()}
        texts |= {f"{self.name}.json": self.json()} if self.content is not None else {}
        texts |= {f"{name}.csv": text for name, text in self.csv().items()}
        paths = write_texts(folder, texts)
        return paths + [path for name, figure in charts.items() for path in save_figure(figure, folder / name, formats)]
