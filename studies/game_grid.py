"""A picture of the 121 games of ``grid``: payoffs as axes, and in every cell the equilibria by enumeration.

    python -m studies.game_grid --out docs/samples/replications

A cell has the colour of its pure equilibria, and the probability of co-operation in the symmetric mixed one if there is
one. Names of regions and the shares of people are those of ``sotopia replicate 121-games``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.games.game import Game, game_of
from sotopia_env.outcomes.solutions.equilibria import pure_equilibria, symmetric_mixture
from sotopia_env.people.replications import read_replication
from sotopia_env.reports.charts import new_figure, paper_style, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REGIONS = {"harmony": (7, 8), "snowdrift": (13, 8), "stag_hunt": (7, 2), "prisoner": (13, 2)}
"""The regions by the names of their figures, with their centres: T and S."""
_NAMES = {"harmony": "harmony", "snowdrift": "snowdrift", "stag_hunt": "stag hunt", "prisoner": "prisoner's dilemma"}
_COLOURS = ("#c6dbef", "#fdd0a2", "#c7e9c0", "#dadaeb", "#f7f7f7", "#fee391", "#e5d8bd", "#fddaec", "#cccccc")
Games = Mapping[tuple[int, int], Game]


def grid() -> Games:
    """Returns the games by T and S."""
    games = {}
    for task in tasks.generate("grid", 121, 0, "hard"):
        spec, values = task.scenario.outcome, task.scenario.shared_data["parameters"]
        assert spec is not None
        games[int(values["T"]), int(values["S"])] = game_of(spec.protocol, spec.worth)  # type: ignore[arg-type]
    return games


def equilibria(game: Game) -> tuple[str, float | None]:
    """Returns the pure equilibria, such as ``CC, DD``, and the probability of C in the symmetric mixed one."""
    letters = [dict(zip(options, "CD", strict=True)) for options in game.options]
    pure = ["".join(own[option] for own, option in zip(letters, row, strict=True)) for row in pure_equilibria(game)]
    try:
        mixture = symmetric_mixture(game, game.options[0][0])
    except InvalidValueError:  # one option is at least as good at every probability
        mixture = None
    return ", ".join(sorted(pure)), mixture


def picture() -> Figure:
    """Draws the grid."""
    cells = {place: equilibria(game) for place, game in grid().items()}
    kinds = sorted({pure for pure, _ in cells.values()}, key=lambda pure: (len(pure), pure))
    people = read_replication("121-games").figures
    with paper_style():
        figure = new_figure(7.0, 5.6)
        axes = figure.add_subplot()
        for (t, s), (pure, mixture) in cells.items():
            colour = _COLOURS[kinds.index(pure)]
            axes.fill_between([t - 0.5, t + 0.5], s - 0.5, s + 0.5, color=colour, linewidth=0)
            if mixture is not None:
                axes.text(t, s, f"{mixture:.2f}", ha="center", va="center", size=5.5, color="#555555")
        for pure, colour in zip(kinds, _COLOURS, strict=False):
            axes.fill_between([], 0, 0, color=colour, label=pure)
        axes.axvline(10, color="black", linewidth=0.8)
        axes.axhline(5, color="black", linewidth=0.8)
        for name, (t, s) in REGIONS.items():
            share = people[name].people
            text = f"{_NAMES[name]}\npeople {share.mean:.2f}" if share is not None else _NAMES[name]
            box = {"facecolor": "white", "edgecolor": "#999999", "boxstyle": "round,pad=0.25", "alpha": 0.9}
            axes.text(t, s + 0.5, text, ha="center", va="center", weight="bold", bbox=box)
        axes.set_xticks(range(5, 16))
        axes.set_yticks(range(11))
        axes.set_xlabel("T: paid to the only one who does not co-operate (both do: 10, neither: 5)")
        axes.set_ylabel("S: paid to the only one who co-operates")
        axes.legend(title="pure equilibria", loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
        note = (
            "C co-operates, D does not\n\nnumber: chance of C in the\nsymmetric mixed equilibrium"
            "\n\npeople: share of C in the\n25 games (2016)"
        )
        axes.text(1.03, 0.35, note, transform=axes.transAxes, va="top")
        figure.suptitle("121 games of two, and their equilibria by enumeration", x=0.01, ha="left", fontsize=8)
    return figure


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    for path in save_figure(picture(), parser.parse_args().out / "equilibria", ("png",)):
        sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
