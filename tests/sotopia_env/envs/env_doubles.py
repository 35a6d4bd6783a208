"""Evaluators, partners and tasks for the tests of the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.foundation.errors import EvaluationError, PolicyError
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.reward import DIMENSIONS
from sotopia_env.world.scenario import Task
from tests.sotopia_env.factories import scenario, task

ORDERS = ("round-robin", "random", "simultaneous", "reactive")

VECTORS = {
    "agent_0": (8.0, 2.5, 6.0, -1.0, -2.0, 1.5, 9.0),
    "agent_1": (5.0, -3.0, 0.0, -10.0, 0.0, -5.0, 0.0),
    "agent_2": (10.0, 5.0, 10.0, 0.0, 0.0, 5.0, 10.0),
}
"""What :class:`FixedEvaluator` gives, in the order of the dimensions; means 24/7, -13/7 and 40/7."""
OVERALL = {"agent_0": 24 / 7, "agent_1": -13 / 7, "agent_2": 40 / 7}


@dataclass(frozen=True)
class FixedEvaluator:
    """Always the scores of :data:`VECTORS`, listed last agent first, because matching by position is a known bug."""

    name: str = "fixed"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    missing: str | None = None
    extra: str | None = None
    unscored: str | None = None
    error: str | None = None

    async def evaluate(self, episode: Episode) -> Evaluation:
        if self.error is not None:
            raise EvaluationError(self.error)
        agents = [agent for agent in reversed(episode.task.agents) if agent != self.missing]
        vectors = [(agent, VECTORS[agent]) for agent in agents]
        vectors += [(self.extra, VECTORS["agent_0"])] if self.extra else []
        scores = tuple(
            Score(agent=agent, dimension=dimension, value=value)
            for agent, vector in vectors
            for dimension, value in zip(DIMENSIONS, vector, strict=True)
        )
        return Evaluation(evaluator=self.name, scores=scores, unscored=self.unscored)


@dataclass
class Tally:
    """An evaluator that counts the episodes it is asked about: a suite that ends none has tested little."""

    inner: Evaluator = field(default_factory=FixedEvaluator)
    name: str = "tally"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    episodes: int = 0

    async def evaluate(self, episode: Episode) -> Evaluation:
        self.episodes += 1
        return await self.inner.evaluate(episode)


@dataclass(frozen=True)
class Partner:
    """Says its seat and the seed it was given; or leaves, or fails, or waits in an event loop first."""

    name: str = "partner"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    leaves: bool = False
    fails: bool = False
    wait: float | None = None

    async def act(self, observation: Observation, seed: int) -> Decision:
        assert observation.acting
        if self.wait is not None:
            await asyncio.sleep(self.wait)
        if self.fails:
            raise PolicyError("the model is down")
        if self.leaves:
            return Decision(Action(ActionType.LEAVE))
        return Decision(Action(ActionType.SPEAK, f"{observation.agent} {seed}"))


@dataclass
class Crowd:
    """A partner that waits, counts how many wait at the same time, and fails once, at the call of a number."""

    name: str = "crowd"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    wait: float = 0.01
    fails_at: int | None = None
    calls: int = 0
    present: int = 0
    peak: int = 0

    async def act(self, observation: Observation, seed: int) -> Decision:
        self.calls += 1
        if self.calls == self.fails_at:
            raise PolicyError("the model is down")
        self.present += 1
        self.peak = max(self.peak, self.present)
        await asyncio.sleep(self.wait)
        self.present -= 1
        return Decision(Action(ActionType.SPEAK, f"{observation.agent} {seed}"))


def table_task(seats: int = 2, private: bool = False, **fields: Any) -> Task:
    """A task with ``seats`` seats, private messages on request."""
    return task(seats, scenario=scenario(seats, private_messages=private), **fields)


def options(seats: int = 2, private: bool = False, **more: Any) -> dict[str, Any]:
    """Environment options with a task and the fixed evaluator."""
    return {"task": table_task(seats, private), "evaluator": FixedEvaluator(), **more}


def say(text: str = "Hello.", *to: str) -> Action:
    return Action(ActionType.SPEAK, text, to)
