"""Negotiators with different targets: concession over time, tit for tat, a fixed demand, the middle, or random.

Concession over time and tit for tat follow Faratin, Sierra and Jennings, "Negotiation decision functions for
autonomous agents" (Robotics and Autonomous Systems 24, 1998): the polynomial time-dependent and the relative
behaviour-dependent tactic, both over utilities in place of single issues.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar

from sotopia_env.foundation.errors import InvalidValueError, Where, check_number, check_whole
from sotopia_env.policies.negotiators.bidding import Bids
from sotopia_env.policies.negotiators.negotiation import DEFAULT_FLOOR, DEFAULT_HORIZON, Negotiator, elapsed
from sotopia_env.world.observation import Observation


@dataclass(frozen=True, slots=True)
class TimeDependent(Negotiator):
    """Concedes with time: target(t) = floor + (opening - floor) × (1 - t^(1 / exponent)).

    ``t`` runs from 0 in the seat's first turn to 1 at the horizon, and stays 1 after that. This is the tactic
    F(t) = k + (1 - k) t^(1/e) of Faratin et al., with k = (1 - opening) / (1 - floor).

    Attributes:
        name: the policy's name.
        exponent: positive; below 1 the policy concedes late (*boulware*), 1 is *linear*, above 1 it concedes early
            (*conceder*).
        floor: the target at the end, from 0 (anything better than no agreement) to ``opening``.
        horizon: the number of the seat's turns until the floor is reached, in an episode of two seats; at least 1. See
            :func:`elapsed`. A short episode shortens it
            (:func:`~sotopia_env.policies.negotiators.negotiation.turns_within`).
        opening: the target in the first turn, at most 1.
    """

    name: str = "linear"
    exponent: float = 1.0
    floor: float = DEFAULT_FLOOR
    horizon: int = DEFAULT_HORIZON
    opening: float = 1.0

    def __post_init__(self) -> None:
        check(self.name, "exponent", self.exponent, 1e-3, 1e3)
        check(self.name, "opening", self.opening, 0, 1)
        check(self.name, "floor", self.floor, 0, self.opening)
        check(self.name, "horizon", self.horizon, 1, 1e6)

    def at(self, time: float) -> float:
        """Returns the target at ``time`` from 0 to 1."""
        return self.opening - (self.opening - self.floor) * math.pow(time, 1.0 / self.exponent)

    def target(self, bids: Bids) -> float:
        """Returns the target of this turn."""
        return self.at(elapsed(bids.observation, self.horizon))

    def claim_target(self, observation: Observation, seed: int) -> float:
        """Returns the target of this turn."""
        return self.at(elapsed(observation, self.horizon))


@dataclass(frozen=True, slots=True)
class TitForTat(Negotiator):
    """Concedes as much as the partners have conceded: target = 1 - reciprocity × concession - goodwill × time.

    If a partner's first offer was worth u to this seat and its latest is worth v, the partner has covered the fraction
    (v - u) / (1 - u) of the distance between the two opening positions. The same fraction of the seat's own distance,
    from 1 to u, is a concession of v - u. The concession is the mean over partners. This is the relative tactic of
    Faratin et al. over the whole negotiation. Partners that do not concede get only the goodwill, without which two
    policies of this kind would never begin to concede. In a game of choices it does what the others did last.

    Attributes:
        name: the policy's name.
        reciprocity: the share of the partners' concession that is returned, from 0 to 1.
        goodwill: the unconditional concession up to the seat's last turn, from 0 to 1.
        floor: the lowest target, from 0 to 1.
        horizon: the number of the seat's turns over which the goodwill is given; at least 1.
    """

    plays: ClassVar[str] = "copy"
    name: str = "tit-for-tat"
    reciprocity: float = 1.0
    goodwill: float = 0.3
    floor: float = DEFAULT_FLOOR
    horizon: int = DEFAULT_HORIZON

    def __post_init__(self) -> None:
        for field in ("reciprocity", "goodwill", "floor"):
            check(self.name, field, getattr(self, field), 0, 1)
        check(self.name, "horizon", self.horizon, 1, 1e6)

    def target(self, bids: Bids) -> float:
        """Returns the target after the partners' concessions so far."""
        gift = self.goodwill * elapsed(bids.observation, self.horizon)
        return max(self.floor, 1.0 - self.reciprocity * _concession(bids) - gift)


