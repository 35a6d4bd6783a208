"""Scripted negotiators: one way of choosing offers, several ways of conceding.

Each turn a negotiator works out what it still asks for (its *aspiration*, on the family's scale where 0 is the own
walk-away point and 1 the best it can hope for), accepts the partners' standing offer if that is worth as much, and
otherwise makes the cheapest offer that still meets the aspiration. When the matter is settled it leaves. All it knows
is its own observation, read by the task's family (:meth:`sotopia_env.tasks.family.Family.problem`).

In ``mutual_friend`` every negotiator shares facts until it is sure, then claims; in ``group_decision`` offers are
votes. In a scenario of no family it makes small talk (:func:`sotopia_env.policies.small_talk.small_talk`).

Concession over time follows Faratin, Sierra and Jennings, "Negotiation decision functions for autonomous agents"
(Robotics and Autonomous Systems 24, 1998), equation for polynomial time-dependent tactics.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, cast

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError
from sotopia_env.policies.policy import Decision
from sotopia_env.policies.small_talk import SILENCE, leave, own_turns, say, small_talk
from sotopia_env.tasks.family import SeatProblem, Terms
from sotopia_env.world.observation import Observation

_EPSILON = 1e-9
"""Worths are sums of floats; an offer worth exactly the aspiration must count as such."""
DEFAULT_HORIZON = 10
"""Own turns in an episode of two seats and 20 turns."""


class SharingProblem(SeatProblem, Protocol):
    """A seat's problem in a family about shared facts."""

    def phrase_share(self, seed: int) -> str | None:
        """Words that tell the partners something they may not know; ``None`` when nothing useful is left to tell."""
        ...


def problem_of(observation: Observation) -> SeatProblem | None:
    """Returns the seat's problem as its task's family reads it; ``None`` in a scenario of no family."""
    name = observation.briefing.shared_data.get("family")
    return None if name is None else tasks.family(str(name)).problem(observation)


def offer_worth(problem: SeatProblem, wanted: float) -> Terms | None:
    """Returns the terms the seat parts with most easily among those worth at least ``wanted`` to it.

    The best terms where none is worth that much; ``None`` where even these are worse than no agreement.
    """
    candidates = problem.candidates()
    if not candidates or candidates[0][1] < 0:
        return None
    after = bisect_right(candidates, _EPSILON - wanted, key=lambda candidate: -candidate[1])
    return candidates[max(after - 1, 0)][0]


def negotiate(problem: SeatProblem, observation: Observation, seed: int, wanted: float) -> Decision:
    """Returns the move of a seat that asks for ``wanted``: leave when settled, else accept, else offer."""
    if problem.settled():
        return leave(observation)
    standing = problem.incoming()
    if standing is not None and problem.value(standing) >= wanted - _EPSILON:
        return say(observation, problem.phrase_accept(standing, seed))
    if about_facts(type(problem)):
        fact = cast("SharingProblem", problem).phrase_share(seed)
        if fact is not None:
            return say(observation, fact)
    terms = offer_worth(problem, wanted)
    return SILENCE if terms is None else say(observation, problem.phrase_offer(terms, seed))


@cache
def about_facts(kind: type) -> bool:
    """Returns whether problems of this class are :class:`SharingProblem`, and so tell facts before they offer."""
    # ``isinstance`` with a protocol costs more than all the rest of a move; the answer depends on the type alone.
    return hasattr(kind, "phrase_share")


class _Negotiator:
    """What all negotiators share; each says what it still asks for."""

    __slots__ = ()

    def aspiration(self, observation: Observation, problem: SeatProblem, seed: int) -> float:
        """Returns what the seat asks for at this moment, on the scale of :meth:`SeatProblem.value`."""
        raise NotImplementedError

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the next move; see the module's description."""
        problem = problem_of(observation)
        if problem is None:
            return small_talk(observation, seed)
        return negotiate(problem, observation, seed, self.aspiration(observation, problem, seed))


