"""Pictures of how rewards are distributed, and of how right they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sotopia_env.reports import new_figure, save_png
from training.attribution.accuracy import Accuracy

_BINS = 20
_FEWEST = 0.001


def plot_distributions(panels: Mapping[str, Mapping[str, Sequence[float]]], path: str | Path, unit: str) -> Path:
    """Draws a panel for each distribution, with a line for each entry; shares of the turns, on a logarithmic scale.

    Args:
        panels: rewards by title and by what the legend shall call them; an entry has one colour in all panels.
        path: a PNG file.
        unit: what the horizontal axis shows.

    Returns:
        ``path``, written at once.
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
                    label=label,
                )
        # Most turns get nothing; without the logarithm they would be all there is to see.
        axes.set_yscale("log")
        axes.set_ylim(_FEWEST, 1.2)
        axes.set_title(title.replace("_", " "))
        axes.set_xlabel(unit)
        if column == 1:
            axes.set_ylabel("share of the turns")
    handles = {
        text: handle for axes in figure.axes for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize="small")
    return save_png(figure, Path(path))


def plot_accuracies(rows: Sequence[Accuracy], figures: Sequence[str], path: str | Path) -> Path:
    """Draws a panel for each figure: a line of points with intervals for each method, a colour for each family.

    Args:
        rows: of all families.
        figures: fields of the rows.
        path: a PNG file.

    Returns:
        ``path``, written at once.
    """
    families = list(dict.fromkeys(row.family for row in rows))
    labels = list(dict.fromkeys(f"{row.attributor}, {row.method}" for row in rows))[::-1]
    figure = new_figure(2.5 + 3.2 * len(figures), 1.2 + 0.3 * len(labels))
    for column, name in enumerate(figures, start=1):
        axes = figure.add_subplot(1, len(figures), column)
        for row in rows:
            interval, number = getattr(row, name), families.index(row.family)
            height = labels.index(f"{row.attributor}, {row.method}") + 0.15 * (len(families) / 2 - number)
            if interval.value is not None:
                axes.plot(interval.value, height, "o", color=f"C{number}", markersize=3)
                axes.hlines(height, interval.low, interval.high, color=f"C{number}", linewidth=1)
        axes.axvline(0.0 if name == "correlation" else 0.5, color="black", linewidth=0.6)
        axes.set_yticks(range(len(labels)), labels if column == 1 else [""] * len(labels))
        axes.set_title(name)
    handles = [figure.axes[0].plot([], [], "o", color=f"C{n}", label=family)[0] for n, family in enumerate(families)]
    figure.legend(handles, families, loc="outside lower center", ncols=len(families), fontsize="small")
    return save_png(figure, Path(path))
