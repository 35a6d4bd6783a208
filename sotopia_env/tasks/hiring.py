"""``hiring``: a manager and a candidate settle a salary and a start date, five options each.

Points follow table E.1 of SOTOPIA-S4 (appendix E): salary is worth 6000 to 0 points to the manager and 0 to 6000
to the candidate, the start date 0 to 2400 and 2400 to 0, both in equal steps. There the points of both sides always add
up to 8400 (*zero-sum*). In the *integrative* variant each side cares most about another issue, so that trading the
issues off gives both more than meeting halfway on each. The level decides:

========  ==============================================================================  ==============================
level     variant                                                                         walk-away points (of 8400)
========  ==============================================================================  ==============================
easy      integrative, weights 6000/2400 for one side and 2400/6000 for the other         15 to 25 %
medium    by turns integrative, weights 5100/3300 and 3300/5100, and zero-sum (E.1)       25 to 36 %
hard      zero-sum (E.1)                                                                  36 to 45 %
========  ==============================================================================  ==============================

The variant is a tag of the scenario (``zero-sum`` or ``integrative``) and hidden from the agents. Below hard, the
direction of the start date may be turned round for both sides. A side's payoff is its points for the
agreed options, or its walk-away points (the worth of its alternative) without agreement. Reference points are exact
over all 25 agreements.
"""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

from sotopia_env.errors import InvalidTaskError
from sotopia_env.tasks.agreement import Act, AgreementReader, Reading
from sotopia_env.tasks.bargain_speech import read_speech
from sotopia_env.tasks.contract_terms import ISSUES, MONTHS, SALARY, START_DATE, Options, find_terms, to_option
from sotopia_env.tasks.explicit import explicit_acts
from sotopia_env.tasks.family import ReferencePoints, Terms, check_request
from sotopia_env.tasks.people import capitalise, draw_characters, draw_relationship, pick
from sotopia_env.tasks.texts import hiring as words
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import OutcomeResult
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import OutcomeSpec, Scenario, Seat, Task

NAME = "hiring"
STEPS = 4
"""Steps between the five options of an issue."""
TOTAL = 8400
"""Points a side gets from its best option on both issues."""

Role = Literal["manager", "candidate"]
Points = Mapping[str, Mapping[str, int]]
"""Points by issue and option."""

_SHARES: Mapping[str, tuple[float, float]] = {"easy": (0.15, 0.25), "medium": (0.25, 0.36), "hard": (0.36, 0.45)}


@dataclass(frozen=True, slots=True)
class Side:
    """One side's points and the worth of its alternative."""

    role: Role
    points: Points
    walk_away_points: int

    def payoff(self, terms: Terms) -> int:
        """Points for agreed options; an issue that ``terms`` leave open counts as its worst option."""
        return sum(
            table[terms[issue]] if issue in terms else min(table.values()) for issue, table in self.points.items()
        )


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The part of a seat's problem that no turn changes."""

    side: Side
    best: int
    candidates: tuple[tuple[Terms, float], ...]

    @classmethod
    def of(cls, side: Side) -> _Outlook:
        best = sum(max(table.values()) for table in side.points.values())
        packages = [
            dict(zip(side.points, options, strict=True)) for options in itertools.product(*side.points.values())
        ]
        worth = [(package, _worth(side, best, package)) for package in packages]
        return cls(side, best, tuple(sorted((item for item in worth if item[1] >= 0), key=lambda item: -item[1])))


def _worth(side: Side, best: int, terms: Terms) -> float:
    return (side.payoff(terms) - side.walk_away_points) / (best - side.walk_away_points)


class HiringProblem:
    """What a manager or a candidate can work out from its own observation (a ``SeatProblem``)."""

    __slots__ = ("_own", "_reading", "_seat")

    def __init__(self, own: _Outlook, reading: Reading, seat: int) -> None:
        """Takes the own side's outlook and what the turns so far amount to; ``seat`` is the own place in it."""
        self._own = own
        self._reading = reading
        self._seat = seat

    def candidates(self) -> Sequence[tuple[Terms, float]]:
        """Every package that is worth at least the walk-away points, with its worth; best first."""
        return self._own.candidates

    def value(self, terms: Terms) -> float:
        """Worth of a package: 0 at the walk-away points, 1 for the best option on both issues."""
        return _worth(self._own.side, self._own.best, terms)

    def incoming(self) -> Terms | None:
        """The partner's standing package; ``None`` while an issue is open in it."""
        return _complete(self._reading, self._reading.standing[1 - self._seat])

    def outgoing(self) -> Sequence[Terms]:
        """The own offers so far, oldest first; early ones may name one issue only."""
        return self._reading.offers[self._seat]

    def settled(self) -> bool:
        """Whether the contract is agreed."""
        return self._reading.agreed

    def phrase_offer(self, terms: Terms, seed: int) -> str:
        """Words that propose a package."""
        return pick(words.OFFERS, seed).format(**terms)

    def phrase_accept(self, terms: Terms, seed: int) -> str:
        """Words that accept a package."""
        return pick(words.ACCEPTS, seed).format(**terms)


