"""The rules of a game of choices as data: who chooses what, how often, who sees it, and what binds before it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.records import Label, Line, Name, Record
from sotopia_env.outcomes.amounts import Amount, Value, json_number
from sotopia_env.outcomes.valuation import exact_decimal

MOST_ROUNDS = 200
MOST_OPTIONS = 200


class Amounts(Record):
    """Options that are numbers: ``low``, ``low + step``, … up to ``high``."""

    low: Amount
    high: Amount
    step: Amount = Decimal(1)
    unit: Annotated[Line, Field(max_length=20)] = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.step <= 0 or self.low >= self.high or (self.high - self.low) % self.step:
            expected = "low < high, a whole number of positive steps apart"
            raise InvalidValueError(field="high", expected=expected, got=self.high)
        if (self.high - self.low) / self.step >= MOST_OPTIONS:
            raise InvalidValueError(field="step", expected=f"at most {MOST_OPTIONS} amounts", got=self.step)
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """The amounts as options."""
        count = int((self.high - self.low) / self.step) + 1
        return tuple(str(json_number(self.low + index * self.step)) for index in range(count))


class Mediator(Record):
    """A rule to which seats may delegate a choice (Monderer and Tennenholtz 2009).

    Attributes:
        name: the option by which a seat delegates.
        together: what the mediator chooses for all if every seat has delegated.
        otherwise: what it chooses for those who have if some have not.
    """

    name: Label = "delegate"
    together: Label
    otherwise: Label


class Stock(Record):
    """A stock from which all take (or a pot into which all give) from round to round.

    Requests that exceed the stock are cut in proportion. What is left grows by the factor ``growth`` up to
    ``capacity``; if less than ``collapse`` is left, there is nothing more in any later round. GovSim's fishery: start
    and capacity 100, growth 2, collapse 5.

    Attributes:
        goal: the level after the last round from which on every seat gets ``prize``; ``None`` without a prize.
    """

    start: Annotated[Value, Field(ge=0)]
    flow: Literal["take", "give"] = "take"
    growth: Annotated[Value, Field(ge=0, le=100)] = 1.0
    capacity: Annotated[Value, Field(gt=0)] | None = None
    collapse: Annotated[Value, Field(ge=0)] = 0.0
    goal: Value | None = None
    prize: Value = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.capacity is not None and self.capacity < self.start:
            raise InvalidValueError(field="capacity", expected=f"at least start ({self.start:g})", got=self.capacity)
        if self.flow == "take" and self.start <= self.collapse:
            raise InvalidValueError(field="start", expected=f"more than collapse ({self.collapse:g})", got=self.start)
        return self

    def after(self, level: Fraction, total: Fraction) -> Fraction:
        """Returns the level of the next round after ``total`` was taken from (or given to) a level."""
        left = level + total if self.flow == "give" else level - total
        if self.flow == "take" and left < exact_decimal(self.collapse):
            return Fraction(0)
        grown = left * Fraction(exact_decimal(self.growth))
        return grown if self.capacity is None else min(grown, Fraction(exact_decimal(self.capacity)))

    def received(self, level: Fraction, requests: Sequence[Fraction]) -> list[Fraction]:
        """Returns what each seat gets of its request, or gives."""
        total = sum(requests, Fraction(0))
        if self.flow == "give" or total <= level:
            return list(requests)
        return [request * level / total for request in requests]


class RandomEnding(Record):
    """A random end: after each round, the game goes on with a fixed probability.

    Attributes:
        continues: the probability, which every seat reads.
        draw: the number that fixes the last round of this task; ``None`` for whoever may not know it, as all seats.
    """

    continues: Annotated[Value, Field(gt=0, lt=1)]
    draw: int | None = Field(default=0, ge=0)

    def length(self, most: int) -> int:
        """Returns the number of rounds, which is at least 1 and at most ``most``."""
        chances, number = random.Random(f"ending {self.draw}"), 1
        while number < most and (self.draw is None or chances.random() < self.continues):
            number += 1
        return number


class ChoicesRules(Record):
    """A game in which seats choose, in each round at the same time unless ``stages`` orders them.

    Attributes:
        options: what every seat can choose.
        amounts: options that are numbers, in place of ``options``.
        own_options: agent id to the options of a seat that has others.
        rounds: the number of rounds, or the highest with a random ending.
        ending: a random ending; ``None`` for a fixed number of rounds.
        talks: the turns that a seat takes in each round before it may choose.
        stages: the seats that choose together, stage after stage of each round; later stages see the earlier ones.
            Empty: all together.
        history: what is shown of past rounds: who chose what (``partners``), how many chose what (``strangers``), or
            the seat's own choices and payoffs alone (``none``).
        records: agent id to its choices in earlier games, which everybody reads: its reputation.
        payoffs: whether every seat reads the payoffs of all (``open``) or of its own alone (``own``).
        contract: whether the seats can agree, before anybody has chosen in a round, on a choice for each of them,
            which then stands for all rounds that are left.
        mediator: a rule to which a choice may be delegated.
        absent: what is chosen for a seat that has left; without it, leaving ends the game.
        stock: a stock or pot that lasts from round to round.
        variant: see :class:`~sotopia_env.outcomes.specification.ProtocolRules`.
    """

    kind: Literal["choices"] = "choices"
    options: tuple[Label, ...] = ()
    amounts: Amounts | None = None
    own_options: dict[Name, tuple[Label, ...]] = Field(default_factory=dict)
    rounds: int = Field(default=1, ge=1, le=MOST_ROUNDS)
    # Left out where it is not set, so that tasks of earlier versions keep their hashes.
    ending: RandomEnding | None = Field(default=None, exclude_if=lambda value: value is None)
    talks: int = Field(default=0, ge=0, le=50)
    stages: tuple[tuple[Name, ...], ...] = ()
    history: Literal["partners", "strangers", "none"] = "partners"
    records: dict[Name, tuple[Label, ...]] = Field(default_factory=dict)
    payoffs: Literal["open", "own"] = "open"
    contract: bool = False
    mediator: Mediator | None = None
    absent: str = ""
    stock: Stock | None = None
    variant: Annotated[str, Field(max_length=100)] = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.options and self.amounts is not None:
            raise InvalidValueError(field="options", expected="either 'options' or 'amounts'")
        owned = {f"own_options.{agent}": own for agent, own in self.own_options.items()}
        if self.shared or not owned:
            owned["options"] = self.shared
        for field, options in owned.items():
            if len(set(options)) < max(2, len(options)) or len(options) > MOST_OPTIONS:
                raise InvalidValueError(field=field, expected=f"2 to {MOST_OPTIONS} different options", got=options)
        if self.stock is not None:
            self._check_stock(self.stock)
        for field, option in self._required():
            if strange := [own for own in owned.values() if option not in own]:
                raise InvalidValueError(field=field, got=option, valid=strange[0])
        return self

    def _check_stock(self, stock: Stock) -> None:
        if self.ending is not None:
            hint = "leave out 'ending'"
            raise InvalidValueError(field="ending", expected="a fixed number of rounds with a stock", hint=hint)
        if self.amounts is None or self.own_options:
            raise InvalidValueError(field="stock", expected="'amounts' as what all seats choose")
        if self.amounts.low < 0:
            raise InvalidValueError(
                field="amounts.low", expected="at least 0 where there is a stock", got=self.amounts.low
            )
        if stock.flow == "take" and stock.growth <= 1 and self.rounds > 1:
            raise InvalidValueError(
                "the stock cannot regrow",
                field="stock.growth",
                expected="more than 1",
                got=stock.growth,
                hint="raise it, or play one round",
            )

    def _required(self) -> Iterator[tuple[str, str]]:
        """Fields that name an option which every seat must have."""
        if self.mediator is not None:
            yield "mediator.together", self.mediator.together
            yield "mediator.otherwise", self.mediator.otherwise
        if self.absent:
            yield "absent", self.absent

    @property
    def shared(self) -> tuple[str, ...]:
        """The options of every seat that has none of its own."""
        return self.options if self.amounts is None else self.amounts.options

    @property
    def length(self) -> int:
        """The number of rounds that are played if nobody leaves."""
        return self.rounds if self.ending is None else self.ending.length(self.rounds)

    @property
    def public(self) -> Self:
        """The rules as every seat knows them: without the last round of a random ending."""
        if self.ending is None:
            return self
        return self.model_copy(update={"ending": self.ending.model_copy(update={"draw": None})})

    def options_of(self, agent: str) -> tuple[str, ...]:
        """Returns the options of a seat, without that of delegating."""
        return self.own_options.get(agent, self.shared)

    def menu_of(self, agent: str) -> tuple[str, ...]:
        """Returns the options of a seat, with that of delegating."""
        return (*self.options_of(agent), *([self.mediator.name] if self.mediator else []))

    def check_seats(self, agents: Sequence[str]) -> None:
        """Raises InvalidValueError unless the rules are for a game of these seats."""
        if not 2 <= len(agents) <= 8:
            raise InvalidValueError(field="worth", expected="2 to 8 seats in a game of choices", got=len(agents))
        if unset := [agent for agent in agents if not self.options_of(agent)]:
            hint = "add 'options' for all, or own_options for this one"
            raise InvalidValueError(
                "a seat has nothing to choose", field="protocol.own_options", got=unset[0], hint=hint
            )
        named = [agent for stage in self.stages for agent in stage]
        for field, names in (("own_options", self.own_options), ("records", self.records), ("stages", named)):
            if strange := [name for name in names if name not in agents]:
                raise InvalidValueError(field=f"protocol.{field}", got=strange[0], valid=agents)
        if twice := [agent for agent in agents if named.count(agent) > 1]:
            hint = "a seat chooses once a round: leave it out of one stage"
            raise InvalidValueError("a seat is in two stages", field="protocol.stages", got=twice[0], hint=hint)
        if missing := [agent for agent in agents if named and agent not in named]:
            raise InvalidValueError("a seat never chooses", field="protocol.stages", got=missing[0], hint="add it")
        for agent, past in self.records.items():
            if strange := [option for option in past if option not in self.options_of(agent)]:
                field, valid = f"protocol.records.{agent}", self.options_of(agent)
                raise InvalidValueError(field=field, got=strange[0], valid=valid)

    def played(self, profile: Sequence[str]) -> tuple[str, ...]:
        """Returns what counts after all have chosen: the mediator's choices in place of delegations."""
        rule = self.mediator
        if rule is None:
            return tuple(profile)
        choice = rule.together if all(option == rule.name for option in profile) else rule.otherwise
        return tuple([choice if option == rule.name else option for option in profile])
