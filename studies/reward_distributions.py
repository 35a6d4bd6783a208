"""Draws the distribution of attributed rewards, by dimension and method (SOTOPIA-RL, figure 9).

    python -m studies.reward_distributions runs/attribution --methods direct scaled --out rewards.png

All rewards are mapped to [0, 1] by the least and the greatest, as the stage ``rewards`` does with training turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_training.attribution.methods import Rewards, read_rewards
from sotopia_training.reward.design import RewardDesign, fit_design

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.reports.charts import PAGE_WIDTH, new_figure, paper_style, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS, _PANELS_IN_A_ROW = 20, 2
_FEWEST = 0.001  # lower end of the logarithmic axis, which cannot begin at 0
_COMBINED = "combined"


def plot_distribution(
    entries: Mapping[str, tuple[Rewards, RewardDesign]], training: Collection[str], path: str | Path
) -> Path:
    """Draws the distribution of the training turns' rewards: a panel per dimension, and one for the combination.

    As in figure 9 of SOTOPIA-RL, all rewards are mapped to [0, 1] by the design. Each entry, e.g. a method, is a line.

    Args:
        entries: the rewards and their design, by label in the legend.
        training: the scenarios of the training turns.
        path: the path of the PNG file.

    Returns:
        ``path``, written atomically.
    """
    names = list(dict.fromkeys(name for _, design in entries.values() for name in design.dimensions))
    panels = {
        panel: {label: _column(*entry, training, panel) for label, entry in entries.items()}
        for panel in ([*names, _COMBINED] if len(names) > 1 else names)
    }
    (file,) = save_figure(distribution_chart(panels, "reward, min-max normalised"), Path(path).with_suffix(""))
    return file


def _column(rewards: Rewards, design: RewardDesign, training: Collection[str], panel: str) -> list[float]:
    rows = [
        row
        for (episode, _, _), row in rewards.by_turn.items()
        if rewards.scenarios[episode] in training and design.dimensions.keys() <= row.keys()
    ]
    if panel == _COMBINED:
        return [design.combined(row) for row in rows]
    return [design.dimensions[panel].mapped(row[panel]) for row in rows] if panel in design.dimensions else []


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws the chart; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attributions", help="the output of the attribution stage, or an attributions.jsonl")
    parser.add_argument("--methods", nargs="+", default=["direct"], help="the methods, each a line of the chart")
    parser.add_argument("--attributor", help="the attributor; not needed if the file has only one")
    parser.add_argument("--out", type=Path, required=True, help="the PNG file")
    options = parser.parse_args(arguments)
    try:
        rewards = {method: read_rewards(options.attributions, method, options.attributor) for method in options.methods}
        scenarios = {scenario for item in rewards.values() for scenario in item.scenarios.values()}
        entries = {method: (item, fit_design(item, scenarios)) for method, item in rewards.items()}
        plot_distribution(entries, scenarios, options.out)
    except SotopiaError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
