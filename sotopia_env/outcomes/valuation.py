"""The base of all worths, and their exact arithmetic.

A worth is computed in whole numbers (all its numbers scaled by one power of ten) and divided once at the end, so equal
utilities compare as equal and no sum depends on its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from sotopia_env.foundation.records import Record
from sotopia_env.outcomes.amounts import Value, decimals
from sotopia_env.outcomes.space import OutcomeSpace


@dataclass(frozen=True, slots=True)
class Valuation:
    """A worth prepared for one space and one seat, in whole numbers: ``scale`` represents 1.

    Attributes:
        agent: the seat's agent id; ``None`` where no items are divided by pieces.
        numbers: for each number issue, its name, the gain per unit of its last decimal, and that unit's inverse.
        choices: for each choice, its name and the gain of each option.
        items: for each divided issue, its name and the gain per own piece.
        table: outcome key to gain, for a full table.
    """

    scale: int
    constant: int
    disagreement: int
    per_turn: int
    agent: str | None = None
    numbers: tuple[tuple[str, int, int], ...] = ()
    choices: tuple[tuple[str, Mapping[str, int]], ...] = ()
    items: tuple[tuple[str, int], ...] = ()
    table: Mapping[tuple[Any, ...], int] | None = None

    def exact(self, space: OutcomeSpace, terms: Mapping[str, Any]) -> int:
        """The worth of ``terms`` (in normal form) in parts of ``scale``."""
        if self.table is not None:
            return self.table[space.key(terms)]
        total = self.constant
        # Rounding is exact: a value of the grid times ``inverse`` is a whole number but for the float's last bit.
        for name, gain, inverse in self.numbers:
            total += gain * (terms[name] if inverse == 1 else round(terms[name] * inverse))
        for name, gains in self.choices:
            total += gains[terms[name]]
        for name, gain in self.items:
            total += gain * terms[name][self.agent]
        return total

    def part(self, name: str) -> Valuation:
        """The valuation of one issue alone, without the constant; only for additive forms."""
        return Valuation(
            scale=self.scale,
            constant=0,
            disagreement=0,
            per_turn=0,
            agent=self.agent,
            numbers=tuple(number for number in self.numbers if number[0] == name),
            choices=tuple(choice for choice in self.choices if choice[0] == name),
            items=tuple(division for division in self.items if division[0] == name),
        )

    def columns(self, space: OutcomeSpace) -> list[list[int]]:
        """Per issue of the space, the gain of each of its values, in their order; only for additive forms."""
        # Parts of a valuation, so that the arithmetic of gains is in ``exact`` only.
        parts = [(issue, self.part(issue.name)) for issue in space.issues]
        return [
            [part.exact(space, {issue.name: value}) for value in issue.values(space.names)] for issue, part in parts
        ]


class WorthForm(Record):
    """The base class of all forms of worth.

    ``per_turn`` is the cost of each turn taken before the settlement or, without one, in the whole episode: a seat
    that lets time pass pays for it whether it agrees or not.
    """

    per_turn: Annotated[Value, Field(ge=0)] = 0.0

    def value(self, space: OutcomeSpace, terms: Mapping[str, Any], agent: str | None = None) -> float:
        """The worth of ``terms`` in normal form.

        Args:
            space: the outcome space.
            terms: an outcome in normal form.
            agent: the seat whose worth this is; needed where items are divided.
        """
        valuation = self.valuation(space, agent)
        return valuation.exact(space, terms) / valuation.scale

    @property
    def disagreement(self) -> float:
        """The seat's payoff without an outcome."""
        raise NotImplementedError

    @cached_property
    def _ready(self) -> dict[str | None, tuple[OutcomeSpace, Valuation]]:
        return {}

    def valuation(self, space: OutcomeSpace, agent: str | None = None) -> Valuation:
        """Returns the worth prepared for ``space`` and ``agent``; computed once."""
        # By identity: a task builds its space once, and comparing issues would cost more than it saves.
        ready = self._ready.get(agent)
        if ready is None or ready[0] is not space:
            ready = self._ready[agent] = (space, self._valuation(space, agent))
        return ready[1]

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        raise NotImplementedError


def exact_decimal(number: float) -> Decimal:
    """Returns the decimal that a float of a record was written as."""
    return Decimal(repr(float(number)))


def common_scale(numbers: list[float], digits: int = 0) -> int:
    """Returns the power of ten that makes all ``numbers`` whole, and ``digits`` decimals more."""
    return int(10 ** (decimals(*map(exact_decimal, numbers)) + digits))


def scaled(number: float, scale: int) -> int:
    """Returns ``number`` in parts of a scale that has at least its decimals."""
    numerator, denominator = exact_decimal(number).as_integer_ratio()
    # Exact, because the scale has at least as many decimals as the number.
    return numerator * scale // denominator
