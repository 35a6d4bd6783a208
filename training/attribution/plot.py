"""A picture of how rewards are distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sotopia_env.reports import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 20
_FEWEST = 0.001


def distribution_chart(panels: Mapping[str, Mapping[str, Sequence[float]]], unit: str) -> Figure:
    """Draws a panel for each distribution, with a line for each entry; shares of the turns, on a logarithmic scale.

    Args:
        panels: rewards by title and by what the legend shall call them; an entry has one colour in all panels.
        unit: what the horizontal axis shows.
    """
    labels = list(dict.fromkeys(label for entries in panels.values() for label in entries))
    figure = new_figure(2.4 + 2.8 * len(panels), 3.4)
    for column, (title, entries) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), column)
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
        axes.legend(fontsize="x-small", loc="upper right")
        if column == 1:
            axes.set_ylabel("share of the turns")
    return figure
