"""The three kinds of issue: a number on a grid, a choice among options, items to be divided over the seats.

Each class converts a value to its normal form, counts and lists its values, and formats a value as text.
"""

from __future__ import annotations

import itertools
import math
import random
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, Verbatim, excerpt
from sotopia_env.foundation.records import Label, Line, Record, not_structural
from sotopia_env.outcomes.amounts import Amount, decimals, fold, json_number, money_text, read_amount
from sotopia_env.outcomes.move import InvalidMoveError

Seats = Mapping[str, str]
"""Agent id to the name of its character, in seat order."""

# A decimal of this many digits survives the way to a float and back.
_DIGITS = 15
_EXACT = 10.0**_DIGITS


class NumberIssue(Record):
    """A number on a grid: ``low``, ``low + step``, … up to ``high``, in ``unit``; exact, never a rounded float.

    Its normal form is an int where the value is whole, else the float nearest to the decimal.
    """

    name: Label
    kind: Literal["number"] = "number"
    low: Amount
    high: Amount
    step: Amount = Decimal(1)
    unit: Annotated[Line, Field(max_length=20), AfterValidator(not_structural)] = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.step <= 0:
            raise InvalidValueError(field="step", expected="a positive number", got=self.step)
        if self.low > self.high:
            raise InvalidValueError(field="low", expected=f"at most high ({self.high})", got=self.low)
        if self.decimals > _DIGITS or max(abs(self.low), abs(self.high)).scaleb(self.decimals) >= 10**_DIGITS:
            raise InvalidValueError(field="low, high, step", expected=f"numbers of at most {_DIGITS} digits")
        # Fractions, because Decimal rounds to the digits of its context.
        if (Fraction(self.high) - Fraction(self.low)) % Fraction(self.step):
            near = self.nearest(self.high)
            raise InvalidValueError(
                field="high", expected="low plus a whole number of steps", got=self.high, nearest=Verbatim(near)
            )
        return self

    @cached_property
    def decimals(self) -> int:
        """Digits after the point that the grid needs."""
        return decimals(self.low, self.high, self.step)

    @cached_property
    def _grid(self) -> tuple[int, int, int]:
        """Low, high and step in units of the last decimal."""
        return tuple(int(number.scaleb(self.decimals)) for number in (self.low, self.high, self.step))  # type: ignore[return-value]

    def size(self, seats: int) -> int:
        """The number of values."""
        low, high, step = self._grid
        return (high - low) // step + 1

    def value_at(self, index: int) -> int | float:
        """The value ``index`` steps above ``low``."""
        low, _, step = self._grid
        return self._of_units(low + index * step)

    def _of_units(self, units: int) -> int | float:
        return units if not self.decimals else json_number(Decimal(units).scaleb(-self.decimals))

    def units(self, value: int | float) -> int:
        """A value of the grid in units of its last decimal, as an exact whole number."""
        return round(value * 10**self.decimals) if self.decimals else int(value)

    def values(self, seats: Seats) -> Iterator[int | float]:
        """Every value, ascending."""
        return (self.value_at(index) for index in range(self.size(len(seats))))

    def draw(self, seats: Seats, rng: random.Random) -> int | float:
        """A random value."""
        return self.value_at(rng.randrange(self.size(len(seats))))

    def nearest(self, amount: Decimal) -> int | float:
        """The value of the grid nearest to ``amount``."""
        if amount <= self.low or amount >= self.high:
            # ``high`` may be off the grid here: the record's check asks for the nearest value to name it.
            limit = Decimal(self._grid[0] if amount <= self.low else self._top()).scaleb(-self.decimals)
            return json_number(limit)
        return self.value_at(round((Fraction(amount) - Fraction(self.low)) / Fraction(self.step)))

    def _top(self) -> int:
        low, high, step = self._grid
        return low + (high - low) // step * step

    def read(self, value: object, seats: Seats) -> int | float:
        """Returns the normal form of ``value``.

        Raises:
            InvalidMoveError: ``value`` is not a number on the grid; the message names the nearest valid value.
        """
        # What policies send is nearly always in the grid already, as a number: no decimal needs to be built for it.
        inverse, units = self._in_units
        if type(value) is int and (value if inverse == 1 else value * inverse) in units:
            return value
        if type(value) is float and -_EXACT < value < _EXACT:
            count = round(value * inverse)
            # The first test holds only for the float nearest to the decimal.
            if count / inverse == value and count in units:
                return value if count % inverse else count // inverse
        return self._read_amount(value, seats)

    @cached_property
    def _in_units(self) -> tuple[int, range]:
        """The number of last-decimal units in 1, and the values of the grid in these units."""
        low, high, step = self._grid
        return 10**self.decimals, range(low, high + 1, step)

    def _read_amount(self, value: object, seats: Seats) -> int | float:
        amount = read_amount(value, self.unit)
        if amount is None:
            raise InvalidMoveError(field=self.name, expected=self.range_text(), got=value)
        inside = self.low <= amount <= self.high
        if not inside or (Fraction(amount) - Fraction(self.low)) % Fraction(self.step):
            near = Verbatim(self.text(self.nearest(amount), seats))
            raise InvalidMoveError(field=self.name, expected=self.range_text(), got=value, nearest=near)
        return json_number(amount)

    @cached_property
    def _affixes(self) -> tuple[str, str]:
        # Currency signs come before the number ($40), all other units after it (40 days).
        is_currency = all(unicodedata.category(character) == "Sc" for character in self.unit)
        return (self.unit, "") if is_currency else ("", f" {self.unit}")

    def range_text(self) -> str:
        """The grid in words, such as ``a number from $0 to $394 in steps of $1``."""
        return f"a number {self.limits_text()}"

    def limits_text(self) -> str:
        """The grid's limits and step, such as ``from $0 to $394 in steps of $1``."""
        low, high, step = (self.amount_text(number) for number in (self.low, self.high, self.step))
        return f"from {low} to {high} in steps of {step}"

    def text(self, value: Any, seats: Seats) -> str:
        """The value with its unit and the decimals of the grid, such as ``$84.50``."""
        return self.amount_text(value)

    def unit_text(self) -> str:
        """One unit of the number in words: ``$ of price``, ``unit of duration (days)``, ``unit of rank``."""
        if self._affixes[0]:
            return f"{self.unit} of {self.name}"
        return f"unit of {self.name}{f' ({self.unit})' if self.unit else ''}"

    def amount_text(self, value: int | float | Decimal) -> str:
        """Any number in this issue's unit: money as ``$1,250`` or ``$40.50``, another unit after the number."""
        before, after = self._affixes
        size = -value if value < 0 else value
        digits = money_text(size, self.decimals) if before else f"{size:.{self.decimals}f}"
        return f"{'-' if value < 0 else ''}{before}{digits}{after}"


