"""Tasks, policies and evaluators that are small enough to know by heart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import Episode, Evaluation, Generation, Score
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.reward import DIMENSIONS, RANGES
from sotopia_env.world.scenario import BigFive, Character, Relationship, RelationshipKind, Scenario, Seat, Task

_TRAITS = BigFive(openness="high", conscientiousness="low", extraversion="high", agreeableness="low", neuroticism="low")
_NAMES = ("Ada Quill", "Bo Tarn", "Cy Wren", "Dot Marsh", "Eli Fenn")


def make_task(scenario: str = "s0", cast: int = 0, seats: int = 2, turns: int = 4, private: bool = False) -> Task:
    """A task named after its scenario and casting."""
    characters = tuple(
        Character(
            first_name=name.split()[0],
            last_name=f"{name.split()[1]} {cast}" if cast else name.split()[1],
            age=30 + cast,
            gender="woman",
            pronouns="she/her",
            occupation="baker",
            big_five=_TRAITS,
            decision_style="directive",
        )
        for name in _NAMES[:seats]
    )
    pairs = [(i, j) for i in range(seats) for j in range(i + 1, seats)]
    return Task(
        id=f"{scenario}/{cast}",
        scenario=Scenario(
            id=scenario,
            context="Two people share a kitchen.",
            seats=tuple(Seat(goals=("Use the oven first.",)) for _ in range(seats)),
            max_turns=turns,
            private_messages=private,
        ),
        characters=characters,
        relationships=tuple(Relationship(seats=pair, kind=RelationshipKind.STRANGER) for pair in pairs),
    )


@dataclass(frozen=True)
class Speaker:
    """Says a fixed text and the seed it was given, after an optional wait."""

    name: str = "speaker"
    text: str = "hello there"
    wait: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    async def act(self, observation: Observation, seed: int) -> Decision:
        if self.wait is not None:
            await asyncio.sleep(self.wait)
        return Decision(Action(ActionType.SPEAK, f"{self.text} {seed}"), Generation(text=self.text))


@dataclass(frozen=True)
class Faulty(Speaker):
    """Raises ``error`` on its turn number ``at`` (from 1), as long as ``broken`` says so."""

    error: BaseException = field(default_factory=lambda: RuntimeError("the wire was cut"))
    at: int = 2
    broken: list[bool] = field(default_factory=lambda: [True])

    async def act(self, observation: Observation, seed: int) -> Decision:
        if observation.turn >= self.at and self.broken[0]:
            raise self.error
        return await super().act(observation, seed)


@dataclass(frozen=True)
class FixedEvaluator:
    """Gives the agent in seat ``k`` the fraction ``fractions[k]`` of every range; raises when ``fails``."""

    name: str = "fixed"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fractions: tuple[float, ...] = (0.8, 0.2, 0.5, 0.5, 0.5)
    outcome: OutcomeResult | None = None
    fails: Exception | None = None

    async def evaluate(self, episode: Episode) -> Evaluation:
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        scores = tuple(
            Score(agent=agent, dimension=d, value=RANGES[d][0] + share * (RANGES[d][1] - RANGES[d][0]))
            for agent, share in zip(episode.task.agents, self.fractions, strict=False)
            for d in DIMENSIONS
        )
        parameters = dict(self.parameters)
        return Evaluation(evaluator=self.name, parameters=parameters, scores=scores, outcome=self.outcome)


NO_VERDICT = EvaluationError("the judge wrote no JSON")
