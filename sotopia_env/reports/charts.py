"""Charts of estimates as PNG, SVG or PDF files: forest plots and heat maps. Matplotlib is imported on first use.

Means and differences are drawn as points with their 95 % intervals (a forest plot), because readers compare intervals.
A bar would add an area without a meaning, on an axis that need not begin at 0.
"""

from __future__ import annotations

import io
import itertools
import textwrap
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.files import write_atomically
from sotopia_env.reports.intervals import PUBLICATION, Estimate, show_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
"""The file formats of charts."""
_COLUMN_WIDTH, PAGE_WIDTH, _AXIS_WIDTH = 3.4, 7.0, 1.5
"""In inches: the widths of columns and pages of most journals, and the minimum width of a panel's axis."""
_FONT_SIZE = 8
_CHARACTER, _LINE_HEIGHT, _ROW_HEIGHT, _AROUND_PANEL = 0.062, 0.13, 0.17, 0.4
"""In inches: a character and a line at this font size, a point with its number above it, and the axis of a panel."""
# Line lengths of labels, of units and of the narrowest panel's texts.
_LABEL_CHARACTERS, _UNIT_CHARACTERS, _LEAST_CHARACTERS = 24, 30, 14
_NARROWEST = 1e-6
# A no-break space: ``textwrap`` does not break lines at it.
_JOINING = "\u00a0"
_STYLE: Any = {  # matplotlib types the keys as literals
    "font.size": _FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # TrueType, which publishers require; matplotlib's default is Type 3
    "svg.hashsalt": "sotopia",  # ids in SVG files are random without it
    "text.parse_math": False,  # a name with two dollar signs is not a formula
}
# Without dates, equal charts are equal files.
_DRAWING = threading.Lock()
"""Matplotlib's style belongs to the process: a server draws for several people, each in a thread."""
_UNDATED: Mapping[str, Mapping[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def paper_style() -> AbstractContextManager[None]:
    """Returns a context in which axes are created with the font and line sizes of a paper."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure; ``width`` and ``height`` are in inches. It needs no display."""
    # pyplot has global state, which would be shared with the caller's plots.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, stem: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Writes the figure as ``stem.png`` and so on, each file atomically, and returns the paths.

    Raises:
        UnknownNameError: a format is not one of :data:`FORMATS`.
        InvalidValueError: a file cannot be written.
    """
    check_formats(formats)
    return [_save(figure, stem.with_name(f"{stem.name}.{form}"), form) for form in formats]


def check_formats(formats: Sequence[str]) -> None:
    """Raises :class:`UnknownNameError` if a format is not one of :data:`FORMATS`."""
    for form in formats:
        if form not in FORMATS:
            raise UnknownNameError(field="format", got=form, valid=FORMATS)


def figure_bytes(figure: Figure, form: str) -> bytes:
    """Returns the figure as the content of a file; raises :class:`UnknownNameError` as :func:`save_figure` does."""
    check_formats([form])
    content = io.BytesIO()
    # Again in the style: the font type and the hash salt are read when the file is made, not when the axes are drawn.
    with _DRAWING, paper_style():
        figure.savefig(content, format=form, dpi=150, metadata=dict(_UNDATED.get(form, {})))
    return content.getvalue()


def _save(figure: Figure, path: Path, form: str) -> Path:
    write_atomically(path, figure_bytes(figure, form))
    return path


@dataclass(frozen=True, slots=True)
class Panel:
    """A forest plot.

    Attributes:
        unit: the label of the axis.
        lines: pairs of a label and an estimate, from top to bottom.
        title: the title above the panel.
        reference: a value that is marked by a vertical line, such as 0 for no difference. Intervals that exclude it
            are highlighted.
    """

    unit: str
    lines: Sequence[tuple[str, Estimate]]
    title: str = ""
    reference: float | None = None

    def labels(self, with_counts: bool) -> tuple[str, ...]:
        """Returns the labels, optionally with their numbers of seats, wrapped to lines of limited length."""
        counts = [unbroken(f"(n = {item.n})") if with_counts and item.n else "" for _, item in self.lines]
        names = [label for label, _ in self.lines]
        return tuple(_wrapped(f"{name} {count}", _LABEL_CHARACTERS) for name, count in zip(names, counts, strict=True))


def unbroken(text: str) -> str:
    """Returns the text with no-break spaces, so that it stays on one line of a label."""
    return text.replace(" ", _JOINING)


def _wrapped(text: str, characters: int) -> str:
    lines = (textwrap.wrap(line, characters, break_on_hyphens=False) for line in text.splitlines())
    return "\n".join(part for parts in lines for part in parts)


def forest_chart(panels: Sequence[Panel], heading: str, *, counted: str = "seats", beside: int = 1) -> Figure:
    """Draws panels at the width of a journal's column, or of its page if several panels are side by side.

    Args:
        panels: the panels, at least one.
        heading: the heading of the figure; a legend for intervals and marks is added to it.
        counted: the unit of the estimates' ``n``.
        beside: the number of consecutive panels that stay side by side if the page is wide enough.
    """
    estimates = [item for panel in panels for _, item in panel.lines]
    with_counts = len({item.n for item in estimates}) > 1
    labels = [panel.labels(with_counts) for panel in panels]
    shared = len(set(labels)) == 1
    lines = [label.splitlines() for group in labels for label in group]
    label_width = _CHARACTER * max(len(part) for parts in lines for part in parts)
    # If all panels have the same labels, only the first panel of a row shows them.
    free, need = (PAGE_WIDTH - label_width, _AXIS_WIDTH) if shared else (PAGE_WIDTH, _AXIS_WIDTH + label_width)
    most = max(1, min(len(panels), int(free / need)))
    beside = beside if beside <= most else 1
    # Groups of panels that stay side by side are spread evenly over the rows; ``-(-a // b)`` rounds up.
    groups = -(-len(panels) // beside)
    rows = -(-groups // (most // beside))
    columns = -(-groups // rows) * beside
    width = _COLUMN_WIDTH if columns == 1 else PAGE_WIDTH
    references = {panel.reference for panel in panels} - {None}
    heading = f"{heading}\n{_over(estimates, sorted(references), counted)}"
    heading = _wrapped(heading, int(width / _CHARACTER))
    room = width / columns - (label_width if columns == 1 or not shared else label_width / columns)
    characters = max(_LEAST_CHARACTERS, int(room / _CHARACTER) - 2)  # a gap to the next panel
    texts = [[_wrapped(text, characters) for text in (panel.unit, panel.title)] for panel in panels]
    around = _AROUND_PANEL + _LINE_HEIGHT * sum(
        max(len(text.splitlines()) for text in side) for side in zip(*texts, strict=True)
    )
    panel_height = (_ROW_HEIGHT + _LINE_HEIGHT * max(map(len, lines))) * max(map(len, labels)) + around
    with paper_style():
        figure = new_figure(width, _LINE_HEIGHT * len(heading.splitlines()) + panel_height * rows)
        # Panels of one unit share an axis, so that intervals can be compared between panels.
        one_unit = len({panel.unit for panel in panels}) == 1
        first: Axes | None = None
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, number + 1, sharex=first if one_unit else None)
            first = first or axes
            _draw(axes, panel, labels[number])
            axes.set_xlabel(texts[number][0])
            axes.set_title(texts[number][1], fontsize=_FONT_SIZE)
            if shared and number % columns:
                axes.tick_params(labelleft=False)
        figure.suptitle(heading, x=0.01, ha="left", fontsize=_FONT_SIZE)
    return figure


def _draw(axes: Axes, panel: Panel, labels: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    reference, positions = panel.reference, range(len(panel.lines))
    for position, (_, item) in zip(positions, panel.lines, strict=True):
        has_interval = item.low is not None and item.high is not None
        decided = reference is not None and has_interval and not item.low <= reference <= item.high  # type: ignore[operator]
        # The marker differs, too, so that the two can be distinguished in print without colours.
        color, marker = ("#b5442e", "D") if decided else ("#2f5d8a", "o")
        if has_interval:
            axes.hlines(position, item.low, item.high, color=color, linewidth=1.4)  # type: ignore[arg-type]
        filling: Any = "full" if has_interval else "none"
        axes.plot(item.mean, position, marker, color=color, markersize=4, fillstyle=filling)
        number = show_number(item.mean)
        axes.annotate(number, (item.mean, position), (0, 3), textcoords="offset points", ha="center", size=6.5)
    if reference is not None:
        axes.axvline(reference, color="black", linewidth=0.7)
    axes.set_yticks(positions, labels)
    # Top to bottom, with space above the first point for its number.
    axes.set_ylim(len(panel.lines) - 0.4, -0.7)
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="x", linewidth=0.3)
    low, high = axes.get_xlim()
    # Values that differ only by rounding errors would get an axis with unreadable tick labels.
    if high - low < _NARROWEST:
        axes.set_xlim(low - 0.5, high + 0.5)


def _over(estimates: Sequence[Estimate], references: Sequence[Any], counted: str) -> str:
    """The legend: the clusters of the intervals, the numbers of seats, and the meaning of the marks."""
    kinds: dict[str, set[int]] = {}
    for item in estimates:
        if item.low is not None and item.over != PUBLICATION:
            kinds.setdefault(item.over, set()).add(item.clusters)
    numbers = {over: sorted({min(counts), max(counts)}) for over, counts in sorted(kinds.items())}
    over = " or ".join(f"{' to '.join(map(str, counts))} {over}" for over, counts in numbers.items())
    missing = " or ".join(sorted({item.missing for item in estimates if item.low is None}))
    counts = {item.n for item in estimates if item.over != PUBLICATION}
    notes = [f"n: {counted}"] if len(counts) > 1 else [f"n = {max(counts)} {counted} each"]
    notes += [f"red diamonds: the interval excludes {' or '.join(f'{r:g}' for r in references)}"] if references else []
    notes += [f"hollow: no interval ({missing})"] if missing else []
    return "; ".join([f"95 % intervals over {over}", *notes] if over else notes)


Cells = Mapping[tuple[str, str], Estimate]
"""Estimates by row and column."""


def heat_chart(
    panels: Mapping[str, Cells],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    axes_labels: tuple[str, str],
    unit: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> Figure:
    """Draws means and their ``n`` in a grid, or several grids with the same rows and columns side by side.

    Args:
        panels: the cells of each grid, by its title.
        rows: the names of the rows, from top to bottom.
        columns: the names of the columns, from left to right.
        axes_labels: the labels of the rows and of the columns.
        unit: the label of the colour scale.
        limits: the ends of the colour scale; by default the lowest and the highest mean.
    """
    count = max(1, len(columns)) * len(panels)
    width = min(PAGE_WIDTH, max(_COLUMN_WIDTH, 1.9 + 0.75 * count))
    # In a figure that cannot become wider, the numbers shrink with the cells.
    size = min(_FONT_SIZE, 6.5 * (width - 1.9) / (0.55 * count))
    figure = new_figure(width, 1.5 + 0.45 * len(rows))
    gap = float("nan")  # matplotlib leaves such cells white
    with paper_style():
        for number, (title, cells) in enumerate(panels.items(), start=1):
            axes = figure.add_subplot(1, len(panels), number)
            image = axes.imshow(
                [[cells[row, name].mean if (row, name) in cells else gap for name in columns] or [gap] for row in rows],
                aspect="auto",
                cmap="cividis",  # lightness increases monotonically, also in grey and for colour-blind readers
                vmin=limits[0],
                vmax=limits[1],
            )
            for (y, row), (x, name) in itertools.product(enumerate(rows), enumerate(columns)):
                item = cells.get((row, name))
                text = "n/a" if item is None else f"{show_number(item.mean)}\nn = {item.n}"
                box = {"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1.0}
                axes.text(x, y, text, ha="center", va="center", size=size, bbox=box)
            wrapped = [[_wrapped(name, _LABEL_CHARACTERS) for name in names] for names in (columns, rows)]
            axes.set_xticks(range(len(columns)), wrapped[0], rotation=30, ha="right", fontsize=7)
            axes.set_yticks(range(len(rows)), wrapped[1] if number == 1 else [""] * len(rows), fontsize=7)
            axes.set_xlabel(axes_labels[1], fontsize=_FONT_SIZE)
            axes.set_ylabel(axes_labels[0] if number == 1 else "", fontsize=_FONT_SIZE)
            axes.set_title(_wrapped(title, _UNIT_CHARACTERS), fontsize=_FONT_SIZE)
        bar = figure.colorbar(image, ax=figure.axes)
    bar.set_label(_wrapped(unit, _UNIT_CHARACTERS), fontsize=_FONT_SIZE)
    bar.ax.tick_params(labelsize=7)
    return figure
