"""``hiring``: a manager and a candidate agree on a salary and a start date, with five options each.

Points follow table E.1 of SOTOPIA-S4 (appendix E): the salary is worth 6000 to 0 points to the manager and 0 to 6000 to
the candidate, the start date 0 to 2400 and 2400 to 0, both in equal steps. In that table the points of both sides
always sum to 8400 (*zero-sum*). In the *integrative* variant the sides differ in their more important issue, so that a
trade between the issues gives both sides more than a compromise on each. The level determines the variant:

========  ==============================================================================  ==============================
level     variant                                                                         no agreement (of 8400 points)
========  ==============================================================================  ==============================
easy      integrative, weights 6000/2400 for one side and 2400/6000 for the other         15 to 25 %
medium    by turns integrative, weights 5100/3300 and 3300/5100, and zero-sum (E.1)       25 to 36 %
hard      zero-sum (E.1)                                                                  36 to 45 %
========  ==============================================================================  ==============================

The variant is a tag of the scenario (``zero-sum`` or ``integrative``), which the agents do not see. Below hard, the
direction of the start date may be reversed for both sides. The salary is a number issue with five values and a worth
per dollar; the start date is a choice.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ChoiceIssue, NumberIssue, OutcomeSpec
from sotopia_env.outcomes.space import Terms
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import amount, capitalise
from sotopia_env.world.observation import Briefing
from sotopia_env.world.scenario import Seat


class _HiringTexts(FamilyTexts):
    """Companies and positions, and templates of contexts and goals."""

    months: tuple[str, ...]
    companies: tuple[str, ...]
    positions: tuple[str, ...]
    contexts: tuple[str, ...]
    manager_goals: tuple[str, ...]
    candidate_goals: tuple[str, ...]
    no_agreement: tuple[str, ...]


texts = read_texts(_HiringTexts, "hiring")
NAME = "hiring"
SALARY = "salary"
START = "start"
STEPS = 4
"""Steps between the five options of an issue."""
TOTAL = 8400
"""Points of a side for its best option on both issues."""
# By level, the range of the points without an agreement, as a share of ``TOTAL``.
_SHARES: Mapping[str, tuple[float, float]] = {"easy": (0.15, 0.25), "medium": (0.25, 0.36), "hard": (0.36, 0.45)}

Role = Literal["manager", "candidate"]


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of both issues: salaries in dollars and dates, both ascending."""

    salaries: tuple[int, ...]
    dates: tuple[str, ...]

    def issues(self) -> tuple[NumberIssue, ChoiceIssue]:
        low, step, high = self.salaries[0], self.salaries[1] - self.salaries[0], self.salaries[-1]
        salary = NumberIssue(name=SALARY, low=Decimal(low), high=Decimal(high), step=Decimal(step), unit="$")
        return salary, ChoiceIssue(name=START, options=self.dates)


