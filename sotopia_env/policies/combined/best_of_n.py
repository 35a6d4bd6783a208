"""Best-of-N sampling: a policy proposes several decisions, and a scorer chooses one.

The policy is called N times concurrently, each time with its own seed, and the decision with the highest score is
taken. Any :class:`Scorer` can be used: the worth of a move (:class:`OfferWorth`), or a trained reward model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sotopia_env.foundation.errors import (
    InvalidValueError,
    ModelCallError,
    PolicyError,
    Verbatim,
    check_members,
    check_whole,
)
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.outcomes.space import OPTION, Terms
from sotopia_env.policies.negotiators.bidding import ranking
from sotopia_env.world.action import Action
from sotopia_env.world.answers import BeliefReplies, InterviewQuestion, InterviewReply, answer_of, beliefs_of
from sotopia_env.world.episode import EpisodeError, Generation, Usage
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.notes import notes_of
from sotopia_env.world.play.policy import Decision, Policy, turn_seed


@runtime_checkable
class Scorer(Protocol):
    """Scores decisions for one observation. Implementations must be safe for concurrent calls."""

    @property
    def name(self) -> str:
        """The scorer's name in records."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes its scores, as JSON."""
        ...

    async def score(self, observation: Observation, decisions: Sequence[Decision]) -> Sequence[float]:
        """Returns one finite number for each decision, in their order; higher is better.

        Args:
            observation: the observation of the acting seat.
            decisions: the candidates, at least one.
        """
        ...


@dataclass(frozen=True, slots=True)
class BestOfNPolicy:
    """Takes the best of N candidates of another policy.

    A candidate whose text was unusable is taken only if all are unusable; of equal scores the first wins. The first
    candidate is the decision that the policy alone would have made, so N = 1 changes nothing. A candidate that could
    not be produced is recorded among the turn's errors, and the choice is between the others.

    Attributes:
        policy: produces the candidates; called concurrently. Its temperature must not be 0, because all candidates
            would be equal.
        n: the number of candidates, at least 1.
        scorer: scores the candidates.
        name: the name of the policy in records.
    """

    policy: Policy
    n: int
    scorer: Scorer
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        check_whole("n", self.n, 1)
        check_members("policy", "a policy", self.policy, Policy)
        check_members("scorer", "a scorer", self.scorer, Scorer)
        temperature = self.policy.parameters.get("temperature")
        if self.n > 1 and temperature == 0:
            raise InvalidValueError(
                field="policy",
                expected=f"a temperature above 0 for {self.n} candidates of one prompt that differ",
                got=Verbatim(f"{temperature!r} in {self.policy.name!r}"),
                hint="raise it, or set n to 1",
            )
        object.__setattr__(self, "name", self.name or f"best-of-{self.n}({self.policy.name})")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """N, and the names and parameters of the policy and the scorer."""
        return {
            "n": self.n,
            "policy": {"name": self.policy.name, "parameters": dict(self.policy.parameters)},
            "scorer": {"name": self.scorer.name, "parameters": dict(self.scorer.parameters)},
        }

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the best candidate, with the usage of all candidates.

        Raises:
            PolicyError: none of the candidates could be produced, or the scorer gave no usable scores.
        """
        started = time.perf_counter()
        # The first candidate gets the turn's own seed: it is the decision that the policy alone would have made.
        seeds = [seed, *(turn_seed(seed, candidate, 0) for candidate in range(1, self.n))]
        results = await all_at_once(self._candidate(observation, seed) for seed in seeds)
        candidates = [result for result in results if isinstance(result, Decision)]
        failures = [result for result in results if isinstance(result, PolicyError)]
        if not candidates:
            raise PolicyError(
                f"{self.name}: all {self.n} candidates failed, the first with: {failures[0]}"
            ) from failures[0]
        usable = [c for c in candidates if c.generation is None or c.generation.parse_failure is None] or candidates
        scores = _checked(self.scorer.name, await self.scorer.score(observation, usable), len(usable))
        best = usable[scores.index(max(scores))]
        errors = [error for candidate in candidates for error in candidate.errors] + list(map(_error, failures))
        return Decision(best.action, _generation(best, candidates, time.perf_counter() - started), tuple(errors))

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the answer of the wrapped policy; answers are not scored."""
        return await answer_of(self.policy, observation, question, seed)

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns the notes of the policy that is sampled; those that it had if it takes none."""
        return await notes_of(self.policy, observation, most, seed)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> BeliefReplies:
        """Returns the beliefs of the wrapped policy."""
        return beliefs_of(self.policy, observation, variables, seed, samples)

    async def _candidate(self, observation: Observation, seed: int) -> Decision | PolicyError:
        try:
            return await self.policy.act(observation, seed)
        except PolicyError as error:
            return error


def _error(failure: PolicyError) -> EpisodeError:
    cause = failure.__cause__
    kind = cause.kind if isinstance(cause, ModelCallError) else type(failure).__name__
    return EpisodeError(kind=kind, message=f"a candidate failed: {failure}")


def _checked(scorer: str, scores: Sequence[float], count: int) -> list[float]:
    numbers = [float(score) for score in scores]
    if len(numbers) != count or not all(math.isfinite(number) for number in numbers):
        raise PolicyError(f"scorer {scorer!r}: expected {count} finite numbers, got {numbers}")
    return numbers


def _generation(best: Decision, candidates: Sequence[Decision], latency: float) -> Generation:
    usage = sum((candidate.generation.usage for candidate in candidates if candidate.generation), Usage())
    generation = best.generation or Generation()
    return generation.model_copy(update={"usage": usage, "latency": latency, "candidates": len(candidates)})


@dataclass(frozen=True, slots=True)
class OfferWorth:
    """Scores a decision by the utility of its move's terms to the acting seat.

    An acceptance scores the utility of the offer, a proposal that of its terms, a vote that of its option, and
    everything else 0, including moves that are not open. The scale is the seat's own: 0 for no agreement, 1 for its
    best outcome. The scorer reads the seat's own observation and ignores words. A seat that uses this scorer alone
    demands everything; it is meant for tests, and as one part of a better scorer.
    """

    name: str = "offer-worth"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """No parameters."""
        return {}

    async def score(self, observation: Observation, decisions: Sequence[Decision]) -> Sequence[float]:
        """Returns the worth of each decision.

        Raises:
            PolicyError: nothing can be agreed on or voted for in the task.
        """
        if observation.briefing.protocol not in ("agreement", "ballot"):
            kind = observation.briefing.protocol or "no protocol"
            raise PolicyError(f"scorer {self.name!r}: expected a task with offers or votes, got one with {kind}")
        return [_worth(observation, decision.action) for decision in decisions]


def _worth(observation: Observation, action: Action) -> float:
    terms = None if action.move is None or observation.move_problem(action) else _terms(observation, action.move)
    return 0.0 if terms is None else ranking(observation.briefing).utility(terms)


def _terms(observation: Observation, move: Move) -> Terms | None:
    """The terms of an open move, in normal form; ``None`` for a rejection, a withdrawal or a withdrawn vote."""
    space, table = observation.briefing.space, observation.table
    assert space is not None
    assert table is not None
    if move.kind is MoveKind.PROPOSE:
        return space.normalise(move.content)
    if move.kind is MoveKind.VOTE and move.content is not None:
        return space.normalise({OPTION: move.content})
    if move.kind is MoveKind.ACCEPT:  # ``True`` accepts the only offer that is open to the seat
        offers = [entry.offer for entry in table.offers if entry.open]
        return next(offer.terms for offer in offers if move.content is True or move.content == offer.number)
    return None
