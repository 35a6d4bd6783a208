"""Several candidates, of which a scorer chooses one.

Best-of-N sampling: the policy is asked N times with seeds of its own, all at once, and the candidate with the highest
score is taken. What scores is a plug: a family's worth of an offer here, a trained reward model elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from sotopia_env.errors import InvalidValueError, PolicyError
from sotopia_env.policies.negotiators import problem_of
from sotopia_env.policies.policy import Decision, Policy, turn_seed
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Generation, Usage, total_cost
from sotopia_env.world.observation import Observation


@runtime_checkable
class Scorer(Protocol):
    """Says how good each of several decisions would be; safe for concurrent calls."""

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
            observation: what the acting seat knows.
            decisions: the candidates, at least one.
        """
        ...


@dataclass(frozen=True, slots=True)
class BestOfNPolicy:
    """Takes the best of N candidates of another policy.

    A candidate whose text was unusable is taken only when all are; of equal scores the first wins. The first
    candidate is the one that the policy alone would have given, so N = 1 changes nothing.

    Attributes:
        policy: gives the candidates; asked concurrently.
        n: how many, at least 1.
        scorer: chooses.
        name: of the policy in records.
    """

    policy: Policy
    n: int
    scorer: Scorer
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise InvalidValueError(f"n: expected a whole number, 1 or more, got {self.n!r}")
        if not isinstance(self.policy, Policy) or isinstance(self.policy, type):
            raise InvalidValueError(f"policy: expected a policy, got {self.policy!r}")
        if not isinstance(self.scorer, Scorer) or isinstance(self.scorer, type):
            raise InvalidValueError(f"scorer: expected a scorer, got {self.scorer!r}")
        object.__setattr__(self, "name", self.name or f"best-of-{self.n}({self.policy.name})")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """N, and name and parameters of policy and scorer."""
        return {
            "n": self.n,
            "policy": {"name": self.policy.name, "parameters": dict(self.policy.parameters)},
            "scorer": {"name": self.scorer.name, "parameters": dict(self.scorer.parameters)},
        }

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the best candidate, with what all of them cost.

        Raises:
            PolicyError: one of the candidates could not be produced, or the scorer gave no usable scores.
        """
        started = time.perf_counter()
        seeds = [seed, *(turn_seed(seed, candidate, 0) for candidate in range(1, self.n))]
        candidates = await self._candidates(observation, seeds)
        usable = [c for c in candidates if c.generation is None or c.generation.parse_failure is None] or candidates
        scores = _checked(self.scorer.name, await self.scorer.score(observation, usable), len(usable))
        best = usable[scores.index(max(scores))]
        errors = tuple([error for candidate in candidates for error in candidate.errors])
        return Decision(best.action, _generation(best, candidates, time.perf_counter() - started), errors)

    async def _candidates(self, observation: Observation, seeds: Sequence[int]) -> list[Decision]:
        asked = [asyncio.ensure_future(self.policy.act(observation, seed)) for seed in seeds]
        try:
            return await asyncio.gather(*asked)
        except BaseException:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)  # what they have spent is booked before the run ends
            raise


def _checked(scorer: str, scores: Sequence[float], count: int) -> list[float]:
    numbers = [float(score) for score in scores]
    if len(numbers) != count or not all(math.isfinite(number) for number in numbers):
        raise PolicyError(f"scorer {scorer!r}: expected {count} finite numbers, got {numbers}")
    return numbers


def _generation(best: Decision, candidates: Sequence[Decision], latency: float) -> Generation:
    used = [candidate.generation.usage for candidate in candidates if candidate.generation]
    usage = Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in used),
        completion_tokens=sum(usage.completion_tokens for usage in used),
        cost=total_cost(usage.cost for usage in used),
    )
    chosen = best.generation or Generation()
    return chosen.model_copy(update={"usage": usage, "latency": latency, "candidates": len(candidates)})


@dataclass(frozen=True, slots=True)
class OfferWorth:
    """Scores a decision by what its seat would get if it were agreed to, as the task's family values it.

    Settling is worth what was settled, an offer what it offers (0 is the walk-away point, 1 the best that can be hoped
    for), everything else 0. It reads the seat's own observation and nothing more. A seat that follows it alone asks
    for everything; it is meant for tests, and as one part of a better scorer.
    """

    name: str = "offer-worth"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    async def score(self, observation: Observation, decisions: Sequence[Decision]) -> Sequence[float]:
        """Returns the worth of each decision.

        Raises:
            PolicyError: the task is of no family.
        """
        return [_worth(observation, decision) for decision in decisions]


def _worth(observation: Observation, decision: Decision) -> float:
    now = problem_of(observation)
    if now is None:
        raise PolicyError("scorer 'offer-worth': expected a task of a family, whose offers can be read")
    round_ = observation.turns[-1].round + 1 if observation.turns else 0
    turn = Turn(len(observation.turns), round_, observation.agent, decision.action)
    then = problem_of(replace(observation, turns=(*observation.turns, turn)))
    assert then is not None
    standing, offers = now.incoming(), then.outgoing()
    if standing is not None and then.settled() and not now.settled():
        return now.value(standing)
    return now.value(offers[-1]) if len(offers) > len(now.outgoing()) else 0.0
