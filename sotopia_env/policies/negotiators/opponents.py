"""Standard opponents from the literature, used as held-out partners: MiCRO, frequency models, random walk; a liar."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from numpy import float64
from numpy.typing import NDArray

from sotopia_env.outcomes import Move, MoveKind, OutcomeSpace
from sotopia_env.outcomes.space import Terms
from sotopia_env.policies.negotiators.bidding import Bids, Ranking, Rows
from sotopia_env.policies.negotiators.claiming import records
from sotopia_env.policies.negotiators.concession import TimeDependent, check
from sotopia_env.policies.negotiators.negotiation import DEFAULT_FLOOR, DEFAULT_HORIZON, Negotiator, turns_within
from sotopia_env.world.observation import Observation

# The number of offers that a model looks back on, so that its cost stays constant in long episodes.
_MEMORY = 32


@dataclass(frozen=True, slots=True)
class Micro(Negotiator):
    """MiCRO, minimal concession in reply to new offers: one step down for every new offer of the partners.

    Source: de Jonge, "An analysis of the linear bilateral ANAC domains using the MiCRO benchmark strategy" (IJCAI
    2022). Own outcomes with utilities of at least 0 are sorted by utility. If the seat has made m different offers so
    far and the partner n, the policy makes the next one if m ≤ n, and repeats a random earlier one otherwise. It
    accepts offers worth at least its lowest own offer, including the coming one. With several partners, n is the
    smallest of theirs, and acceptances count as offers (Aguilera-Luzon, de Jonge and Larrosa, arXiv 2510.17401). In a
    ballot it concedes linearly, because votes are not new offers and the last voter waits.

    Attributes:
        name: the policy's name.
        steps: the maximum number of outcomes that it offers, at even distances of utility; at least 2. The paper's
            domains allow thousands of offers, a dialogue about ten: if every outcome of a long list were a step, it
            would hardly concede. See also :func:`turns_within`.
    """

    name: str = "micro"
    steps: int = DEFAULT_HORIZON

    def __post_init__(self) -> None:
        check(self.name, "steps", self.steps, 2, 1e6)

    def _rungs(self, bids: Bids) -> tuple[list[int], bool]:
        """The rows from its best to its lowest offer, including the coming one, and whether the coming one is new."""
        steps = max(2, turns_within(bids.observation, self.steps) // 2)
        ladder, count = bids.ranking.ladder(steps), bids.own_variety
        new = count < len(ladder) and count <= min(map(bids.variety, bids.partners), default=0)
        return ladder[: count + 1 if new else count], new

    def target(self, bids: Bids) -> float:
        """Returns the utility of its lowest offer, including the coming one; in a ballot, a target linear in time."""
        if bids.observation.briefing.protocol == "ballot":
            return self.claim_target(bids.observation, bids.seed)
        return float(bids.ranking.utilities[self._rungs(bids)[0][-1]])

    def next_offer(self, bids: Bids) -> int:
        """Returns the next row of the ladder, or a row that it has offered before."""
        rows, new = self._rungs(bids)
        return rows[-1] if new else random.Random(bids.seed).choice(rows)

    def threshold(self, bids: Bids, offer: int) -> float:
        """Returns the utility of its lowest offer, even if the coming offer repeats another."""
        return self.target(bids)


class FrequencyModel:
    """An estimate of a partner's utilities from how often it offers a value and how rarely it changes an issue.

    This is the frequency model of HardHeaded (van Krimpen, Looije and Hajizadeh, ANAC 2011; in GENIUS
    ``HardHeadedFrequencyModel``). All issues begin with equal weight; an issue whose value stays the same from one
    offer to the next gains ``learning`` / issues, and weights are normalised. A value is worth (1 + count) /
    (1 + offers). Unlike the original, numbers and divisions, which are rarely repeated exactly, count by nearness: an
    offer at distance d counts 1 - d.
    """

    __slots__ = ("_offers", "_ranking", "weights")

    def __init__(self, ranking: Ranking, offers: Sequence[Terms], learning: float = 0.2) -> None:
        """Learns from the last offers of a partner.

        Args:
            ranking: the ranking of the modelling seat, used for its outcomes and distances only.
            offers: the partner's offers, oldest first.
            learning: the weight that is distributed over the issues whose values are repeated, per offer.
        """
        self._ranking = ranking
        self._offers = offers[-_MEMORY:]
        names = [issue.name for issue in ranking.space.issues]
        self.weights = [1 / len(names)] * len(names)
        for before, after in itertools.pairwise(self._offers):
            gains = [learning / len(names) * (before[name] == after[name]) for name in names]
            total = 1 + sum(gains)
            self.weights = [(weight + gain) / total for weight, gain in zip(self.weights, gains, strict=True)]

    def scores(self, rows: Rows) -> NDArray[float64]:
        """The estimated utility of each row to the partner, from 0 to 1; shape (rows,)."""
        # Weights sum to 1, so that the mean distance to the offers does not exceed 1.
        count = 1 + len(self._offers)
        return 1 - self._ranking.distances(rows, self._offers, self.weights) / count


@dataclass(frozen=True, slots=True)
class OpponentModeller(TimeDependent):
    """Concedes with time, and offers the outcome near its target that partners like best according to a model.

    With the parameters of ``hard-headed`` it is the winner of ANAC 2011 (van Krimpen, Looije and Hajizadeh,
    "HardHeaded", 2013) without its rules for discounted domains: boulware with exponent 0.05, and it accepts offers
    worth at least its lowest own offer so far. The original's floor of 0.585 suits domains in which both sides can get
    that much. The floor here is lower, because within a zone of agreement both sides cannot.

    Attributes:
        tolerance: how far above the target the utility of an offered outcome may be, from 0 to 1.
    """

    tolerance: float = 0.05

    def __post_init__(self) -> None:
        # ``super()`` without arguments does not work in a dataclass with slots.
        TimeDependent.__post_init__(self)
        check(self.name, "tolerance", self.tolerance, 0, 1)

    def next_offer(self, bids: Bids) -> int:
        """Returns the row with the highest mean score for the partners; ties go to the best row for itself."""
        ranking, target = bids.ranking, self.target(bids)
        cheapest = ranking.cheapest(target)
        # The cheapest row is always included, even if it lies above the tolerance.
        rows = ranking.band(target, max(target + self.tolerance, float(ranking.utilities[cheapest])))
        models = [FrequencyModel(ranking, offers) for offers in bids.partners.values() if offers]
        if len(rows) < 2 or not models:
            return cheapest
        scores = sum((model.scores(rows) for model in models[1:]), start=models[0].scores(rows))
        return int(rows[scores.argmax()])

    def threshold(self, bids: Bids, offer: int) -> float:
        """Returns the lowest utility that it has offered, including the coming offer."""
        return min([float(bids.ranking.utilities[offer]), *map(bids.ranking.utility, bids.own)])


@dataclass(frozen=True, slots=True)
class RandomWalk(Negotiator):
    """Starts at a random target, which then changes at random by at most ``step`` per offer.

    After the Random Walker of Hindriks, Jonker and Tykhonov, "Negotiation dynamics" (IAT 2007), a baseline without a
    tactic; unlike the original, it stays at or above a floor.

    Attributes:
        name: the policy's name.
        step: the largest change from one offer to the next, from 0 to 1.
        floor: the lowest target, from 0 to 1.
    """

    name: str = "random-walk"
    step: float = 0.3
    floor: float = DEFAULT_FLOOR

    def __post_init__(self) -> None:
        check(self.name, "step", self.step, 0, 1)
        check(self.name, "floor", self.floor, 0, 1)

    def target(self, bids: Bids) -> float:
        """Returns a draw around the utility of its last offer; before the first, a draw between the floor and 1."""
        rng = random.Random(bids.seed)
        if not bids.own:
            return rng.uniform(self.floor, 1.0)
        return min(1.0, max(self.floor, bids.ranking.utility(bids.own[-1]) + rng.uniform(-self.step, self.step)))


@dataclass(frozen=True, slots=True)
class Liar(TimeDependent):
    """Makes the moves of a linear negotiator and says the opposite, to show that words are not binding.

    It says "deal" while it proposes other terms, states terms that it does not propose, sounds like a refusal when it
    accepts, announces votes for other options, and names people who are not the answer.
    """

    name: str = "liar"

    def words(self, observation: Observation, move: Move, seed: int) -> str:
        """Returns the words of an honest negotiator for another move."""
        return Negotiator.words(self, observation, _pretended(observation, move, random.Random(seed)), seed)

    def tell(self, observation: Observation, seed: int) -> str | None:
        """Returns a false announcement of a claim in place of a fact; ``None`` if it has no fact to share."""
        if Negotiator.tell(self, observation, seed) is None:
            return None
        names = [entry["name"] for entry in records(observation.briefing)]
        name = random.Random(seed).choice(names) if names else None
        return None if name is None else Negotiator.words(self, observation, Move(MoveKind.CLAIM, name), seed)


_ATTEMPTS = 8


def _other_terms(space: OutcomeSpace, terms: Terms, rng: random.Random) -> Terms:
    """Random terms other than ``terms``, or ``terms`` if a few draws find no others (a space may have one outcome)."""
    draws = (space.draw(rng) for _ in range(_ATTEMPTS))
    return next((other for other in draws if other != terms), terms)


def _pretended(observation: Observation, move: Move, rng: random.Random) -> Move:
    """A move of the same protocol with another meaning."""
    moves, space = observation.moves, observation.briefing.space
    assert moves is not None
    assert space is not None
    if move.kind is MoveKind.ACCEPT:
        return Move(MoveKind.REJECT, move.content)
    if move.kind is MoveKind.PROPOSE:
        if moves.accept and rng.random() < 0.5:
            return Move(MoveKind.ACCEPT, rng.choice(moves.accept))
        return Move(MoveKind.PROPOSE, _other_terms(space, move.content, rng))
    if move.kind is MoveKind.VOTE:
        return Move(MoveKind.VOTE, rng.choice([option for option in moves.vote if option != move.content]))
    names = [entry["name"] for entry in records(observation.briefing)] or list(moves.candidates)
    others = [name for name in names if name != move.content]
    return Move(MoveKind.CLAIM, rng.choice(others)) if others else move
