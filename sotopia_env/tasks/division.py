"""``division``: two people divide several kinds of items whose worth to the other they do not know.

Source: the item-division scenarios of SOTOPIA (arXiv 2310.11667), in the form known as deal-or-no-deal: to each side
all pieces together are worth the same, 10 points.

**Rule.** A deal is a complete allocation, offered by one side and assented to by the other
(:mod:`sotopia_env.tasks.division_speech` says what an offer is, :mod:`sotopia_env.tasks.agreement` when a deal is
closed). Terms are ``{"agent_0": {item: pieces}, "agent_1": {item: pieces}}``.

**Payoffs.** Each side gets the points of its pieces; without a deal both get 0.

**Levels.** ``easy``: 2 kinds of items, the sides rank them in opposite order. ``medium``: 3 kinds, points drawn
independently. ``hard``: 4 kinds, and both sides value the same kind most.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from sotopia_env.tasks.agreement import Act, AgreementReader, Reading
from sotopia_env.tasks.division_speech import Item, allocation, read_division
from sotopia_env.tasks.family import ReferencePoints, SeatProblem, Terms, check_request, outcome_parameters, seat_people
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import division as words
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import OutcomeResult
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Character, OutcomeSpec, Scenario, Seat, Task

NAME = "division"
TOTAL = 10
"""What all pieces together are worth to each side."""
AGENTS = ("agent_0", "agent_1")
_KINDS = {"easy": 2, "medium": 3, "hard": 4}
_PLURALS = {single: plural for items in words.PLACES.values() for single, plural in items}
_NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six")


@lru_cache(maxsize=64)
def _worths(counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Every way to give points per piece (0 to 10) so that all pieces together are worth :data:`TOTAL`."""
    per_piece = [range(TOTAL // count + 1) for count in counts]
    return tuple(
        points
        for points in itertools.product(*per_piece)
        if sum(map(int.__mul__, counts, points)) == TOTAL and sum(point > 0 for point in points) > 1
    )


def _draw_values(rng: random.Random, level: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Counts, and both sides' points per piece; drawn again until the level's relation between the sides holds."""
    while True:
        counts = tuple(rng.randint(1, 3) for _ in range(_KINDS[level]))
        choices = _worths(counts)
        if not choices or sum(counts) < 3:
            continue
        first, second = rng.choice(choices), rng.choice(choices)
        if first != second and _fits(level, first, second):
            return counts, first, second


def _fits(level: str, first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    tops = [max(range(len(side)), key=side.__getitem__) for side in (first, second)]
    if level == "easy":
        return (first[0] - first[1]) * (second[0] - second[1]) < 0
    return level != "hard" or tops[0] == tops[1]


def _count(number: int, name: str) -> str:
    return f"{_NUMBER_WORDS[number]} {name if number == 1 else _PLURALS.get(name, name + 's')}"


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _in_words(share: Mapping[str, int]) -> str:
    parts = [_count(number, name) for name, number in share.items() if number]
    return _listed(parts) if parts else "nothing"


def _seat(rng: random.Random, points: Mapping[str, int]) -> Seat:
    told = [f"each {name} is worth {value} point{'' if value == 1 else 's'}" for name, value in points.items()]
    return Seat(
        goals=(rng.choice(words.GOALS).format(points=_listed(told)),),
        hints=(rng.choice(words.HINTS),),
        private_data={"role": "divider", "points": dict(points)},
    )


@dataclass(frozen=True, slots=True)
class _Spec:
    """What the outcome specification holds, ready to compute with."""

    items: tuple[Item, ...]
    points: tuple[tuple[int, ...], ...]

    def payoffs(self, terms: Terms) -> tuple[float, ...]:
        """Points per seat of complete terms."""
        return tuple(
            float(sum(point * terms[agent][item.name] for item, point in zip(self.items, side, strict=True)))
            for agent, side in zip(AGENTS, self.points, strict=True)
        )


def _items(counts: Mapping[str, int]) -> tuple[Item, ...]:
    return tuple(Item(name, _PLURALS.get(name, f"{name}s"), count) for name, count in counts.items())


def _spec(task: Task) -> _Spec:
    key = (NAME, "spec")
    if key not in task.memo:
        given = outcome_parameters(task, NAME)
        items = _items(given["items"])
        task.memo[key] = _Spec(items, tuple(tuple(side[item.name] for item in items) for side in given["points"]))
    found: _Spec = task.memo[key]
    return found


@lru_cache(maxsize=512)
def _reader(items: tuple[Item, ...]) -> AgreementReader:
    return AgreementReader(AGENTS, partial(_acts, items))


def _acts(items: tuple[Item, ...], text: str, kind: ActionType, actor: str) -> Sequence[Act]:
    me, you = AGENTS if actor == AGENTS[0] else AGENTS[::-1]
    return read_division(text, items, me, you)


@lru_cache(maxsize=512)
def _allocations(items: tuple[Item, ...]) -> tuple[Terms, ...]:
    """Every complete allocation."""
    shares = itertools.product(*(range(item.count + 1) for item in items))
    names = [item.name for item in items]
    return tuple(allocation(items, dict(zip(names, share, strict=True)), *AGENTS) for share in shares)


class Division:
    """The family ``division``; see the module's text for its rules."""

    @property
    def name(self) -> str:
        """``"division"``."""
        return NAME

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns the task number ``index`` of the sequence fixed by ``seed``; equal arguments, equal task.

        Raises:
            InvalidValueError: the level is unknown, or index or seed is negative.
        """
        rng = check_request(NAME, index, seed, level)
        counts, first, second = _draw_values(rng, level)
        place = rng.choice(tuple(words.PLACES))
        names = [single for single, _ in rng.sample(words.PLACES[place], len(counts))]
        items = dict(zip(names, counts, strict=True))
        points = [dict(zip(names, side, strict=True)) for side in (first, second)]
        characters = draw_characters(rng, 2)
        scenario = _scenario(rng, f"{NAME}-{level}-{seed}-{index}", place, items, points, characters)
        return seat_people(rng, scenario, characters)

    def read(self, task: Task, turns: Sequence[Turn]) -> OutcomeResult:
        """Returns the deal that ``turns`` show, or why there is none."""
        spec = _spec(task)
        reading = _reader(spec.items).read(turns)
        payoffs = spec.payoffs(reading.terms) if reading.agreed else (0.0, 0.0)
        return self.reference(task).result(reading.agreed, reading.reason, reading.terms, payoffs)

    def reference(self, task: Task) -> ReferencePoints:
        """Returns the exact reference points, by listing every allocation."""
        key = (NAME, "reference")
        if key not in task.memo:
            task.memo[key] = _reference(_spec(task))
        found: ReferencePoints = task.memo[key]
        return found

    def problem(self, observation: Observation) -> SeatProblem:
        """Returns the seat's problem: which allocation to propose or take."""
        return DivisionProblem(observation)


def _scenario(
    rng: random.Random,
    id_: str,
    place: str,
    items: Mapping[str, int],
    points: Sequence[Mapping[str, int]],
    characters: Sequence[Character],
) -> Scenario:
    listed = _listed([_count(number, name) for name, number in items.items()])
    a, b = (character.name for character in characters)
    context = rng.choice(words.CONTEXTS).format(a=a, b=b, place=place, items=listed)
    return Scenario(
        id=id_,
        context=f"{context} {rng.choice(words.RULES)}",
        seats=tuple(_seat(rng, side) for side in points),
        shared_data={"family": NAME, "items": dict(items)},
        source=f"procedural family {NAME}",
        tags=(NAME, "mixed"),
        outcome=OutcomeSpec(family=NAME, parameters={"items": dict(items), "points": [dict(side) for side in points]}),
    )


def _reference(spec: _Spec) -> ReferencePoints:
    payoffs = sorted({spec.payoffs(terms) for terms in _allocations(spec.items)})
    frontier = [p for p in payoffs if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in payoffs)]
    return ReferencePoints(
        best=(max(p[0] for p in payoffs), max(p[1] for p in payoffs)),
        disagreement=(0.0, 0.0),
        frontier=tuple(frontier),
        fair=max(frontier, key=lambda p: (p[0] * p[1], sum(p))),
        best_joint=max(sum(p) for p in payoffs),
    )


class DivisionProblem:
    """A divider's problem, from its observation alone: its own points, and the offers it has heard."""

    __slots__ = ("_agent", "_items", "_points", "_reading", "_seat")

    def __init__(self, observation: Observation) -> None:
        """Reads the own points and the offers so far out of ``observation``."""
        data: Any = observation.briefing.private_data
        shared: Any = observation.briefing.shared_data
        self._agent = observation.agent
        self._seat = AGENTS.index(observation.agent)
        self._items = _items(shared["items"])
        self._points: Mapping[str, int] = data["points"]
        self._reading: Reading = _reader(self._items).read(observation.turns)

    def candidates(self) -> Sequence[tuple[Terms, float]]:
        """Every allocation with its value, best first; among equals the one that leaves the other more pieces."""
        return _ranked(self._items, self._agent, tuple(self._points[item.name] for item in self._items))

    def value(self, terms: Terms) -> float:
        """The own points over the points of all pieces: 0 is no better than no deal, 1 is everything of worth."""
        share: Mapping[str, int] = terms[self._agent]
        return sum(self._points[name] * number for name, number in share.items()) / TOTAL

    def incoming(self) -> Terms | None:
        """The partner's standing offer."""
        return None if self._reading.agreed else self._reading.standing[1 - self._seat]

    def outgoing(self) -> Sequence[Terms]:
        """This seat's own offers so far, oldest first."""
        return self._reading.offers[self._seat]

    def settled(self) -> bool:
        """Whether a deal has been closed."""
        return self._reading.agreed

    def phrase_offer(self, terms: Terms, seed: int) -> str:
        """Words that propose ``terms``."""
        return self._phrase(words.OFFERS, terms, seed)

    def phrase_accept(self, terms: Terms, seed: int) -> str:
        """Words that accept the partner's standing offer ``terms``."""
        return self._phrase(words.ACCEPTANCES, terms, seed)

    def _phrase(self, phrasings: Sequence[str], terms: Terms, seed: int) -> str:
        mine, yours = terms[self._agent], terms[AGENTS[1 - self._seat]]
        return phrasings[seed % len(phrasings)].format(mine=_in_words(mine), yours=_in_words(yours))


@lru_cache(maxsize=2048)
def _ranked(items: tuple[Item, ...], agent: str, points: tuple[int, ...]) -> tuple[tuple[Terms, float], ...]:
    def worth(terms: Terms) -> float:
        share: Mapping[str, int] = terms[agent]
        return sum(point * share[item.name] for item, point in zip(items, points, strict=True)) / TOTAL

    return tuple(
        sorted(
            ((terms, worth(terms)) for terms in _allocations(items)),
            key=lambda item: (-item[1], sum(item[0][agent].values())),
        )
    )


FAMILY = Division()
"""The one instance of the family."""

__all__ = ["AGENTS", "FAMILY", "TOTAL", "Division", "DivisionProblem"]
