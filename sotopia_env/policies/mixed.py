"""Policies made of others: one for each seat, or one drawn for each episode.

Self-play and behaviour cloning mix models: SOTOPIA (arXiv 2310.11667, §4) pairs models with one another, SOTOPIA-π
trains one against a fixed partner. :class:`MixedPolicy` gives each seat its own; a :class:`Mixture` draws who plays.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.errors import InvalidValueError, UnknownNameError, check_members
from sotopia_env.policies.policy import Decision, Policy
from sotopia_env.records import canonical_json
from sotopia_env.world.answers import InterviewQuestion, InterviewReply, answer_of
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Task


def _check_policies(what: str, policies: Sequence[object]) -> None:
    if not policies:
        raise InvalidValueError(field=what, expected="at least one policy")
    for policy in policies:
        check_members(what, "policies", policy, Policy)


@dataclass(frozen=True, slots=True)
class MixedPolicy:
    """One policy for each seat under one name, for places that take a single policy.

    Attributes:
        seats: the policy of each agent id, such as ``{"agent_0": …, "agent_1": …}``.
        name: of the policy in records.
    """

    seats: Mapping[str, Policy]
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _check_policies("seats", list(self.seats.values()))
        names = "+".join(policy.name for policy in self.seats.values())
        object.__setattr__(self, "name", self.name or f"mixed({names})")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Name and parameters of the policy of each seat."""
        return {
            agent: {"name": policy.name, "parameters": dict(policy.parameters)} for agent, policy in self.seats.items()
        }

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns what the seat's own policy decides.

        Raises:
            UnknownNameError: the seat has no policy.
        """
        return await self._policy(observation.agent).act(observation, seed)

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the answer of the seat's own policy.

        Raises:
            UnknownNameError: the seat has no policy.
        """
        return await answer_of(self._policy(observation.agent), observation, question, seed)

    def _policy(self, agent: str) -> Policy:
        policy = self.seats.get(agent)
        if policy is None:
            raise UnknownNameError(field="seats", got=agent, valid=self.seats)
        return policy


@dataclass(frozen=True, slots=True)
class Mixture:
    """Policies in given proportions, of which each episode draws its own.

    The draw is made when episodes are planned, from the seed and the task alone, so that the record of an episode names
    the policy that played it::

        plans = [EpisodePlan(task, mixture.seating(task, seed, repeat), seed=seed, repeat=repeat)
                 for task in tasks for repeat in range(5)]

    Attributes:
        policies: what to draw from, at least one.
        weights: in which proportions, zero or more each; all alike by default.
    """

    policies: Sequence[Policy]
    weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        _check_policies("policies", self.policies)
        weights = list(self.weights) or [1.0] * len(self.policies)
        usable = all(0 <= weight < float("inf") for weight in weights) and sum(weights) > 0
        if len(weights) != len(self.policies) or not usable:
            raise InvalidValueError(
                field="weights",
                expected=f"a number, zero or more, for each of {len(self.policies)} policies",
                got=weights,
            )
        object.__setattr__(self, "weights", tuple(weights))

    def draw(self, seed: int, *key: object) -> Policy:
        """Returns one policy; equal seeds and keys draw alike.

        Args:
            seed: fixes the draws.
            key: what the draw is for, such as a task's id and a seat; numbers and texts.
        """
        digest = hashlib.sha256(canonical_json([seed, *key]).encode()).digest()
        generator = random.Random(int.from_bytes(digest[:8], "big"))
        return generator.choices(self.policies, self.weights)[0]

    def seating(self, task: Task, seed: int, repeat: int = 0) -> tuple[Policy, ...]:
        """Returns a policy for every seat of a task, each drawn on its own."""
        return tuple(self.draw(seed, task.content_hash, repeat, seat) for seat in range(len(task.agents)))
