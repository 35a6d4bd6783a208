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
_PANELS_IN_A_ROW = 4
_STYLE: Any = {  # matplotlib types the keys as literals
    "font.size": 9,
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
    return label if low is None or high is None else f"{label} (scale {round(low, 2):g} to {round(high, 2):g})"


@dataclass(frozen=True, slots=True)
class _Panel:
    """A forest plot: a label and an estimate for each line, from top to bottom; ``unit`` is what the axis measures."""

    unit: str
    lines: Sequence[tuple[str, Estimate]]
    title: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels with their numbers of seats."""
        return tuple(f"{label}  (n = {item.n})" for label, item in self.lines)


def _wrapped(text: str) -> str:
    return "\n".join(part for line in text.splitlines() for part in textwrap.wrap(line, 36))


def _forest(panels: Sequence[_Panel], heading: str, zero: bool) -> Figure:
    """Draws the panels, up to four side by side; ``zero`` marks 0, the value of no difference."""
    import matplotlib

    columns = min(len(panels), _PANELS_IN_A_ROW)
    rows = -(-len(panels) // columns)
    width, height = max(len(line) for panel in panels for line in panel.labels), max(len(p.lines) for p in panels)
    shared = len({panel.labels for panel in panels}) == 1
    with matplotlib.rc_context(_STYLE):
        label_width = 0.075 * width * (1 if shared else columns)
        figure = new_figure(label_width + 2.4 * columns, 0.6 + (0.9 + 0.32 * height) * rows)
        one_unit = len({panel.unit for panel in panels}) == 1
        first: Axes | None = None
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, number + 1, sharex=first if one_unit else None)
            first = first or axes
            _draw(axes, panel, zero)
            if shared and number % columns:
                axes.tick_params(labelleft=False)
        figure.suptitle(heading, fontsize=9)
    return figure


def _draw(axes: Axes, panel: _Panel, zero: bool) -> None:
    positions = range(len(panel.lines))
    for position, (_, item) in zip(positions, panel.lines, strict=True):
        decided = zero and item.low is not None and item.high is not None and not item.low <= 0 <= item.high
        color = "#b5442e" if decided else "#2f5d8a"
        if item.low is not None and item.high is not None:
            axes.plot([item.low, item.high], [position, position], color=color, linewidth=1.6)
        # A hollow point has no interval.
        axes.plot(item.mean, position, "o", color=color, markersize=5, fillstyle="none" if item.low is None else "full")
        axes.annotate(
            f"{show_number(item.mean)}", (item.mean, position), (0, 4), textcoords="offset points", ha="center", size=7
        )
    if zero:
        axes.axvline(0, color="black", linewidth=0.7)
    axes.set_yticks(positions, panel.labels)
    axes.set_ylim(len(panel.lines) - 0.4, -0.7)
    axes.margins(x=0.12)
    axes.grid(axis="x", linewidth=0.3)
    axes.set_xlabel(_wrapped(panel.unit))
    axes.set_title(panel.title, fontsize=9)


def _over(estimates: Sequence[Estimate], zero: bool = False) -> str:
    kinds = " or ".join(sorted({item.over for item in estimates}))
    return f"95 % intervals over {kinds}; n: seats{'; red: the interval excludes 0' if zero else ''}"


def mean_chart(comparison: Comparison) -> Figure:
    """Draws the policies' means with 95 % intervals in the order of the ranking, a panel for each headline metric."""
    order = [rank.policy for rank in comparison.ranking]
    order += [policy for policy in comparison.policies if policy not in order]
    panels = []
    for metric in comparison.headlines or comparison.metrics[:1]:
        cells = [cell for policy in order if (cell := comparison.cell(policy, metric)) is not None]
        lines = [(policy_label(comparison, cell.policy), cell.estimate) for cell in cells]
        panels.append(_Panel(metric_label(comparison, metric), lines))
    by = f", scores by {comparison.evaluator}" if comparison.evaluator else ""
    note = f"\n{NOT_COMMON} over other seats or partners: not comparable" if comparison.common.others else ""
    estimates = [item for panel in panels for _, item in panel.lines]
    return _forest(panels, f"Means of policies{by}\n{_over(estimates)}{note}", zero=False)


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
    panel = _Panel(f"difference in {metric_label(comparison, comparison.main)}", lines)
    return _forest([panel], f"Paired differences\n{_over([item for _, item in lines], True)}", zero=True)


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
        _Panel(label, [(name, item) for other, name, item in items if other == policy], policy) for policy in policies
    ]
    return _forest(panels, f"{heading}\n{_over([item for _, _, item in items], zero)}", zero)


def heat_map(comparison: Comparison) -> Figure:
    """Draws policy × partner: the mean of the comparison's main metric for the row's policy, and its n."""
    partners = partner_columns(comparison)
    cells = {(cell.policy, cell.partner): cell.estimate for cell in comparison.matrix}
    figure = new_figure(3.2 + 1.1 * max(1, len(partners)), 1.8 + 0.6 * len(comparison.policies))
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
            box = {"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1.5}
            axes.text(column, row, text, ha="center", va="center", size=8, bbox=box)
    axes.set_xticks(range(len(partners)), partners, rotation=30, ha="right")
    axes.set_yticks(range(len(comparison.policies)), comparison.policies)
    axes.set_xlabel("partner")
    axes.set_ylabel("policy")
    figure.colorbar(image, label=_wrapped(metric_label(comparison, comparison.main)))
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
