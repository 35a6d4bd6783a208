"""Agreement of attributors on the importance of turns (SOTOPIA-RL, §1: Spearman above 0.7 between language models)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sotopia_env.reports import spearman
from sotopia_training.attribution.methods import Importance


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

    def figures(self) -> dict[str, Any]:
        """Returns the row as JSON."""
        return asdict(self)


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

    def add(self, dimension: str, importance: Mapping[str, Importance | None]) -> None:
        """Adds the attributions of one seat on a dimension.

        Args:
            dimension: the dimension of the score.
            importance: the importance of the turns, by attributor; ``None`` if it is missing. Attributors that do not
                rate such episodes have no entry.
        """
        names = [name for name in self._attributors if name in importance]
        for first, second in itertools.combinations(names, 2):
            pair = self._pairs.setdefault((dimension, first, second), _PairedImportance())
            left, right = importance[first], importance[second]
            if left is None or right is None:
                pair.missing += (left is None) != (right is None)
                continue
            turns = sorted(left.by_turn)
            xs, ys = [left.by_turn[turn] for turn in turns], [right.by_turn[turn] for turn in turns]
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
