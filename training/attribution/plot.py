"""A picture of how rewards are distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sotopia_env.reports import PAGE_WIDTH, new_figure, paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS, _PANELS_IN_A_ROW = 20, 2
_FEWEST = 0.001


def distribution_chart(panels: Mapping[str, Mapping[str, Sequence[float]]], unit: str) -> Figure:
    """Draws a panel for each distribution, with a line for each entry; shares of the turns, on a logarithmic scale.

    Args:
        panels: rewards by title and by what the legend shall call them; an entry has one colour in all panels.
        unit: what the horizontal axis shows.
    """
    labels = list(dict.fromkeys(label for entries in panels.values() for label in entries))
    columns = min(_PANELS_IN_A_ROW, len(panels))
    rows = -(-len(panels) // columns)
    with paper_style():
        figure = new_figure(PAGE_WIDTH if columns > 1 else PAGE_WIDTH / 2, 2.4 * rows)
        for number, (title, entries) in enumerate(panels.items()):
            axes = figure.add_subplot(rows, columns, number + 1)
            low = min((min(values) for values in entries.values() if len(values)), default=0.0)
            high = max((max(values) for values in entries.values() if len(values)), default=1.0)
            for label, values in entries.items():
                if len(values):
                    axes.hist(
                        values,
                        bins=_BINS,
                        range=(low, high) if high > low else (low - 0.5, low + 0.5),
                        weights=[1 / len(values)] * len(values),
                        histtype="step",
                        color=f"C{labels.index(label)}",
                        label=f"{label} (n = {len(values)})",
                    )
            # Most turns get nothing; without the logarithm they would be all there is to see.
            axes.set_yscale("log")
            axes.set_ylim(_FEWEST, 1.2)
            axes.set_title(title.replace("_", " "))
            axes.set_xlabel(unit)
            axes.legend(fontsize="x-small", loc="upper right", frameon=False)
            axes.set_ylabel("" if number % columns else "share of the turns")
    return figure