@dataclass(frozen=True, slots=True)
class _HiringSide:
    """One side's points in the order of the options, and its points without an agreement."""

    role: Role
    salary: tuple[int, ...]
    start: tuple[int, ...]
    no_agreement: int = 0

    def worth(self, options: _Options) -> AdditiveWorth:
        low, high = options.salaries[0], options.salaries[-1]
        # The salary is a number issue, so its worth is a line through the first and the last option.
        per_dollar = (self.salary[-1] - self.salary[0]) / (high - low)
        return AdditiveWorth(
            constant=round(self.salary[0] - per_dollar * low, 6),
            issues={SALARY: {"per_unit": per_dollar}, START: dict(zip(options.dates, self.start, strict=True))},
            no_agreement=self.no_agreement,
        )


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    """The manager has seat 0 for an even ``index`` and seat 1 for an odd one."""
    # Pairs of indices share a variant, so that both roles occur in both seats of each variant.
    integrative = level == "easy" or (level == "medium" and index // 2 % 2 == 0)
    options = _draw_options(rng, level)
    manager, candidate = _draw_sides(rng, level, integrative)
    sides = (manager, candidate) if index % 2 == 0 else (candidate, manager)
    company, position = rng.choice(texts.companies), rng.choice(texts.positions)
    salaries = ", ".join(f"${amount(salary)}" for salary in options.salaries)
    context = rng.choice(texts.contexts).format(
        company=company, position=position, salaries=salaries, dates=", ".join(options.dates)
    )
    return Draft(
        characters=draw_characters(rng, 2),
        context=capitalise(context),
        seats=tuple(_seat(rng, side, options) for side in sides),
        outcome=OutcomeSpec(
            protocol=AgreementRules(),
            issues=options.issues(),
            worth=tuple(side.worth(options) for side in sides),
        ),
        shared_data={"position": position},
        tags=("integrative" if integrative else "zero-sum",),
    )


def _draw_options(rng: random.Random, level: str) -> _Options:
    """Salaries of $100,000 to $120,000 and dates from June 1 to August 1, as in table E.1; random ones below hard."""
    # Salaries are drawn in thousands of dollars; dates are half a month apart.
    step = 5 if level == "hard" else rng.choice((2, 4, 5))
    low = 100 if level == "hard" else rng.randrange(50, 130, 2)
    first = 5 if level == "hard" else rng.randrange(10)
    dates = tuple(f"{texts.months[first + half // 2]} {1 + 14 * (half % 2)}" for half in range(STEPS + 1))
    return _Options(tuple(1000 * (low + step * number) for number in range(STEPS + 1)), dates)


def _draw_sides(rng: random.Random, level: str, integrative: bool) -> tuple[_HiringSide, _HiringSide]:
    """Draws both sides' points without an agreement until some agreement is better for both."""
    (salary, start), (other_salary, other_start) = _weights(rng, level, integrative)
    late = level == "hard" or rng.random() < 0.5  # in table E.1 the manager prefers a late start
    manager = _scale(salary, False), _scale(start, late)
    candidate = _scale(other_salary, True), _scale(other_start, not late)
    while True:
        # Rounded to multiples of 50, for round numbers in the texts.
        lows = [round(TOTAL * rng.uniform(*_SHARES[level]) / 50) * 50 for _ in range(2)]
        sides = _HiringSide("manager", *manager, lows[0]), _HiringSide("candidate", *candidate, lows[1])
        steps = itertools.product(range(STEPS + 1), repeat=2)
        if any(all(side.salary[i] + side.start[j] > side.no_agreement for side in sides) for i, j in steps):
            return sides


def _weights(rng: random.Random, level: str, integrative: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Points of the best salary and the best start date, for the manager and for the candidate."""
    if not integrative:
        return (6000, 2400), (6000, 2400)
    strong = (6000, 2400) if level == "easy" else (5100, 3300)
    weak = (strong[1], strong[0])
    return (strong, weak) if rng.random() < 0.5 else (weak, strong)


def _scale(most: int, rising: bool) -> tuple[int, ...]:
    points = tuple(most * number // STEPS for number in range(STEPS + 1))
    return points if rising else points[::-1]


def _seat(rng: random.Random, side: _HiringSide, options: _Options) -> Seat:
    goals = texts.manager_goals if side.role == "manager" else texts.candidate_goals
    salaries = zip(options.salaries, side.salary, strict=True)
    starts = zip(options.dates, side.start, strict=True)
    salary = ", ".join(f"${amount(salary)} gives {points} points" for salary, points in salaries)
    start = ", ".join(f"{date} gives {points} points" for date, points in starts)
    no_agreement = rng.choice(texts.no_agreement).format(points=side.no_agreement)
    return Seat(
        goals=(rng.choice(goals),),
        hints=(rng.choice(texts.hints),),
        private_info=f"Salary: {salary}. Start: {start}. {no_agreement}",
        private_data={"role": side.role},
    )


def _fields(briefing: Briefing, terms: Terms) -> Mapping[str, str] | None:
    # Terms of another kind occur when a user has edited a generated task; it is then played in plain English.
    if set(terms) != {SALARY, START} or not isinstance(terms[SALARY], int | float):
        return None
    return {"salary": f"${amount(terms[SALARY])}", "start": str(terms[START])}


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=_fields),
)
"""The family; the module's docstring states its rules."""
