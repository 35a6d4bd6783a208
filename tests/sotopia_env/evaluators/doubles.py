"""Transcripts and evaluators for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Seat, Task
from tests.sotopia_env.factories import character, scenario, task

SPEAK, ACT, LEAVE, NONE = ActionType.SPEAK, ActionType.ACTION, ActionType.LEAVE, ActionType.NONE
BEL, REL, KNO, SEC, SOC, FIN, GOAL = tuple(Dimension)


def act(actor: int, text: str = "", kind: ActionType = SPEAK, to: tuple[int, ...] = ()) -> tuple[int, Action]:
    return actor, Action(kind, text, tuple(f"agent_{seat}" for seat in to))


def transcript(*acts: tuple[int, Action] | str, of: Task | None = None) -> Episode:
    """Texts alternate between the seats, beginning with seat 0."""
    the_task = of or task()
    seats = len(the_task.agents)
    turns = []
    for index, item in enumerate(acts):
        seat, action = (index % seats, Action(SPEAK, item)) if isinstance(item, str) else item
        turns.append(Turn(index, index // seats, f"agent_{seat}", action))
    return Episode(task=the_task).with_turns(turns)


def secretive_task(seats: int = 2, **fields: Any) -> Task:
    """Everybody has a goal, private information and a secret with words of their own."""
    material = (
        ("Sell the violin for at least 740 euros.", "The violin was repaired twice in Lisbon.", "Forged a diploma."),
        ("Buy a birthday present for your nephew.", "You inherited a vineyard last spring.", "Crashed the ferry."),
        ("Catch the last train to Antwerp.", "Your suitcase holds antique stamps.", "Hid the mayor's letters."),
    )
    values: dict[str, Any] = {
        "scenario": scenario(seats, seats=tuple(Seat(goals=(m[0],), private_info=m[1]) for m in material[:seats])),
        "characters": tuple(
            character(name, secret=f"{m[2]} Nobody at the harbour academy suspects it.")
            for name, m in zip(("Ada", "Bram", "Chidi"), material[:seats], strict=False)
        ),
    }
    return task(seats, kind="stranger", **{**values, **fields})


@dataclass
class Fixed:
    """Gives the scores it was told to give, by dimension, to every agent; or fails."""

    name: str
    values: Mapping[Dimension, float] = field(default_factory=dict)
    failure: str = ""
    unscored: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    async def evaluate(self, episode: Episode) -> Evaluation:
        if self.failure:
            raise EvaluationError(self.failure)
        scores = tuple(
            Score(agent=agent, dimension=dimension, value=value, reasoning="told to", source=self.name)
            for agent in episode.task.agents
            for dimension, value in self.values.items()
        )
        return Evaluation(evaluator=self.name, scores=() if self.unscored else scores, unscored=self.unscored)
