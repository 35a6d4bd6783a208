"""``bargaining``: one item, a listed price everybody sees, and two private ideas of what it is worth.

The seller's target price is the listed price divided by ``1 + markup`` with an exponential markup of rate 0.5, as in
SOTOPIA (arXiv 2310.11667, appendix C.2); each side has a target and a walk-away price of its own. The level sets the
zone of possible agreement between the two walk-away prices, as a share of the listed price:

========  ==============
level     width of zone
========  ==============
easy      0.28 to 0.42
medium    0.14 to 0.25
hard      0.04 to 0.09 (at least two dollars)
========  ==============

Payoffs are in dollars. With the *gain* being how much better a price is than the own walk-away price (negative when
worse) and the *extra* how much better it is than the own target (0 when it is not)::

    payoff = gain + 0.5 * extra      for a gain of at least 0: a bonus beyond the target
    payoff = 2 * gain                for a negative gain: a penalty beyond the walk-away price
    payoff = 0                       without a deal

Prices are agreed in whole dollars or with cents, above 0 and up to four times the listed price; an offer outside that
range is unclear and cannot be accepted, so that shares and payoffs stay bounded. Reference points are exact on the
grid of whole dollars. Every price in the zone is Pareto-optimal, since what one side gains the other loses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

from sotopia_env.errors import InvalidTaskError
from sotopia_env.tasks.agreement import Act, AgreementReader, Reading
from sotopia_env.tasks.bargain_speech import Mention, read_speech
from sotopia_env.tasks.explicit import explicit_acts
from sotopia_env.tasks.family import ReferencePoints, Terms, check_request
from sotopia_env.tasks.people import capitalise, draw_characters, draw_relationship, pick
from sotopia_env.tasks.prices import ISSUE, find_prices, to_price
from sotopia_env.tasks.texts import bargaining as words
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import OutcomeResult
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import OutcomeSpec, Scenario, Seat, Task

NAME = "bargaining"
BONUS = 0.5
"""Extra payoff per dollar beyond the target."""
PENALTY = 2.0
"""Loss per dollar beyond the walk-away price."""
MARKUP_RATE = 0.5
HIGHEST = 4
"""Prices above this many times the listed price are slips or jokes: nobody can agree on them."""
LOWEST_BARE = 0.2
"""A number without a currency is a price from this share of the listed price on."""
_ZONES: Mapping[str, tuple[float, float]] = {"easy": (0.28, 0.42), "medium": (0.14, 0.25), "hard": (0.04, 0.09)}
_MAX_CANDIDATES = 60

Role = Literal["buyer", "seller"]


@dataclass(frozen=True, slots=True)
class Side:
    """One side's private numbers, in dollars."""

    role: Role
    target_price: int
    walk_away_price: int

    def payoff(self, price: float) -> float:
        """Payoff of a deal at ``price`` in dollars, as the module explains."""
        sign = 1 if self.role == "seller" else -1
        gain = sign * (price - self.walk_away_price)
        extra = max(0.0, sign * (price - self.target_price))
        return gain + BONUS * extra if gain >= 0 else PENALTY * gain


class BargainingProblem:
    """What a buyer or a seller can work out from its own observation (a ``SeatProblem``).

    A worth of 1 is the best price this side can hope for: the listed price for a seller, and for a buyer a price as far
    below the target as the target is below the walk-away price, but at least a quarter of the listed price.
    """

    __slots__ = ("_own", "_reading", "_seat")

    def __init__(self, own: _Outlook, reading: Reading, seat: int) -> None:
        """Takes the own side's outlook and what the turns so far amount to; ``seat`` is the own place in it."""
        self._own = own
        self._reading = reading
        self._seat = seat

    def candidates(self) -> Sequence[tuple[Terms, float]]:
        """Prices from the best to be hoped for down to the walk-away price, with their worth; best first."""
        return self._own.candidates

    def value(self, terms: Terms) -> float:
        """Worth of a price: 0 at the walk-away price, 1 at the best to be hoped for."""
        return self._own.value(terms[ISSUE])

    def incoming(self) -> Terms | None:
        """The partner's price that stands."""
        return self._reading.standing[1 - self._seat]

    def outgoing(self) -> Sequence[Terms]:
        """The own prices so far, oldest first."""
        return self._reading.offers[self._seat]

    def settled(self) -> bool:
        """Whether a deal is closed."""
        return self._reading.agreed

    def phrase_offer(self, terms: Terms, seed: int) -> str:
        """Words that propose a price."""
        return pick(words.OFFERS, seed).format(price=_amount(terms[ISSUE]))

    def phrase_accept(self, terms: Terms, seed: int) -> str:
        """Words that accept a price."""
        return pick(words.ACCEPTS, seed).format(price=_amount(terms[ISSUE]))


