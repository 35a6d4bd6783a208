"""The composition of a set of tasks as text and as a chart."""

from __future__ import annotations

from pathlib import Path

from sotopia_env.reports.charts import new_figure, save_figure
from sotopia_env.reports.tables import table
from sotopia_env.tasks.composition import Composition, verified_share

_COLUMNS, _ROW_HEIGHT, _PAGE_WIDTH = 3, 0.16, 7.0


def composition_text(counts: Composition) -> str:
    """Returns a table for each part, with counts and shares."""
    tables = []
    for title, names in counts.items():
        total = sum(names.values())
        tables.append(table((title, "n", "share"), [(n, str(k), f"{k / total:.0%}") for n, k in names.items()]))
    share = verified_share(counts)
    verified = [] if share is None else [f"share verified: {share:.0%}"]
    return "\n\n".join([*verified, *tables]) + "\n"


def composition_chart(counts: Composition, title: str, path: str | Path) -> Path:
    """Draws a panel of bars for each part.

    Args:
        counts: of each part.
        title: of the set.
        path: ends in the format, one of :data:`~sotopia_env.reports.charts.FORMATS`.

    Returns:
        ``path``, written at once.

    Raises:
        UnknownNameError: there is no such format.
    """
    rows = [list(counts.items())[start : start + _COLUMNS] for start in range(0, len(counts), _COLUMNS)]
    most = [max(len(names) for _, names in row) for row in rows]
    heights = [bars * _ROW_HEIGHT + 0.6 for bars in most]
    figure = new_figure(_PAGE_WIDTH, sum(heights) + 0.5)
    grid = figure.add_gridspec(len(rows), _COLUMNS, height_ratios=heights)
    for number, row in enumerate(rows):
        for column, (part, names) in enumerate(row):
            axes = figure.add_subplot(grid[number, column])
            bars = axes.barh(range(len(names)), list(names.values()), color="#7a9cc6")
            axes.bar_label(bars, padding=2, fontsize=7)
            axes.set_yticks(range(len(names)), list(names), fontsize=7)
            axes.set_ylim(most[number] - 0.5, -0.5)  # bars of one row are equally thick
            axes.margins(x=0.15)
            axes.set_xticks([])
            axes.set_title(part, fontsize=8)
            axes.spines[["top", "right", "bottom"]].set_visible(False)
    share = verified_share(counts)
    about = title if share is None else f"{title}: {share:.0%} with a verified outcome"
    figure.suptitle(f"{about}; counts", fontsize=8)
    (file,) = save_figure(figure, Path(path).with_suffix(""), [Path(path).suffix.removeprefix(".")])
    return file
