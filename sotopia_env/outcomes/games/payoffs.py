"""Payoffs of one round of a game of choices, to one seat: by table, by counts of the others, or by amounts.

A payoff is the seat's for what every seat chose; a game of several rounds adds them up. ``no_choice`` is what a round
pays in which not every seat has chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Literal

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.records import Name
from sotopia_env.outcomes.amounts import Value, decimals
from sotopia_env.outcomes.space import OutcomeSpace
from sotopia_env.outcomes.valuation import Valuation, WorthForm, common_scale, exact_decimal, scaled

amount_of = cache(Fraction)
"""The exact number of an option that is an amount."""
Profile = Sequence[str]
"""The option of every seat, in seat order."""


class _Payoffs(dict[tuple[str, ...], int]):
    """The payoffs of one seat by profile, in parts of the scale; each is computed when it is first read."""

    def __init__(self, worth: GameWorth, seat: int, scale: int) -> None:
        super().__init__()
        self._worth, self._seat, self._scale = worth, seat, scale

    def __missing__(self, profile: tuple[str, ...]) -> int:
        value = self[profile] = int(self._worth.gain(self._seat, profile) * self._scale)
        return value


class GameWorth(WorthForm):
    """The base of the payoffs of a round."""

    no_choice: Value = 0.0

    @property
    def disagreement(self) -> float:
        """The payoff of a round in which not every seat has chosen."""
        return self.no_choice

    def gain(self, seat: int, profile: Profile) -> Fraction:
        """Returns the payoff to ``seat`` of what all seats chose."""
        raise NotImplementedError

    def numbers(self) -> list[float]:
        """Returns every number of the payoffs."""
        raise NotImplementedError

    def problem(self, seat: int, options: Sequence[Profile]) -> InvalidValueError | None:
        """Returns why this is not the worth of ``seat`` in a game with these options per seat; ``None`` if it is."""
        raise NotImplementedError

    def _digits(self, space: OutcomeSpace) -> int:
        return 0

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        if agent not in space.names:
            raise InvalidValueError(field="agent", valid=space.names, got=agent)
        scale = common_scale([self.no_choice, self.per_turn, *self.numbers()], self._digits(space))
        return Valuation(
            scale=scale,
            constant=0,
            disagreement=scaled(self.no_choice, scale),
            per_turn=scaled(self.per_turn, scale),
            table=_Payoffs(self, list(space.names).index(str(agent)), scale),
        )


class PayoffsWorth(GameWorth):
    """A payoff for each own option and each option of every other seat, in seat order.

    ``{"silent": {"silent": -1, "talk": -3}, "talk": {"silent": 0, "talk": -2}}`` for two seats; for three the values of
    the inner table are tables again.
    """

    payoffs: dict[Name, Any] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> PayoffsWorth:
        for path, value in _leaves(self.payoffs):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e12:
                raise InvalidValueError(field=".".join(("payoffs", *path)), expected="a number", got=value)
        return self

    def gain(self, seat: int, profile: Profile) -> Fraction:
        """See :meth:`GameWorth.gain`."""
        value: Any = self.payoffs[profile[seat]]
        for other, option in enumerate(profile):
            value = value if other == seat else value[option]
        return Fraction(exact_decimal(value))

    def numbers(self) -> list[float]:
        """See :meth:`GameWorth.numbers`."""
        return [float(value) for _, value in _leaves(self.payoffs)]

    def problem(self, seat: int, options: Sequence[Profile]) -> InvalidValueError | None:
        """The first hole of the table, or the first option that no seat has."""
        others = [own for number, own in enumerate(options) if number != seat]
        return _hole(self.payoffs, (options[seat], *others), "payoffs")


def _leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def _hole(table: Any, options: Sequence[Profile], field: str) -> InvalidValueError | None:
    if not options:
        return InvalidValueError("a table where a number is due", field=field) if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping):
        expected = f"a payoff for each of {', '.join(options[0])}"
        return InvalidValueError(field=field, expected=expected, got=table)
    if strange := [key for key in table if key not in options[0]]:
        return InvalidValueError("an option that the seat does not have", field=field, got=strange[0], valid=options[0])
    if missing := [option for option in options[0] if option not in table]:
        problem = f"the table has a hole: no payoff for {missing[0]!r}"
        return InvalidValueError(problem, field=field, hint="add it; every combination of choices needs one")
    holes = (_hole(table[option], options[1:], f"{field}.{option}") for option in options[0])
    return next((hole for hole in holes if hole is not None), None)


class CountsWorth(GameWorth):
    """A payoff for each own option and each number of *other* seats that choose the option ``of``, from 0 upwards.

    The others are counted, not all: a table by the number of all who co-operate would be another game, in which the
    last co-operator and the last but one are the same.
    """

    of: Name
    counts: dict[Name, tuple[Value, ...]] = Field(min_length=1)

    def gain(self, seat: int, profile: Profile) -> Fraction:
        """See :meth:`GameWorth.gain`."""
        others = sum(option == self.of for other, option in enumerate(profile) if other != seat)
        return Fraction(exact_decimal(self.counts[profile[seat]][others]))

    def numbers(self) -> list[float]:
        """See :meth:`GameWorth.numbers`."""
        return [value for row in self.counts.values() for value in row]

    def problem(self, seat: int, options: Sequence[Profile]) -> InvalidValueError | None:
        """The first hole of the table, a count too many, or an option that the seat does not have."""
        if self.of not in options[seat]:
            return InvalidValueError(field="of", got=self.of, valid=options[seat])
        names = dict.fromkeys(self.counts, "")
        if hole := _hole(names, (options[seat],), "counts"):
            return hole
        for option, row in self.counts.items():
            if len(row) != len(options):
                expected = f"{len(options)} payoffs, for 0 to {len(options) - 1} other seats that choose {self.of!r}"
                hint = "the seat itself is not counted"
                return InvalidValueError(field=f"counts.{option}", expected=expected, got=len(row), hint=hint)
        return None


Feature = Literal["own", "others", "total", "lowest", "highest", "below", "above"]


class AmountsWorth(GameWorth):
    """A payoff that is linear in the amounts that the seats choose: ``constant`` plus a number per unit of a feature.

    Features: the seat's ``own`` amount, the sum of the ``others``, the ``total``, the ``lowest`` and ``highest`` amount
    of all, and 1 if the own amount is ``below`` or ``above`` the amount of every other seat. Public goods:
    ``{"constant": 20, "per": {"own": -1, "total": 0.4}}``.
    """

    constant: Value = 0.0
    per: dict[Feature, Value] = Field(min_length=1)

    def gain(self, seat: int, profile: Profile) -> Fraction:
        """See :meth:`GameWorth.gain`."""
        return self.gain_of(seat, [amount_of(option) for option in profile])

    def gain_of(self, seat: int, amounts: Sequence[Fraction]) -> Fraction:
        """Returns the payoff to ``seat`` of the amounts of all seats."""
        own, total = amounts[seat], sum(amounts, Fraction(0))
        others = [amount for other, amount in enumerate(amounts) if other != seat]
        features: Mapping[Feature, Fraction] = {
            "own": own,
            "others": total - own,
            "total": total,
            "lowest": min(amounts),
            "highest": max(amounts),
            "below": Fraction(own < min(others)),
            "above": Fraction(own > max(others)),
        }
        parts = (Fraction(exact_decimal(value)) * features[name] for name, value in self.per.items())
        return sum(parts, Fraction(exact_decimal(self.constant)))

    def numbers(self) -> list[float]:
        """See :meth:`GameWorth.numbers`."""
        return [self.constant, *self.per.values()]

    def problem(self, seat: int, options: Sequence[Profile]) -> InvalidValueError | None:
        """The first option that is not an amount."""
        for option in options[seat]:
            try:
                Fraction(option)
            except ValueError:
                hint = "declare 'amounts' in place of 'options', or use 'payoffs'"
                return InvalidValueError(field="per", expected="options that are amounts", got=option, hint=hint)
        return None

    def _digits(self, space: OutcomeSpace) -> int:
        return decimals(*(Decimal(str(option)) for issue in space.issues for option in issue.values(space.names)))