@dataclass(frozen=True, slots=True)
class TimeDependent(_Negotiator):
    """Concedes with time: aspiration = opening - (opening - floor) × time^(1 / exponent).

    ``time`` runs from 0 in the first to 1 in the last of ``horizon`` own turns, and stays 1 after that.

    Attributes:
        name: the policy's name.
        exponent: below 1 it holds out and gives way at the end (*boulware*), 1 is *linear*, above 1 it gives way early
            (*conceder*); above 0.
        floor: aspiration at the end, from 0 (anything better than no agreement) to ``opening``.
        horizon: own turns until the floor is reached; at least 1.
        opening: aspiration in the first turn, up to 1.
    """

    name: str = "linear"
    exponent: float = 1.0
    floor: float = 0.1
    horizon: int = DEFAULT_HORIZON
    opening: float = 1.0

    def __post_init__(self) -> None:
        check(self.name, "exponent", self.exponent, 1e-3, 1e3)
        check(self.name, "opening", self.opening, 0, 1)
        check(self.name, "floor", self.floor, 0, self.opening)
        check(self.name, "horizon", self.horizon, 1, 1e6)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Exponent, floor, horizon and opening."""
        return {
            "exponent": self.exponent,
            "floor": self.floor,
            "horizon": self.horizon,
            "opening": self.opening,
        }

    def at(self, time: float) -> float:
        """Returns the aspiration at ``time`` from 0 to 1."""
        return self.opening - (self.opening - self.floor) * math.pow(time, 1.0 / self.exponent)

    def aspiration(self, observation: Observation, problem: SeatProblem, seed: int) -> float:
        """Returns the aspiration of this turn."""
        return self.at(elapsed(observation, self.horizon))


def elapsed(observation: Observation, horizon: int) -> float:
    """Returns the share of the ``horizon`` own turns that has passed: 0 in the first, 1 in the last and later."""
    return 1.0 if horizon <= 1 else min(1.0, own_turns(observation) / (horizon - 1))


@dataclass(frozen=True, slots=True)
class TitForTat(_Negotiator):
    """Gives as much as it is given: aspiration = 1 - reciprocity × the partners' concession - goodwill × time.

    The partners' concession is how much more their standing offer is worth to this seat than their first one was (the
    behaviour-dependent tactic of Faratin et al. over the whole negotiation so far). Partners who do not move get
    nothing but the goodwill, without which two of a kind would never begin.

    Attributes:
        name: the policy's name.
        reciprocity: share of the partners' concession that is returned, from 0 to 1.
        goodwill: what it concedes unasked by the last own turn, from 0 to 1.
        floor: lowest aspiration, from 0 to 1.
        horizon: own turns over which the goodwill is given; at least 1.
    """

    name: str = "tit-for-tat"
    reciprocity: float = 1.0
    goodwill: float = 0.3
    floor: float = 0.1
    horizon: int = DEFAULT_HORIZON

    def __post_init__(self) -> None:
        for field in ("reciprocity", "goodwill", "floor"):
            check(self.name, field, getattr(self, field), 0, 1)
        check(self.name, "horizon", self.horizon, 1, 1e6)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Reciprocity, goodwill, floor and horizon."""
        return {
            "reciprocity": self.reciprocity,
            "goodwill": self.goodwill,
            "floor": self.floor,
            "horizon": self.horizon,
        }

    def aspiration(self, observation: Observation, problem: SeatProblem, seed: int) -> float:
        """Returns the aspiration in answer to what stands."""
        gift = self.goodwill * elapsed(observation, self.horizon)
        return max(self.floor, 1.0 - self.reciprocity * _concession(observation, problem) - gift)


def _concession(observation: Observation, problem: SeatProblem) -> float:
    """How much the partners' offers have improved for this seat; 0 before they have made two."""
    standing = problem.incoming()
    if standing is None:
        return 0.0
    others = [place for place, turn in enumerate(observation.turns) if turn.actor != observation.briefing.agent]
    for place in others[:_FIRST_OFFERS]:
        early = problem_of(replace(observation, turns=observation.turns[: place + 1]))
        first = early.incoming() if early is not None else None
        if first is not None:
            return max(0.0, problem.value(standing) - problem.value(first))
    return 0.0


_FIRST_OFFERS = 3
"""So many of the partners' turns are searched for their first offer; each search reads the opening turns again."""


@dataclass(frozen=True, slots=True)
class FixedDemand(_Negotiator):
    """Asks for the same from first to last and accepts nothing below it.

    Attributes:
        name: the policy's name.
        demand: the aspiration, from 0 to 1.
    """

    name: str = "stubborn"
    demand: float = 0.5

    def __post_init__(self) -> None:
        check(self.name, "demand", self.demand, 0, 1)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The demand."""
        return {"demand": self.demand}

    def aspiration(self, observation: Observation, problem: SeatProblem, seed: int) -> float:
        """Returns the demand."""
        return self.demand


@dataclass(frozen=True, slots=True)
class Splitter(_Negotiator):
    """Splits: first asks for half of what it can hope for, then for the middle between its own and the partners' offer.

    It accepts what is worth at least that, and anything that comes close enough to its own last offer.

    Attributes:
        name: the policy's name.
        floor: the least it ever asks for, from 0 to 0.5.
        near: a difference this small is given away, from 0 to 1.
    """

    name: str = "splitter"
    floor: float = 0.1
    near: float = 0.1

    def __post_init__(self) -> None:
        check(self.name, "floor", self.floor, 0, 0.5)
        check(self.name, "near", self.near, 0, 1)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The floor and what counts as near."""
        return {"floor": self.floor, "near": self.near}

    def aspiration(self, observation: Observation, problem: SeatProblem, seed: int) -> float:
        """Returns the middle between the positions, and half before there are any."""
        own, standing = problem.outgoing(), problem.incoming()
        if not own or standing is None:
            return 0.5
        asked, given = problem.value(own[-1]), problem.value(standing)
        middle = given if asked - given <= self.near else (asked + given) / 2
        return max(self.floor, min(0.5, middle))


@dataclass(frozen=True, slots=True)
class RandomOffers(_Negotiator):
    """Asks for something else every turn, drawn evenly between ``floor`` and 1; accepts what is worth that much.

    Attributes:
        name: the policy's name.
        floor: the least it ever asks for, from 0 to 1.
    """

    name: str = "random-offers"
    floor: float = 0.1

    def __post_init__(self) -> None:
        check(self.name, "floor", self.floor, 0, 1)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The floor."""
        return {"floor": self.floor}

    def aspiration(self, observation: Observation, problem: SeatProblem, seed: int) -> float:
        """Returns a draw that depends on ``seed`` alone."""
        return random.Random(seed).uniform(self.floor, 1.0)


def check(policy: str, field: str, value: float, low: float, high: float) -> None:
    """Raises :class:`InvalidValueError` unless ``value`` lies from ``low`` to ``high``; a ``horizon`` must be whole."""
    whole = field == "horizon"
    numeric = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not numeric or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise InvalidValueError(f"policy {policy!r}, {field}: expected {kind} from {low:g} to {high:g}, got {value!r}")
