"""Charts of a comparison as PNG, SVG or PDF files, and the folder of its report; matplotlib is imported on first use.

Means and differences are points with their 95 % intervals (a forest plot): what is compared is the intervals, and a bar
would add an area that means nothing, on an axis that need not begin at 0.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.errors import UnknownNameError
from sotopia_env.files import write_atomically, write_texts
from sotopia_env.reports.compare import Comparison
from sotopia_env.reports.intervals import Estimate
from sotopia_env.reports.seat_results import EFFICIENCY, OVERALL, SHARE, SUCCESS, WORDS
from sotopia_env.reports.tables import NOT_COMMON, partner_columns, policy_label, show_number, to_csv, to_json, to_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
"""File formats of charts."""
_LABELS: Mapping[str, str] = {
    OVERALL: "mean of the seven dimensions",
    SUCCESS: "agreement rate",
    SHARE: "share of the surplus (0: no deal, 1: best deal)",
    EFFICIENCY: "joint efficiency",
    WORDS: "words per turn",
}
_MOST_DIFFERENCES = 15
_COLUMN_WIDTH, _PAGE_WIDTH, _AXIS_WIDTH = 3.4, 7.0, 1.5
"""Inches: the columns and the pages of most journals, and the least width of a panel's axis."""
_FONT_SIZE = 8
_CHARACTER, _LINE_HEIGHT, _ROW_HEIGHT, _AROUND_PANEL = 0.062, 0.13, 0.17, 0.75
"""Inches of text at this size, of a point with its number above it, and of a panel's title and axis."""
_LABEL_CHARACTERS, _UNIT_CHARACTERS = 24, 30
_JOINING = "\u00a0"  # a space at which no line is broken
_STYLE: Any = {  # matplotlib types the keys as literals
    "font.size": _FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # TrueType, as publishers ask for; matplotlib's default is Type 3
    "svg.hashsalt": "sotopia",  # equal charts are equal files
}
# Files must not change with the clock.
_UNDATED: Mapping[str, Mapping[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of that many inches, drawn without a display."""
    # Not pyplot, whose state is shared with the caller's plots.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_png(figure: Figure, path: Path) -> Path:
    """Writes the figure as PNG, at once, and returns its path."""
    return _save(figure, path, "png")


def save_figure(figure: Figure, stem: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Writes the figure as ``stem.png`` and so on, each file at once, and returns the paths.

    Raises:
        UnknownNameError: a format is not one of :data:`FORMATS`.
        InvalidValueError: nothing can be written there.
    """
    check_formats(formats)
    return [_save(figure, stem.with_name(f"{stem.name}.{form}"), form) for form in formats]


def check_formats(formats: Sequence[str]) -> None:
    """Raises :class:`UnknownNameError` if a format is not one of :data:`FORMATS`."""
    for form in formats:
        if form not in FORMATS:
            raise UnknownNameError(field="format", got=form, valid=FORMATS)


def _save(figure: Figure, path: Path, form: str) -> Path:
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(content, format=form, dpi=150, metadata=dict(_UNDATED.get(form, {})))
    write_atomically(path, content.getvalue())
    return path


def metric_label(comparison: Comparison, metric: str) -> str:
    """Returns a metric in words, with its range where both ends are closed."""
    low, high = comparison.ranges.get(metric, (None, None))
    label = _LABELS.get(metric, metric.replace("_", " "))
    if low is None or high is None:
        return label
    return f"{label} {f'(scale {round(low, 2):g} to {round(high, 2):g})'.replace(' ', _JOINING)}"


@dataclass(frozen=True, slots=True)
class Panel:
    """A forest plot: a label and an estimate for each line, from top to bottom; ``unit`` is what the axis measures."""

    unit: str
    lines: Sequence[tuple[str, Estimate]]
    title: str = ""

    def labels(self, with_counts: bool) -> tuple[str, ...]:
        """Returns the labels, maybe with their numbers of seats, in lines of limited length."""
        counts = [f"(n = {item.n})".replace(" ", _JOINING) if with_counts else "" for _, item in self.lines]
        names = [label for label, _ in self.lines]
        return tuple(_wrapped(f"{name} {count}", _LABEL_CHARACTERS) for name, count in zip(names, counts, strict=True))


def _wrapped(text: str, characters: int) -> str:
    lines = (textwrap.wrap(line, characters, break_on_hyphens=False) for line in text.splitlines())
    return "\n".join(part for parts in lines for part in parts)


def forest_chart(panels: Sequence[Panel], heading: str, zero: bool = False) -> Figure:
    """Draws panels at the width of one column of a journal, or of the page where there are several side by side.

    Args:
        panels: at least one.
        heading: above all; what the intervals are over is added to it.
        zero: whether 0, the value of no difference, is marked, and intervals that exclude it.
    """
    import matplotlib

    estimates = [item for panel in panels for _, item in panel.lines]
    with_counts = len({item.n for item in estimates}) > 1
    labels = [panel.labels(with_counts) for panel in panels]
    shared = len(set(labels)) == 1
    lines = [label.splitlines() for group in labels for label in group]
    label_width = _CHARACTER * max(len(part) for parts in lines for part in parts)
    # Labels that all panels have stand beside the first one of a row alone.
    free, need = (_PAGE_WIDTH - label_width, _AXIS_WIDTH) if shared else (_PAGE_WIDTH, _AXIS_WIDTH + label_width)
    columns = max(1, min(len(panels), int(free / need)))
    rows, width = -(-len(panels) // columns), _COLUMN_WIDTH if columns == 1 else _PAGE_WIDTH
    columns = -(-len(panels) // rows)  # as many in each row
    heading = f"{heading}\n{_over(estimates, zero)}"
    heading = _wrapped(heading, int(width / _CHARACTER))
    panel_height = (_ROW_HEIGHT + _LINE_HEIGHT * max(map(len, lines))) * max(map(len, labels)) + _AROUND_PANEL
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(width, _LINE_HEIGHT * len(heading.splitlines()) + panel_height * rows)
        one_unit = len({panel.unit for panel in panels}) == 1
        first: Axes | None = None
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, number + 1, sharex=first if one_unit else None)
            first = first or axes
            _draw(axes, panel, labels[number], zero)
            if shared and number % columns:
                axes.tick_params(labelleft=False)
        figure.suptitle(heading, x=0.01, ha="left", fontsize=_FONT_SIZE)
    return figure


def _draw(axes: Axes, panel: Panel, labels: Sequence[str], zero: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    positions = range(len(panel.lines))
    for position, (_, item) in zip(positions, panel.lines, strict=True):
        decided = zero and item.low is not None and item.high is not None and not item.low <= 0 <= item.high
        color, marker = ("#b5442e", "D") if decided else ("#2f5d8a", "o")  # told apart in print without colours, too
        if item.low is not None and item.high is not None:
            axes.plot([item.low, item.high], [position, position], color=color, linewidth=1.4)
        filling: Any = "none" if item.low is None else "full"
        axes.plot(item.mean, position, marker, color=color, markersize=4, fillstyle=filling)
        number = show_number(item.mean)
        axes.annotate(number, (item.mean, position), (0, 3), textcoords="offset points", ha="center", size=6.5)
    if zero:
        axes.axvline(0, color="black", linewidth=0.7)
    axes.set_yticks(positions, labels)
    axes.set_ylim(len(panel.lines) - 0.4, -0.7)
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="x", linewidth=0.3)
    axes.set_xlabel(_wrapped(panel.unit, _UNIT_CHARACTERS))
    axes.set_title(_wrapped(panel.title, _UNIT_CHARACTERS), fontsize=_FONT_SIZE)


def _over(estimates: Sequence[Estimate], zero: bool) -> str:
    """What the intervals are over, and what the marks mean."""
    kinds: dict[str, set[int]] = {}
    for item in estimates:
        if item.low is not None:
            kinds.setdefault(item.over, set()).add(item.clusters)
    numbers = {over: sorted({min(counts), max(counts)}) for over, counts in sorted(kinds.items())}
    over = " or ".join(f"{' to '.join(map(str, counts))} {over}" for over, counts in numbers.items())
    missing = " or ".join(sorted({item.missing for item in estimates if item.low is None}))
    seats = {item.n for item in estimates}
    notes = ["n: seats"] if len(seats) > 1 else [f"n = {max(seats)} seats each"]
    notes += ["red diamonds: the interval excludes 0"] if zero else []
    notes += [f"hollow: no interval ({missing})"] if missing else []
    return "; ".join([f"95 % intervals over {over}", *notes] if over else notes)


def mean_chart(comparison: Comparison) -> Figure:
    """Draws the policies' means with 95 % intervals in the order of the ranking, a panel for each headline metric."""
    order = [rank.policy for rank in comparison.ranking]
    order += [policy for policy in comparison.policies if policy not in order]
    panels = []
    for metric in comparison.headlines or comparison.metrics[:1]:
        cells = [cell for policy in order if (cell := comparison.cell(policy, metric)) is not None]
        lines = [(policy_label(comparison, cell.policy), cell.estimate) for cell in cells]
        panels.append(Panel(metric_label(comparison, metric), lines))
    by = f", scores by {comparison.evaluator}" if comparison.evaluator else ""
    note = f"\n{NOT_COMMON} over other seats or partners: not comparable" if comparison.common.others else ""
    return forest_chart(panels, f"Means of policies{by}{note}")


def difference_chart(comparison: Comparison) -> Figure | None:
    """Draws the paired differences of the main metric; of many, those from the first policy. ``None`` without any."""
    differences = [d for d in comparison.differences if d.metric == comparison.main]
    if len(differences) > _MOST_DIFFERENCES and comparison.ranking:
        best = comparison.ranking[0].policy
        differences = [d for d in differences if best in (d.first, d.second)]
    if not differences:
        return None
    lines = [
        (f"{d.first} - {d.second}{'' if d.same_partner else ' [partners differ]'}", d.estimate) for d in differences
    ]
    unit = f"difference in {metric_label(comparison, comparison.main)}"
    return forest_chart([Panel(unit, lines)], "Paired differences", zero=True)


def level_charts(comparison: Comparison) -> dict[str, Figure]:
    """Draws means and differences by the levels of the comparison's factor, a panel for each policy, by file name."""
    by = comparison.by
    if by is None:
        return {}
    label = metric_label(comparison, by.metric)
    means = [(mean.policy, mean.level, mean.estimate) for mean in by.means]
    contrasts = [(item.policy, item.name, item.estimate) for item in by.contrasts if item.estimate is not None]
    charts = {f"by_{by.factor}": _by_policy(means, label, f"Means by {by.factor}", zero=False)}
    if contrasts:
        heading = f"Differences by {by.factor}"
        charts[f"by_{by.factor}_differences"] = _by_policy(contrasts, f"difference in {label}", heading, zero=True)
    return charts


def _by_policy(items: Sequence[tuple[str, str, Estimate]], label: str, heading: str, zero: bool) -> Figure:
    policies = list(dict.fromkeys(policy for policy, _, _ in items))
    panels = [
        Panel(label, [(name, item) for other, name, item in items if other == policy], policy) for policy in policies
    ]
    return forest_chart(panels, heading, zero)


def heat_map(comparison: Comparison) -> Figure:
    """Draws policy × partner: the mean of the comparison's main metric for the row's policy, and its n."""
    import matplotlib

    partners = partner_columns(comparison)
    cells = {(cell.policy, cell.partner): cell.estimate for cell in comparison.matrix}
    count = max(1, len(partners))
    width = min(_PAGE_WIDTH, max(_COLUMN_WIDTH, 1.9 + 0.75 * count))
    size = min(_FONT_SIZE, 6.5 * (width - 1.9) / (0.55 * count))
    figure = new_figure(width, 1.5 + 0.45 * len(comparison.policies))
    with matplotlib.rc_context(_STYLE):
        axes = figure.add_subplot()
    gap = float("nan")  # matplotlib leaves such cells white

    def mean(policy: str, partner: str) -> float:
        return cells[policy, partner].mean if (policy, partner) in cells else gap

    image = axes.imshow(
        [[mean(policy, partner) for partner in partners] or [gap] for policy in comparison.policies],
        aspect="auto",
        cmap="cividis",  # the same order of lightness in grey and for colour-blind readers
    )
    for row, policy in enumerate(comparison.policies):
        for column, partner in enumerate(partners):
            item = cells.get((policy, partner))
            text = "not met" if item is None else f"{show_number(item.mean)}\nn = {item.n}"
            box = {"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1.0}
            axes.text(column, row, text, ha="center", va="center", size=size, bbox=box)
    wrapped = [_wrapped(name, _LABEL_CHARACTERS) for name in (*partners, *comparison.policies)]
    axes.set_xticks(range(len(partners)), wrapped[: len(partners)], rotation=30, ha="right", fontsize=7)
    axes.set_yticks(range(len(comparison.policies)), wrapped[len(partners) :], fontsize=7)
    axes.set_xlabel("partner", fontsize=_FONT_SIZE)
    axes.set_ylabel("policy", fontsize=_FONT_SIZE)
    bar = figure.colorbar(image)
    bar.set_label(_wrapped(metric_label(comparison, comparison.main), _UNIT_CHARACTERS), fontsize=_FONT_SIZE)
    bar.ax.tick_params(labelsize=7)
    return figure


def write_report(comparison: Comparison, folder: str | Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Writes text, JSON, CSV and the charts into ``folder``, each file at once, and returns their paths.

    Args:
        comparison: what is written.
        folder: made where it does not exist.
        formats: of the charts, of :data:`FORMATS`.

    Raises:
        UnknownNameError: there is no such format.
        InvalidValueError: nothing can be written there.
    """
    check_formats(formats)
    folder = Path(folder)
    texts = {"comparison.txt": to_text(comparison), "comparison.json": to_json(comparison)}
    texts |= {f"{name}.csv": text for name, text in to_csv(comparison).items()}
    charts = {"means": mean_chart(comparison), "differences": difference_chart(comparison)}
    charts |= {"heat_map": heat_map(comparison), **level_charts(comparison)}
    paths = write_texts(folder, texts)
    drawn = {name: figure for name, figure in charts.items() if figure is not None}
    return paths + [path for name, figure in drawn.items() for path in save_figure(figure, folder / name, formats)]
