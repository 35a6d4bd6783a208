"""Charts of a comparison as PNG files, and the folder of its report; matplotlib is imported on first use."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.files import write_atomically, write_texts
from sotopia_env.reports.compare import Comparison
from sotopia_env.reports.tables import NOT_COMMON, partner_columns, policy_label, show_number, to_csv, to_json, to_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=120)
    write_atomically(path, png.getvalue())
    return path


def heat_map(comparison: Comparison, path: str | Path) -> Path:
    """Draws policy × partner: the mean of the comparison's main metric for the row's policy.

    Returns:
        ``path``, written at once.
    """
    partners = partner_columns(comparison)
    means = {(cell.policy, cell.partner): cell.estimate.mean for cell in comparison.matrix}
    figure = new_figure(3.2 + 1.1 * max(1, len(partners)), 2.2 + 0.6 * len(comparison.policies))
    axes = figure.add_subplot()
    gap = float("nan")  # matplotlib leaves such cells white
    image = axes.imshow(
        [[means.get((p, q), gap) for q in partners] or [gap] for p in comparison.policies], aspect="auto"
    )
    for row, policy in enumerate(comparison.policies):
        for column, partner in enumerate(partners):
            text = show_number(means.get((policy, partner)))
            axes.text(column, row, text, ha="center", va="center", bbox={"facecolor": "white", "alpha": 0.7, "lw": 0})
    axes.set_xticks(range(len(partners)), partners, rotation=30, ha="right")
    axes.set_yticks(range(len(comparison.policies)), comparison.policies)
    axes.set_xlabel("partner")
    axes.set_ylabel("policy")
    axes.set_title(f"{comparison.main} of the policy, by partner")
    figure.colorbar(image, label=comparison.main)
    return save_png(figure, Path(path))


def bar_chart(comparison: Comparison, path: str | Path) -> Path:
    """Draws the policies' means with 95 % intervals, a panel for each headline metric.

    Returns:
        ``path``, written at once.
    """
    metrics = comparison.headlines
    figure = new_figure(max(4.0, (1.2 + 0.55 * len(comparison.policies)) * len(metrics)), 4.2)
    for number, metric in enumerate(metrics, start=1):
        axes = figure.add_subplot(1, len(metrics), number)
        cells = [cell for p in comparison.policies if (cell := comparison.cell(p, metric)) is not None]
        positions = range(len(cells))
        axes.bar(positions, [cell.estimate.mean for cell in cells], color="#7a9cc6")
        for position, cell in zip(positions, cells, strict=True):
            if cell.estimate.low is not None and cell.estimate.high is not None:
                axes.vlines(position, cell.estimate.low, cell.estimate.high, color="black")
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xticks(positions, [policy_label(comparison, cell.policy) for cell in cells], rotation=30, ha="right")
        axes.set_title(metric)
    by = f", scores by {comparison.evaluator}" if comparison.evaluator else ""
    note = f"\n{NOT_COMMON} over other seats or partners: not comparable" if comparison.common.others else ""
    figure.suptitle(f"mean and 95 % interval over scenarios{by}{note}")
    return save_png(figure, Path(path))


def write_report(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Writes text, JSON, CSV and both charts into ``folder``, each file at once, and returns their paths.

    Raises:
        InvalidValueError: nothing can be written there.
    """
    folder = Path(folder)
    texts = {"comparison.txt": to_text(comparison), "comparison.json": to_json(comparison)}
    texts |= {f"{name}.csv": text for name, text in to_csv(comparison).items()}
    paths = write_texts(folder, texts)
    return [*paths, heat_map(comparison, folder / "heat_map.png"), bar_chart(comparison, folder / "bar_chart.png")]