def _complete(reading: Reading, standing: Terms | None) -> Terms | None:
    if standing is None or len(standing) == len(ISSUES):
        return standing
    whole = {**reading.settled, **standing}
    return whole if len(whole) == len(ISSUES) else None


@lru_cache(maxsize=16_384)
def read_acts(text: str, options: Options) -> tuple[Act, ...]:
    """Returns what one utterance does, given the task's options (:mod:`sotopia_env.tasks.bargain_speech`)."""
    explicit = explicit_acts(text, partial(_terms, options=options))
    if explicit is not None:
        return explicit
    return read_speech(text, partial(find_terms, options=options))


def _terms(values: Mapping[str, Any], options: Options) -> Terms | None:
    named = {key.strip().lower().replace(" ", "_"): value for key, value in values.items()}
    if not named or not set(named) <= set(ISSUES):
        return None
    terms = {key: to_option(key, value, options) for key, value in named.items()}
    return None if None in terms.values() else terms


@lru_cache(maxsize=1024)
def _reader(agents: tuple[str, str], options: Options) -> AgreementReader:
    def read(text: str, action_type: ActionType, actor: str) -> tuple[Act, ...]:
        return read_acts(text, options)

    return AgreementReader(agents, read, ISSUES)


class HiringFamily:
    """Generates and reads ``hiring`` tasks (a ``Family``)."""

    @property
    def name(self) -> str:
        """``"hiring"``."""
        return NAME

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns one task; the manager sits in seat 0 for even ``index`` and in seat 1 for odd ``index``.

        Raises:
            InvalidValueError: ``level`` is unknown, or ``index`` or ``seed`` is not a whole number of at least 0.
        """
        rng = check_request(NAME, index, seed, level)
        integrative = level == "easy" or (level == "medium" and index // 2 % 2 == 0)
        options = _draw_options(rng, level)
        manager, candidate = _draw_sides(rng, options, level, integrative)
        sides = (manager, candidate) if index % 2 == 0 else (candidate, manager)
        characters = draw_characters(rng, 2)
        company, position = rng.choice(words.COMPANIES), rng.choice(words.POSITIONS)
        context = rng.choice(words.CONTEXTS).format(
            company=company,
            position=position,
            salaries=", ".join(options.salary),
            dates=", ".join(options.start_date),
        )
        scenario = Scenario(
            id=f"{NAME}-{level}-{seed}-{index}",
            context=capitalise(context),
            seats=tuple(_seat(rng, side) for side in sides),
            shared_data={
                "family": NAME,
                "position": position,
                "issues": {issue: list(labels) for issue, labels in options.by_issue().items()},
            },
            source="procedural",
            tags=(NAME, level, "integrative" if integrative else "zero-sum"),
            outcome=OutcomeSpec(family=NAME, parameters={"sides": [_numbers(side) for side in sides]}),
        )
        relationship = draw_relationship(rng, characters)
        return Task(id=scenario.id, scenario=scenario, characters=characters, relationships=(relationship,))

    def read(self, task: Task, turns: Sequence[Turn]) -> OutcomeResult:
        """Returns the contract that was agreed, or why none was."""
        sides = _sides(task)
        reading = _reader((task.agents[0], task.agents[1]), _options(sides[0].points)).read(turns)
        payoffs = [side.payoff(reading.terms) if reading.agreed else side.walk_away_points for side in sides]
        return self.reference(task).result(reading.agreed, reading.reason, reading.terms, payoffs)

    def reference(self, task: Task) -> ReferencePoints:
        """Returns the exact reference points over all 25 agreements; computed once per task."""
        if (NAME, "reference") not in task.memo:
            task.memo[NAME, "reference"] = _reference(_sides(task))
        found: ReferencePoints = task.memo[NAME, "reference"]
        return found

    def problem(self, observation: Observation) -> HiringProblem:
        """Returns the acting seat's problem.

        Raises:
            InvalidTaskError: the observation is not one of a ``hiring`` task.
        """
        briefing = observation.briefing
        private: Mapping[str, Any] = briefing.private_data
        shared: Mapping[str, Any] = briefing.shared_data
        if shared.get("family") != NAME or "role" not in private:
            raise InvalidTaskError(f"expected an observation of a {NAME!r} task, got family {shared.get('family')!r}")
        own, partner = briefing.agent, briefing.partners[0].agent
        agents = (own, partner) if own < partner else (partner, own)
        outlook, options = _known(private)
        return HiringProblem(outlook, _reader(agents, options).read(observation.turns), agents.index(own))


# Outlooks by the identity of the private data they were made from, which all observations of a seat share.
_KNOWN: OrderedDict[int, tuple[Mapping[str, Any], _Outlook, Options]] = OrderedDict()
_MOST_KNOWN = 1024


def _known(private: Mapping[str, Any]) -> tuple[_Outlook, Options]:
    entry = _KNOWN.get(id(private))
    if entry is None or entry[0] is not private:
        points: Points = private["points"]
        entry = (private, _Outlook.of(Side(private["role"], points, private["walk_away_points"])), _options(points))
        _KNOWN[id(private)] = entry
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return entry[1], entry[2]


def _options(points: Points) -> Options:
    return Options(tuple(points[SALARY]), tuple(points[START_DATE]))


def _draw_options(rng: random.Random, level: str) -> Options:
    """Salaries like $100k to $120k and dates like June 1 to August 1, as in table E.1; others below hard."""
    step = 5 if level == "hard" else rng.choice((2, 4, 5))
    low = 100 if level == "hard" else rng.randrange(50, 130, 2)
    form = rng.choice(("${}k", "${},000"))
    first = 5 if level == "hard" else rng.choice((0, 1, 2, 5, 6, 7, 8, 9))  # no options in May, which is also a verb
    dates = [f"{MONTHS[first + half // 2]} {1 + 14 * (half % 2)}" for half in range(STEPS + 1)]
    return Options(tuple(form.format(low + step * place) for place in range(STEPS + 1)), tuple(dates))


def _draw_sides(rng: random.Random, options: Options, level: str, integrative: bool) -> tuple[Side, Side]:
    """Draws walk-away points until some agreement gives both sides more."""
    manager, candidate = _weights(rng, level, integrative)
    late = level == "hard" or rng.random() < 0.5  # in table E.1 the manager prefers a late start
    tables = (
        {SALARY: _table(options.salary, manager[0], False), START_DATE: _table(options.start_date, manager[1], late)},
        {
            SALARY: _table(options.salary, candidate[0], True),
            START_DATE: _table(options.start_date, candidate[1], not late),
        },
    )
    while True:
        walk_aways = [round(TOTAL * rng.uniform(*_SHARES[level]) / 50) * 50 for _ in tables]
        sides = (Side("manager", tables[0], walk_aways[0]), Side("candidate", tables[1], walk_aways[1]))
        if any(all(side.payoff(terms) > side.walk_away_points for side in sides) for terms in _agreements(sides)):
            return sides


def _weights(rng: random.Random, level: str, integrative: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Points of the best salary and of the best start date, for the manager and for the candidate."""
    if not integrative:
        return (6000, 2400), (6000, 2400)
    strong = (6000, 2400) if level == "easy" else (5100, 3300)
    weak = (strong[1], strong[0])
    return (strong, weak) if rng.random() < 0.5 else (weak, strong)


