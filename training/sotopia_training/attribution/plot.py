"""A chart of the distribution of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sotopia_env.reports import PAGE_WIDTH, new_figure, paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS, _PANELS_IN_A_ROW = 20, 2
_FEWEST = 0.001  # lower end of the logarithmic axis, which cannot begin at 0


def distribution_chart(panels: Mapping[str, Mapping[str, Sequence[float]]], unit: str) -> Figure:
    """Returns a chart with a panel per title and a line per label: shares of the turns, on a logarithmic scale.

    Args:
        panels: the rewards, by the title of the panel and the label in its legend. A label has the same colour in all
            panels.
        unit: the label of the horizontal axis.
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
            # Most rewards are 0; on a linear scale their bar would make all others invisible.
            axes.set_yscale("log")
            axes.set_ylim(_FEWEST, 1.2)
            axes.set_title(title.replace("_", " "))
            axes.set_xlabel(unit)
            axes.legend(fontsize="x-small", loc="upper right", frameon=False)
            axes.set_ylabel("" if number % columns else "share of the turns")
    return figure
