"""Agreement of attributors on what was important (SOTOPIA-RL, §1: Spearman above 0.7 between language models)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sotopia_env.reports import spearman
from training.attribution.credits import Importance


@dataclass(frozen=True, slots=True)
class AttributorAgreement:
    """Two attributors on one dimension, over the seats of episodes that both attributed.

    Attributes:
        dimension: of the scores.
        first: an attributor.
        second: another one.
        seats: seats of episodes that both attributed.
        turns: turns of these seats.
        missing: seats that only one of them attributed.
        spearman: rank correlation of A over all turns, in [-1, 1]; ``None`` where one of them says the same of all.
        within: mean of the rank correlations inside the single seats, so that differences between episodes count for
            nothing; ``None`` where there is none.
        ranked: seats that ``within`` is the mean of: those in which neither says the same of all turns.
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
        """The row as JSON."""
        return asdict(self)


@dataclass(slots=True)
class _Pair:
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    seats: int = 0
    missing: int = 0
    within: list[float] = field(default_factory=list)


class AgreementTable:
    """Takes the attributions of seats, one after the other, and compares every two attributors of a dimension."""

    def __init__(self, attributors: Sequence[str]) -> None:
        """Compares these, in this order."""
        self._attributors = tuple(attributors)
        self._pairs: dict[tuple[str, str, str], _Pair] = {}

    def add(self, dimension: str, importance: Mapping[str, Importance | None]) -> None:
        """Takes one seat's attributions of a dimension.

        Args:
            dimension: of the score.
            importance: by attributor; ``None`` where it is missing, and no entry where the attributor has nothing to
                say about such episodes.
        """
        names = [name for name in self._attributors if name in importance]
        for first, second in itertools.combinations(names, 2):
            pair = self._pairs.setdefault((dimension, first, second), _Pair())
            one, other = importance[first], importance[second]
            if one is None or other is None:
                pair.missing += (one is None) != (other is None)
                continue
            turns = sorted(one.by_turn)
            xs, ys = [one.by_turn[turn] for turn in turns], [other.by_turn[turn] for turn in turns]
            pair.first += xs
            pair.second += ys
            pair.seats += 1
            inside = spearman(xs, ys)
            if inside is not None:
                pair.within.append(inside.value)

    def rows(self) -> tuple[AttributorAgreement, ...]:
        """Returns the table so far."""
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
