"""Worths: each seat's utility over the outcomes, in five forms, and the forms of games beside them.

:mod:`~sotopia_env.outcomes.valuation` has their exact arithmetic, :mod:`~sotopia_env.outcomes.games.payoffs` the forms
of games. A worth needs a space, never the specification.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.records import Name, Record
from sotopia_env.outcomes.amounts import Value, count_text, decimals
from sotopia_env.outcomes.games.payoffs import AmountsWorth, CountsWorth, PayoffsWorth
from sotopia_env.outcomes.issues import NumberIssue
from sotopia_env.outcomes.space import OPTION, OutcomeSpace, Terms
from sotopia_env.outcomes.valuation import Valuation, WorthForm, common_scale, exact_decimal, scaled

MOST_RANKED = 100_000
"""The number of outcomes above which :func:`own_outcomes` uses a coarser grid of the numbers."""


class AdditiveWorth(WorthForm):
    """A sum over issues: ``{"per_unit": x}`` for a number, a table of options, ``{"each": x}`` per own piece of items.

    ``constant`` is paid with an agreement only; without one the seat gets ``no_agreement``.
    """

    constant: Value = 0.0
    issues: dict[Name, dict[Name, Value]]
    no_agreement: Value = 0.0

    @property
    def disagreement(self) -> float:
        """The seat's payoff without an agreement."""
        return self.no_agreement

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        digits = max((issue.decimals for issue in space.issues if isinstance(issue, NumberIssue)), default=0)
        amounts = [gain for part in self.issues.values() for gain in part.values()]
        scale = common_scale([self.constant, self.no_agreement, self.per_turn, *amounts], digits)
        numbers, choices, items = [], [], []
        for issue in space.issues:
            gains = {key: scaled(gain, scale) for key, gain in self.issues[issue.name].items()}
            if issue.kind == "number":
                # ``digits`` in the scale leave room for this division, so it is exact.
                numbers.append((issue.name, gains["per_unit"] // 10**issue.decimals, 10**issue.decimals))
            elif issue.kind == "choice":
                choices.append((issue.name, gains))
            else:
                if agent not in space.names:
                    raise InvalidValueError(field="agent", valid=space.names, got=agent)
                items.append((issue.name, gains["each"]))
        return Valuation(
            scale=scale,
            constant=scaled(self.constant, scale),
            disagreement=scaled(self.no_agreement, scale),
            per_turn=scaled(self.per_turn, scale),
            agent=agent,
            numbers=tuple(numbers),
            choices=tuple(choices),
            items=tuple(items),
        )


class TableEntry(Record):
    """The value of one outcome."""

    terms: dict[Name, Any]
    value: Value


class TableWorth(WorthForm):
    """A value for every outcome of a small space, each exactly once."""

    table: tuple[TableEntry, ...] = Field(min_length=1)
    no_agreement: Value = 0.0

    @property
    def disagreement(self) -> float:
        """The seat's payoff without an agreement."""
        return self.no_agreement

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        scale = common_scale([self.no_agreement, self.per_turn, *(entry.value for entry in self.table)])
        table = {space.key(space.normalise(entry.terms)): scaled(entry.value, scale) for entry in self.table}
        return Valuation(
            scale=scale,
            constant=0,
            disagreement=scaled(self.no_agreement, scale),
            per_turn=scaled(self.per_turn, scale),
            table=table,
        )


class BallotWorth(WorthForm):
    """A value for each option of a ballot, and one for no decision."""

    options: dict[Name, Value]
    no_decision: Value = 0.0

    @property
    def disagreement(self) -> float:
        """The seat's payoff without a decision."""
        return self.no_decision

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        scale = common_scale([self.no_decision, self.per_turn, *self.options.values()])
        return Valuation(
            scale=scale,
            constant=0,
            disagreement=scaled(self.no_decision, scale),
            per_turn=scaled(self.per_turn, scale),
            choices=((OPTION, {option: scaled(value, scale) for option, value in self.options.items()}),),
        )


class FactsWorth(WorthForm):
    """The worth of a ballot's options as far as it depends on facts, so that a seat may read it and not know it.

    ``facts`` holds, by variable and by value of the variable, what an option gains: ``{"role of Ana": {"mafioso":
    {"Ana": 1}}}`` pays 1 for the option Ana if the role of Ana is mafioso. Gains are added; those left out are 0.
    """

    facts: dict[Name, dict[Name, dict[Name, Value]]]
    no_decision: Value = 0.0

    @property
    def disagreement(self) -> float:
        """The seat's payoff without a decision."""
        return self.no_decision

    def gains(self, option: str, beliefs: Mapping[str, Mapping[str, float]]) -> float:
        """Returns the expected worth of an option, given the probability of every value by variable."""
        return sum(
            beliefs[name].get(value, 0.0) * by_option.get(option, 0.0)
            for name, by_value in self.facts.items()
            for value, by_option in by_value.items()
        )

    def most(self, option: str) -> float:
        """Returns the worth of an option if every value were the best for it; values that are left out gain 0."""
        return sum(
            max([0.0, *(by_option.get(option, 0.0) for by_option in by_value.values())])
            for by_value in self.facts.values()
        )

    def resolved(self, options: Sequence[str], truth: Mapping[str, str]) -> BallotWorth:
        """Returns the worth of every option, given the true values by variable; for evaluators only."""
        # Decimals, so that gains add up without rounding.
        chosen = [by_value.get(truth[name], {}) for name, by_value in self.facts.items()]
        gains = {
            option: sum((exact_decimal(by_option.get(option, 0.0)) for by_option in chosen), Decimal(0))
            for option in options
        }
        worths = {option: float(gain) for option, gain in gains.items()}
        return BallotWorth(per_turn=self.per_turn, options=worths, no_decision=self.no_decision)

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        # For policies that know nothing of facts: every value that is listed counts as equally likely.
        options = [str(option) for option in space.issues[0].values(space.names)]
        unit = math.lcm(*(len(by_value) or 1 for by_value in self.facts.values()))
        gains = dict.fromkeys(options, Decimal(0))
        for by_value in self.facts.values():
            for by_option in by_value.values():
                for option, gain in by_option.items():
                    gains[option] += exact_decimal(gain) * (unit // len(by_value))
        scale = 10 ** decimals(*gains.values(), exact_decimal(self.no_decision), exact_decimal(self.per_turn))
        return Valuation(
            scale=scale * unit,
            constant=0,
            disagreement=scaled(self.no_decision, scale * unit),
            per_turn=scaled(self.per_turn, scale * unit),
            choices=((OPTION, {option: int(gain * scale) for option, gain in gains.items()}),),
        )


class ClaimsWorth(WorthForm):
    """``right`` if enough seats are right, else ``none``; ``wrong`` (0 or less) is added for each own wrong claim."""

    right: Value
    wrong: Annotated[Value, Field(le=0)] = 0.0
    none: Value = 0.0

    @property
    def disagreement(self) -> float:
        """The seat's payoff if the answer was not claimed."""
        return self.none

    def _valuation(self, space: OutcomeSpace, agent: str | None) -> Valuation:
        scale = common_scale([self.right, self.wrong, self.none, self.per_turn])
        right, none, per_turn = (scaled(number, scale) for number in (self.right, self.none, self.per_turn))
        # The protocol, which counts wrong claims, charges for them.
        return Valuation(scale=scale, constant=right, disagreement=none, per_turn=per_turn)


FORMS = {
    "table": "table",
    "options": "ballot",
    "facts": "facts",
    "right": "claims",
    "issues": "additive",
    "payoffs": "payoffs",
    "counts": "counts",
    "per": "amounts",
}


def _form(value: Any) -> str | None:
    keys = value if isinstance(value, dict) else getattr(type(value), "model_fields", ())
    return next((form for key, form in FORMS.items() if key in keys), None)


Worth = Annotated[
    Annotated[AdditiveWorth, Tag("additive")]
    | Annotated[TableWorth, Tag("table")]
    | Annotated[BallotWorth, Tag("ballot")]
    | Annotated[FactsWorth, Tag("facts")]
    | Annotated[ClaimsWorth, Tag("claims")]
    | Annotated[PayoffsWorth, Tag("payoffs")]
    | Annotated[CountsWorth, Tag("counts")]
    | Annotated[AmountsWorth, Tag("amounts")],
    Discriminator(
        _form,
        custom_error_type="worth_form",
        custom_error_message="expected 'issues' or 'table' (agreement), 'options' or 'facts' (ballot), 'right' "
        "(claims), or 'payoffs', 'counts' or 'per' (choices)",
    ),
]


def own_outcomes(space: OutcomeSpace, worth: WorthForm, agent: str | None = None) -> list[tuple[Terms, float]]:
    """Returns outcomes with their worth to one seat, best first; equally good ones in the order of the space.

    All outcomes, if there are at most 10⁵. In a larger space, number issues get a coarser grid: the issue with the most
    values keeps every second value and its highest one, repeatedly, until at most 10⁵ outcomes are left.

    Raises:
        InvalidValueError: there are too many outcomes even with the coarsest grid, because of choices and divisions.
    """
    values = _thinned(space)
    valuation = worth.valuation(space, agent)
    names = [issue.name for issue in space.issues]
    rows = [dict(zip(names, row, strict=True)) for row in itertools.product(*values)]
    # A stable sort: equally good outcomes keep the order of the space.
    ranked = sorted(((valuation.exact(space, terms), terms) for terms in rows), key=lambda pair: -pair[0])
    return [(terms, exact / valuation.scale) for exact, terms in ranked]


def _thinned(space: OutcomeSpace) -> list[list[Any]]:
    seats = len(space.names)
    sizes = [issue.size(seats) for issue in space.issues]
    strides = [1] * len(sizes)
    # Doubling the stride of the finest number keeps the grids of several numbers about equally fine.
    while _product(sizes, strides) > MOST_RANKED:
        numbers = [
            i for i, issue in enumerate(space.issues) if issue.kind == "number" and _points(sizes[i], strides[i]) > 2
        ]
        if not numbers:
            raise InvalidValueError(
                field="space", expected=f"at most {MOST_RANKED} outcomes to rank", got=Verbatim(count_text(space.size))
            )
        strides[max(numbers, key=lambda i: _points(sizes[i], strides[i]))] *= 2
    grids: list[list[Any]] = []
    for issue, size, stride in zip(space.issues, sizes, strides, strict=True):
        if isinstance(issue, NumberIssue):
            # The highest value stays, even where the stride would skip it.
            indexes = [*range(0, size - 1, stride), size - 1]
            grids.append([issue.value_at(index) for index in indexes])
        else:
            grids.append(list(issue.values(space.names)))
    return grids


def _points(size: int, stride: int) -> int:
    return len(range(0, size - 1, stride)) + 1


def _product(sizes: list[int], strides: list[int]) -> int:
    total = 1
    for size, stride in zip(sizes, strides, strict=True):
        total *= _points(size, stride)
    return total