def _amount(price: float) -> str:
    return f"{price:,.0f}" if price == int(price) else f"{price:,.2f}"


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The part of a seat's problem that no turn changes."""

    side: Side
    scale: float
    candidates: tuple[tuple[Terms, float], ...]

    def value(self, price: float) -> float:
        return self.side.payoff(price) / self.scale


@lru_cache(maxsize=1024)
def _outlook(role: Role, target: int, walk_away: int, listed: int) -> _Outlook:
    side = Side(role, target, walk_away)
    hope = listed if role == "seller" else max(2 * target - walk_away, (listed + 3) // 4)
    if side.payoff(hope) <= 0:  # a walk-away price at or beyond the listed price
        hope = walk_away + (1 if role == "seller" else -1)
    steps = min(abs(hope - walk_away), _MAX_CANDIDATES - 1)
    prices = dict.fromkeys(round(hope + (walk_away - hope) * step / steps) for step in range(steps + 1))
    scale = side.payoff(hope)
    return _Outlook(side, scale, tuple(({ISSUE: price}, side.payoff(price) / scale) for price in prices))


@lru_cache(maxsize=16_384)
def read_acts(text: str, listed: int) -> tuple[Act, ...]:
    """Returns what one utterance does, given the listed price (:mod:`sotopia_env.tasks.bargain_speech`)."""
    explicit = explicit_acts(text, partial(_terms, listed))
    if explicit is not None:
        return explicit
    return read_speech(text, partial(_find, listed))


def _is_sane(price: float, listed: int) -> bool:
    return 0 < price <= listed * HIGHEST


def _find(listed: int, text: str) -> tuple[str, tuple[Mention, ...]]:
    """The prices in ``text``; those out of the sane range are values that cannot be agreed upon."""
    text, mentions = find_prices(text, lambda value: listed * LOWEST_BARE <= value <= listed * HIGHEST)
    if all(mention.value is None or _is_sane(mention.value, listed) for mention in mentions):
        return text, mentions
    sane = (mention.value is not None and _is_sane(mention.value, listed) for mention in mentions)
    return text, tuple(mention if ok else Mention(ISSUE, None) for mention, ok in zip(mentions, sane, strict=True))


def _terms(listed: int, values: Mapping[str, Any]) -> Terms | None:
    price = to_price(values[ISSUE]) if set(values) == {ISSUE} else None
    return None if price is None or not _is_sane(price, listed) else {ISSUE: price}


@lru_cache(maxsize=1024)
def _reader(agents: tuple[str, str], listed: int) -> AgreementReader:
    def read(text: str, action_type: ActionType, actor: str) -> tuple[Act, ...]:
        return read_acts(text, listed)

    return AgreementReader(agents, read, (ISSUE,))


class BargainingFamily:
    """Generates and reads ``bargaining`` tasks (a ``Family``)."""

    @property
    def name(self) -> str:
        """``"bargaining"``."""
        return NAME

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns one task; the buyer sits in seat 0 for even ``index`` and in seat 1 for odd ``index``.

        Raises:
            InvalidValueError: ``level`` is unknown, or ``index`` or ``seed`` is not a whole number of at least 0.
        """
        rng = check_request(NAME, index, seed, level)
        item = rng.choice(words.ITEMS)
        listed = rng.randint(item.low, item.high)
        buyer, seller = _draw_sides(rng, listed, _ZONES[level])
        sides = (buyer, seller) if index % 2 == 0 else (seller, buyer)
        characters = draw_characters(rng, 2)
        scenario = Scenario(
            id=f"{NAME}-{level}-{seed}-{index}",
            context=capitalise(
                rng.choice(words.CONTEXTS).format(item=item.name, description=item.description, price=listed)
            ),
            seats=tuple(_seat(rng, side, item) for side in sides),
            shared_data={"family": NAME, "item": item.name, "listed_price": listed},
            source="procedural",
            tags=(NAME, level),
            outcome=OutcomeSpec(
                family=NAME, parameters={"listed_price": listed, "sides": [_numbers(side) for side in sides]}
            ),
        )
        relationship = draw_relationship(rng, characters)
        return Task(id=scenario.id, scenario=scenario, characters=characters, relationships=(relationship,))

    def read(self, task: Task, turns: Sequence[Turn]) -> OutcomeResult:
        """Returns the price that was agreed, or why none was."""
        sides, listed = _parameters(task)
        agents = (task.agents[0], task.agents[1])
        reading = _reader(agents, listed).read(turns)
        payoffs = [side.payoff(reading.terms[ISSUE]) if reading.agreed else 0.0 for side in sides]
        return self.reference(task).result(reading.agreed, reading.reason, reading.terms, payoffs)

    def reference(self, task: Task) -> ReferencePoints:
        """Returns the exact reference points on the grid of whole dollars; computed once per task."""
        if (NAME, "reference") not in task.memo:
            task.memo[NAME, "reference"] = _reference(_parameters(task)[0])
        found: ReferencePoints = task.memo[NAME, "reference"]
        return found

    def problem(self, observation: Observation) -> BargainingProblem:
        """Returns the acting seat's problem.

        Raises:
            InvalidTaskError: the observation is not one of a ``bargaining`` task.
        """
        briefing = observation.briefing
        private: Mapping[str, Any] = briefing.private_data
        shared: Mapping[str, Any] = briefing.shared_data
        if shared.get("family") != NAME or "role" not in private:
            raise InvalidTaskError(f"expected an observation of a {NAME!r} task, got family {shared.get('family')!r}")
        listed = shared["listed_price"]
        own, partner = briefing.agent, briefing.partners[0].agent
        agents = (own, partner) if own < partner else (partner, own)
        reading = _reader(agents, listed).read(observation.turns)
        outlook = _outlook(private["role"], private["target_price"], private["walk_away_price"], listed)
        return BargainingProblem(outlook, reading, agents.index(own))


def _draw_sides(rng: random.Random, listed: int, zone: tuple[float, float]) -> tuple[Side, Side]:
    """Draws until the buyer's walk-away price is below the listed price, so that the listed price is never a deal."""
    while True:
        target = round(listed / (1 + rng.expovariate(MARKUP_RATE)))
        lowest = round(target * rng.uniform(0.7, 0.92))
        highest = lowest + max(2, round(listed * rng.uniform(*zone)))
        aim = round(highest * rng.uniform(0.62, 0.88))
        # Markups so large that the item would be given away make no bargaining and are drawn again.
        if lowest >= listed * 0.3 and highest < listed and aim < highest and target > lowest:
            return Side("buyer", aim, highest), Side("seller", target, lowest)


def _numbers(side: Side) -> dict[str, Any]:
    return {"role": side.role, "target_price": side.target_price, "walk_away_price": side.walk_away_price}


def _seat(rng: random.Random, side: Side, item: words.Item) -> Seat:
    goals = words.BUYER_GOALS if side.role == "buyer" else words.SELLER_GOALS
    bound = "the most you would pay" if side.role == "buyer" else "the least you would take"
    known = item.name.split(" ", 1)[1]
    return Seat(
        goals=(
            rng.choice(goals).format(item=f"the {known}", target=side.target_price, walk_away=side.walk_away_price),
        ),
        hints=(rng.choice(words.HINTS),),
        private_info=f"Your target price is ${side.target_price}; ${side.walk_away_price} is {bound}.",
        private_data=_numbers(side),
    )


def _parameters(task: Task) -> tuple[tuple[Side, ...], int]:
    outcome = task.scenario.outcome
    if outcome is None or outcome.family != NAME or len(task.agents) != 2:
        raise InvalidTaskError(f"task {task.id!r}: expected a two-seat task of the family {NAME!r}")
    return tuple(Side(**numbers) for numbers in outcome.parameters["sides"]), outcome.parameters["listed_price"]


def _reference(sides: Sequence[Side]) -> ReferencePoints:
    low = min(side.walk_away_price for side in sides)
    high = max(side.walk_away_price for side in sides)
    payoffs = [(sides[0].payoff(price), sides[1].payoff(price)) for price in range(low, high + 1)]
    gains = [pair for pair in payoffs if min(pair) >= 0]
    return ReferencePoints(
        best=(max(pair[0] for pair in gains), max(pair[1] for pair in gains)),
        disagreement=(0.0, 0.0),
        frontier=tuple(gains),
        fair=max(gains, key=lambda pair: (pair[0] * pair[1], -abs(pair[0] - pair[1]))),
        best_joint=max(sum(pair) for pair in gains),
    )


FAMILY = BargainingFamily()
"""The one instance the package uses; it keeps no state."""