def _table(labels: Sequence[str], most: int, rising: bool) -> dict[str, int]:
    return {label: most * (place if rising else STEPS - place) // STEPS for place, label in enumerate(labels)}


def _numbers(side: Side) -> dict[str, Any]:
    points = {issue: dict(table) for issue, table in side.points.items()}
    return {"role": side.role, "points": points, "walk_away_points": side.walk_away_points}


def _seat(rng: random.Random, side: Side) -> Seat:
    goals = words.MANAGER_GOALS if side.role == "manager" else words.CANDIDATE_GOALS
    tables = " ".join(
        f"{issue.replace('_', ' ').capitalize()}: "
        + ", ".join(f"{label} gives {points} points" for label, points in table.items())
        + "."
        for issue, table in side.points.items()
    )
    walk_away = rng.choice(words.WALK_AWAYS).format(points=side.walk_away_points)
    return Seat(
        goals=(rng.choice(goals),),
        hints=(rng.choice(words.HINTS),),
        private_info=f"{tables} {walk_away}",
        private_data=_numbers(side),
    )


def _sides(task: Task) -> tuple[Side, Side]:
    if (NAME, "sides") not in task.memo:
        outcome = task.scenario.outcome
        if outcome is None or outcome.family != NAME or len(task.agents) != 2:
            raise InvalidTaskError(f"task {task.id!r}: expected a two-seat task of the family {NAME!r}")
        first, second = (Side(**numbers) for numbers in outcome.parameters["sides"])
        task.memo[NAME, "sides"] = (first, second)
    found: tuple[Side, Side] = task.memo[NAME, "sides"]
    return found


def _agreements(sides: Sequence[Side]) -> list[dict[str, str]]:
    return [
        {SALARY: salary, START_DATE: start}
        for salary, start in itertools.product(sides[0].points[SALARY], sides[0].points[START_DATE])
    ]


def _reference(sides: tuple[Side, Side]) -> ReferencePoints:
    first, second = sides
    walk = (float(first.walk_away_points), float(second.walk_away_points))
    payoffs = sorted({(float(first.payoff(terms)), float(second.payoff(terms))) for terms in _agreements(sides)})
    gains = [pair for pair in payoffs if pair[0] >= walk[0] and pair[1] >= walk[1]]
    frontier = [pair for pair in payoffs if not any(_dominates(other, pair) for other in payoffs)]
    return ReferencePoints(
        best=(max(pair[0] for pair in gains), max(pair[1] for pair in gains)),
        disagreement=walk,
        frontier=tuple(frontier),
        fair=max(gains, key=lambda pair: ((pair[0] - walk[0]) * (pair[1] - walk[1]), min(pair))),
        best_joint=max(sum(pair) for pair in payoffs),
    )


def _dominates(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return first != second and first[0] >= second[0] and first[1] >= second[1]


FAMILY = HiringFamily()
"""The one instance the package uses; it keeps no state."""