def _concession(bids: Bids) -> float:
    """The mean improvement of the partners' offers to this seat; 0 before a partner has made two offers."""
    # A partner whose offers have become worse counts as 0: its retreat must not cancel the others' concessions.
    histories = [offers for offers in bids.partners.values() if offers]
    gains = [bids.ranking.utility(offers[-1]) - bids.ranking.utility(offers[0]) for offers in histories]
    return sum(max(0.0, gain) for gain in gains) / len(gains) if gains else 0.0


@dataclass(frozen=True, slots=True)
class FixedDemand(Negotiator):
    """Asks for the same utility in every turn and accepts nothing below it.

    Attributes:
        name: the policy's name.
        demand: the target, from 0 to 1.
    """

    name: str = "stubborn"
    demand: float = 0.5

    def __post_init__(self) -> None:
        check(self.name, "demand", self.demand, 0, 1)

    def target(self, bids: Bids) -> float:
        """Returns the demand."""
        return self.demand

    def claim_target(self, observation: Observation, seed: int) -> float:
        """Returns the demand."""
        return self.demand


@dataclass(frozen=True, slots=True)
class Splitter(Negotiator):
    """Asks for half of its best outcome first, then for the middle between its own and the partners' offers.

    It accepts offers worth at least that, and offers that are close enough to its own last one.

    Attributes:
        name: the policy's name.
        floor: the lowest target, from 0 to 0.5.
        near: the difference to its own last offer that it gives up, from 0 to 1.
    """

    name: str = "splitter"
    floor: float = DEFAULT_FLOOR
    near: float = 0.1

    def __post_init__(self) -> None:
        check(self.name, "floor", self.floor, 0, 0.5)
        check(self.name, "near", self.near, 0, 1)

    def target(self, bids: Bids) -> float:
        """Returns the middle between the positions; 0.5 until both sides have one."""
        own, standing = bids.own, bids.standing
        if not own or not standing:
            return 0.5
        # Both in this seat's utilities: its own last offer, and the best of the partners' positions.
        high, low = bids.ranking.utility(own[-1]), max(map(bids.ranking.utility, standing))
        middle = low if high - low <= self.near else (high + low) / 2
        return max(self.floor, min(0.5, middle))


@dataclass(frozen=True, slots=True)
class RandomOffers(Negotiator):
    """Draws its target uniformly between ``floor`` and 1 in every turn, and accepts offers that reach it.

    Attributes:
        name: the policy's name.
        floor: the lowest target, from 0 to 1.
    """

    name: str = "random-offers"
    floor: float = DEFAULT_FLOOR

    def __post_init__(self) -> None:
        check(self.name, "floor", self.floor, 0, 1)

    def target(self, bids: Bids) -> float:
        """Returns a draw that depends only on the turn's seed."""
        return random.Random(bids.seed).uniform(self.floor, 1.0)

    def claim_target(self, observation: Observation, seed: int) -> float:
        """Returns a draw that depends only on ``seed``."""
        return random.Random(seed).uniform(self.floor, 1.0)


def check(policy: str, field: str, value: float, low: float, high: float) -> None:
    """Raises :class:`InvalidValueError` unless ``value`` lies from ``low`` to ``high``; counts must be whole."""
    try:
        if field in ("horizon", "steps"):
            check_whole(field, value, int(low), int(high))
        else:
            check_number(field, value, low, high)
    except InvalidValueError as error:
        raise InvalidValueError.of(error, where=Where(record=f"policy {policy!r}")) from None