def read_option(value: object, options: Collection[str], field: str) -> str:
    """Returns the option that a text names, as declared; raises InvalidMoveError, with the nearest name, for others."""
    if isinstance(value, str):
        if value in options:
            return value
        # A huge text is cut before it is normalised.
        folded = fold(value[:400])
        for option in options:
            if fold(option) == folded:
                return option
    raise InvalidMoveError(field=field, got=value, valid=options)


class ChoiceIssue(Record):
    """One of several options; an option is read by its name, whatever its case."""

    name: Label
    kind: Literal["choice"] = "choice"
    options: tuple[Label, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct(self.options, "options")
        return self

    def size(self, seats: int) -> int:
        """The number of options."""
        return len(self.options)

    def values(self, seats: Seats) -> Iterator[str]:
        """Every option, as declared."""
        return iter(self.options)

    def draw(self, seats: Seats, rng: random.Random) -> str:
        """A random option."""
        return rng.choice(self.options)

    def read(self, value: object, seats: Seats) -> str:
        """Returns the option as declared; raises InvalidMoveError, with the nearest name, for any other text."""
        return read_option(value, self.options, self.name)

    def text(self, value: Any, seats: Seats) -> str:
        """The option's name."""
        return str(value)


class ItemsIssue(Record):
    """``count`` equal pieces, all of which are divided over the seats; normal form: agent id to pieces, every seat."""

    name: Label
    kind: Literal["items"] = "items"
    count: int = Field(ge=1, le=1_000)

    def size(self, seats: int) -> int:
        """The number of divisions."""
        # Stars and bars: ``seats - 1`` bars separate the shares.
        return math.comb(self.count + seats - 1, seats - 1)

    def values(self, seats: Seats) -> Iterator[dict[str, int]]:
        """Every division, the first seat's share ascending, then the second's."""
        bars = itertools.combinations(range(self.count + len(seats) - 1), len(seats) - 1)
        return (self._division(seats, positions) for positions in bars)

    def draw(self, seats: Seats, rng: random.Random) -> dict[str, int]:
        """A random division; each is equally likely."""
        positions = sorted(rng.sample(range(self.count + len(seats) - 1), len(seats) - 1))
        return self._division(seats, tuple(positions))

    def _division(self, seats: Seats, positions: tuple[int, ...]) -> dict[str, int]:
        # Stars and bars: the pieces between two bars are one seat's share.
        edges = (-1, *positions, self.count + len(seats) - 1)
        return {agent: edges[seat + 1] - edges[seat] - 1 for seat, agent in enumerate(seats)}

    def read(self, value: object, seats: Seats) -> dict[str, int]:
        """Returns the division by agent id; raises InvalidMoveError unless exactly all pieces are allotted.

        A key is read as an agent id, then as a name as written, then as either in any case; a name that fits several
        seats is refused.
        """
        # Terms in normal form, the usual case, are copied and not read again.
        if type(value) is dict and len(value) == len(seats) and self._is_division(value, seats):
            return value.copy()
        if not isinstance(value, Mapping):
            raise InvalidMoveError(field=self.name, expected=self.example(seats), got=value)
        division = dict.fromkeys(seats, 0)
        read: set[str] = set()
        for key, pieces in value.items():
            agent = self._agent(key, seats)
            if agent in read:
                raise InvalidMoveError(f"{excerpt(key)} appears twice in the division", field=self.name)
            read.add(agent)
            division[agent] = self._pieces(key, pieces)
        if (total := sum(division.values())) != self.count:
            raise InvalidMoveError(field=self.name, expected=f"all {self.count} pieces to be allotted", got=total)
        return division

    def _is_division(self, value: dict[Any, Any], seats: Seats) -> bool:
        """Whether ``value`` is in normal form, including the order of the seats."""
        total = 0
        for agent, key in zip(seats, value, strict=True):
            pieces = value[key]
            if key != agent or type(pieces) is not int or pieces < 0:
                return False
            total += pieces
        return total == self.count

    def _agent(self, key: object, seats: Seats) -> str:
        if isinstance(key, str) and key in seats:
            return key
        # A huge key is not normalised in full. Exact names win over those that differ only in case.
        folded = fold(key[:400]) if isinstance(key, str) else ""
        agents = [agent for agent, name in seats.items() if name == key]
        agents = agents or [agent for agent, name in seats.items() if folded in (agent, fold(name))]
        if len(agents) == 1:
            return agents[0]
        if agents:
            ids = ", ".join(agents[:6])
            raise InvalidMoveError(
                f"{excerpt(key)} is the name of several seats", field=self.name, expected=f"one of {ids}"
            )
        raise InvalidMoveError(field=self.name, got=key, valid=seats.values())

    def _pieces(self, key: object, value: object) -> int:
        pieces = read_amount(value)
        if pieces is None or not 0 <= pieces <= self.count or pieces != pieces.to_integral_value():
            near = 0 if pieces is None else min(max(round(min(pieces, Decimal(self.count))), 0), self.count)
            raise InvalidMoveError(
                field=f"{self.name}, {excerpt(key)}",
                expected=f"a whole number from 0 to {self.count}",
                got=value,
                nearest=Verbatim(near),
            )
        return int(pieces)

    def example(self, seats: Seats) -> str:
        """The form of a division, such as ``{"agent_0": …, "agent_1": …}, 3 in all``."""
        agents = ", ".join(f'"{agent}": …' for agent in itertools.islice(seats, 6))
        return f"{{{agents}{', …' if len(seats) > 6 else ''}}}, {self.count} in all"

    def text(self, value: Any, seats: Seats) -> str:
        """The pieces of each seat, such as ``Ana 2, Ben 1``."""
        return ", ".join(f"{seats.get(agent, agent)} {pieces}" for agent, pieces in value.items())


Issue = Annotated[NumberIssue | ChoiceIssue | ItemsIssue, Field(discriminator="kind")]


def check_distinct(names: tuple[str, ...], field: str) -> None:
    """Raises InvalidValueError if two ``names`` of ``field`` are equal after Unicode and case normalisation."""
    first: dict[str, str] = {}
    for name in names:
        # Not by identity: equal texts that are read from one file may be one object.
        earlier, first[fold(name)] = first.get(fold(name)), name
        if earlier is not None:
            problem = f"{excerpt(name)} and {excerpt(earlier)} are the same name"
            raise InvalidValueError(problem, field=field, hint="names must differ in more than case")
