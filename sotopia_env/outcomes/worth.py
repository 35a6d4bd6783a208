"""Worths: each seat's utility over the outcomes, in five forms, and the forms of games beside them.

:mod:`~sotopia_env.outcomes.valuation` has their exact arithmetic, :mod:`~sotopia_env.outcomes.games.payoffs` the forms
of games. A worth needs a space, never the specification.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.records import Name, Record
from sotopia_env.outcomes.amounts import Value, decimals
from sotopia_env.outcomes.games.payoffs import AmountsWorth, CountsWorth, PayoffsWorth
from sotopia_env.outcomes.issues import ItemsIssue, NumberIssue
from sotopia_env.outcomes.space import OPTION, OutcomeSpace
from sotopia_env.outcomes.valuation import Valuation, WorthForm, common_scale, exact_decimal, scaled


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


# --- tables of single values ---------------------------------------------------------------------------------------

STEPS = 3
"""Equal steps between the best value of a number and the last one without a loss."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One value of an issue.

    Attributes:
        value: the value in normal form; for items, the seat's own pieces.
        worth: its part of the seat's worth: with several issues, of a number compared with its worst value; with one
            issue, the worth of the agreement.
        note: ``best``, ``no gain`` or ``worst``; empty between them. Only values of numbers have notes.
    """

    value: Any
    worth: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class WorthTable:
    """What a few values of every number, or every option, are worth to one seat.

    A reader finds its own end of a range and copies a value; nobody has to infer a direction or to subtract.

    Attributes:
        rungs: for each issue by name, its values in the order of the issue; for a number, from the best to the worst.
        disagreement: the seat's worth without an agreement.
        constant: what is added once to the parts of several issues, with the worst values of numbers; 0 with one
            issue, whose rungs contain it.
    """

    rungs: dict[str, tuple[Rung, ...]]
    disagreement: float
    constant: float = 0.0


def worth_table(space: OutcomeSpace, worth: AdditiveWorth, agent: str) -> WorthTable:
    """Returns the table of an additive worth.

    Args:
        space: the outcome space.
        worth: the seat's worth.
        agent: the seat whose worth it is.
    """
    valuation, alone = worth.valuation(space, agent), len(space.issues) == 1
    base, constant = (valuation.constant, 0) if alone else (0, valuation.constant)
    scale, level = valuation.scale, valuation.disagreement if alone else None
    numbers = {name: (gain, inverse) for name, gain, inverse in valuation.numbers}
    choices, items = dict(valuation.choices), dict(valuation.items)
    rungs: dict[str, tuple[Rung, ...]] = {}
    for issue in space.issues:
        if isinstance(issue, NumberIssue):
            gain, inverse = numbers[issue.name]
            amounts = [issue.value_at(index) for index in (0, issue.size(0) - 1)]
            first, last = (base + gain * round(amount * inverse) for amount in amounts)
            if not alone:  # a number begins anywhere, as a salary does: its worst value counts 0, the constant the rest
                constant, first, last = constant + min(first, last), max(first - last, 0), max(last - first, 0)
            ladder = _ladder(issue.size(0), first, last, level)
            rungs[issue.name] = tuple(Rung(issue.value_at(i), exact / scale, note) for i, exact, note in ladder)
        elif isinstance(issue, ItemsIssue):
            ladder = _ladder(issue.count + 1, base, base + items[issue.name] * issue.count, level)
            rungs[issue.name] = tuple(Rung(i, exact / scale, note) for i, exact, note in ladder)
        else:
            gains = choices[issue.name]
            rungs[issue.name] = tuple(Rung(option, (base + gains[option]) / scale) for option in issue.options)
    return WorthTable(rungs, valuation.disagreement / scale, constant / scale)


def _ladder(size: int, first: int, last: int, level: int | None) -> list[tuple[int, int, str]]:
    """Indexes of ``size`` equally spaced worths with the worth and a note: best, some between, no gain, worst."""
    if first == last:
        return [(0, first, "")]
    step = (last - first) // (size - 1)  # exact: every step of a grid gains the same
    best, worst = (size - 1, 0) if step > 0 else (0, size - 1)
    # The furthest from the best that is no loss; without a level, or if all are losses or none, the worst.
    way = size - 1
    if level is not None and min(first, last) < level <= max(first, last):
        way = (max(first, last) - level) // abs(step)
    sign = -1 if step > 0 else 1
    indexes = dict.fromkeys([*(best + sign * (way * k // STEPS) for k in range(STEPS + 1)), worst])
    notes = {worst: "worst", best: "best"}
    rungs = ((index, first + step * index) for index in indexes)
    return [(i, exact, notes.get(i) or ("no gain" if exact == level else "")) for i, exact in rungs]


def rungs_text(issue: NumberIssue, rungs: tuple[Rung, ...]) -> str:
    """Returns the rungs of a number on one line: ``63 at $34 (best), 21 at $76, 0 at $97 (no gain), -40 at $137``."""
    return ", ".join(
        f"{rung.worth:.15g} at {issue.amount_text(rung.value)}{f' ({rung.note})' * bool(rung.note)}" for rung in rungs
    )
