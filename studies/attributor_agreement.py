"""Agreement of attributors on the importance of turns (SOTOPIA-RL, §1: Spearman above 0.7 between language models).

    python -m studies.attributor_agreement runs/attribution

Reads the ``attributions.jsonl`` of a stage that ran with the method ``direct``, whose attributions are the importance.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sotopia_training.attribution.methods import read_attributions

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.reports.agreement import spearman
from sotopia_env.reports.sheet import Sheet


@dataclass(frozen=True, slots=True)
class AttributorAgreement:
    """The agreement of two attributors on one dimension, over the seats of episodes that both attributed.

    Attributes:
        dimension: the dimension of the scores.
        first: the name of one attributor.
        second: the name of the other attributor.
        seats: the number of seats of episodes that both attributed.
        turns: the number of turns of these seats.
        missing: the number of seats that only one of them attributed.
        spearman: the rank correlation of A over all turns, in [-1, 1]; ``None`` if an attributor rates all turns equal.
        within: the mean of the rank correlations within single seats, which removes differences between episodes;
            ``None`` if no seat has one.
        ranked: the number of seats in this mean: those whose turns neither attributor rates all equal.
    """

    dimension: str
    first: str
    second: str
    seats: int
    turns: int
    missing: int
    spearman: float | None
    within: float | None
    ranked: int


@dataclass(slots=True)
class _PairedImportance:
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    seats: int = 0
    missing: int = 0
    within: list[float] = field(default_factory=list)


class AgreementTable:
    """Collects the attributions of seats, and compares every two attributors on each dimension."""

    def __init__(self, attributors: Sequence[str]) -> None:
        """Compares the attributors with these names, in this order."""
        self._attributors = tuple(attributors)
        self._pairs: dict[tuple[str, str, str], _PairedImportance] = {}

    def add(self, dimension: str, importance: Mapping[str, Mapping[int, float]]) -> None:
        """Adds the attributions of one seat on a dimension.

        Args:
            dimension: the dimension of the score.
            importance: the importance of the turns, by attributor; those that did not rate the seat have no entry.
        """
        for first, second in itertools.combinations(self._attributors, 2):
            pair = self._pairs.setdefault((dimension, first, second), _PairedImportance())
            left, right = importance.get(first), importance.get(second)
            if left is None or right is None:
                pair.missing += (left is None) != (right is None)
                continue
            turns = sorted(left)
            xs, ys = [left[turn] for turn in turns], [right[turn] for turn in turns]
            pair.first += xs
            pair.second += ys
            pair.seats += 1
            # A seat whose turns one attributor rates all equal has no ranks to correlate.
            within = spearman(xs, ys)
            if within is not None:
                pair.within.append(within.value)

    def rows(self) -> tuple[AttributorAgreement, ...]:
        """Returns a row for every pair of attributors and dimension, over the seats added so far."""
        return tuple(
            AttributorAgreement(
                dimension,
                first,
                second,
                seats=pair.seats,
                turns=len(pair.first),
                missing=pair.missing,
                spearman=None if (rho := spearman(pair.first, pair.second)) is None else rho.value,
                within=sum(pair.within) / len(pair.within) if pair.within else None,
                ranked=len(pair.within),
            )
            for (dimension, first, second), pair in self._pairs.items()
        )


def agreement(path: str | Path) -> tuple[AttributorAgreement, ...]:
    """Returns the agreement of the attributors of a stage.

    Args:
        path: the output of the attribution stage, or an ``attributions.jsonl``.

    Raises:
        DamagedRecordError: the file does not exist, or a line is not such a record.
    """
    seats: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    attributors: dict[str, None] = {}
    for item in read_attributions(path):
        if item.method == "direct" and item.attribution is not None:
            attributors[item.attributor] = None
            seat = seats.setdefault((item.episode, item.seat, item.dimension), {})
            seat.setdefault(item.attributor, {})[item.turn] = item.attribution
    table = AgreementTable(tuple(attributors))
    for (_, _, dimension), importance in seats.items():
        table.add(dimension, importance)
    return table.rows()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attributions", help="the output of the attribution stage, or an attributions.jsonl")
    options = parser.parse_args(arguments)
    try:
        rows = agreement(options.attributions)
    except SotopiaError as error:
        parser.error(str(error))
    if not rows:
        parser.error(f"{options.attributions}: no dimension has direct attributions of two attributors")
    columns = ("dimension", "first", "second", "seats", "turns", "missing", "spearman", "within", "ranked")
    formats = dict.fromkeys(("spearman", "within"), "{:.3f}".format)
    labels = {"spearman": "Spearman", "within": "within a seat", "ranked": "seats ranked"}
    sys.stdout.write(Sheet.of("agreement", rows, columns, labels=labels, formats=formats).text() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
