"""The evaluation: every policy takes every seat of the test tasks, with the partners of a condition in the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field
from sotopia_training.collect import collection
from sotopia_training.collect.collection import CollectionSettings, Participants, PlaySettings
from sotopia_training.collect.task_generation import TaskSettings

from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import make_policy
from sotopia_env.policies import Policy

WORDLESS = "studies.social_learning.wordless:wordless:policy=({})"
"""The name of a script that says nothing besides its moves."""


class Game(Settings):
    """The tasks of one game, and who plays them.

    Attributes:
        name: the name in the report.
        tasks: a file of tasks that no stage trained on.
        evaluator: scores the episodes.
        policies: directories of models (``./NAME``) and scripts, each of which takes every seat in turn.
        partners: by condition, the scripts in the other seats by the names of seats.
    """

    name: str
    tasks: str
    evaluator: str
    policies: tuple[str, ...] = Field(min_length=1)
    partners: dict[str, dict[str, str]] = Field(min_length=1)


class EvaluationSettings(Settings):
    """Settings of the evaluation.

    Attributes:
        games: the games.
        manner: the options with which models play.
        concurrency: the number of episodes at a time, which share batches of the model.
        output: the directory, with a run for each game, condition and policy.
    """

    games: tuple[Game, ...] = Field(min_length=1)
    manner: str
    concurrency: int = Field(default=256, ge=1)
    output: str

    def collections(self) -> Iterator[tuple[Game, str, str, CollectionSettings]]:
        """Yields game, condition, policy and the settings of each run."""
        for game in self.games:
            for condition, partners in game.partners.items():
                for policy in game.policies:
                    settings = CollectionSettings(
                        agent=self.agent(policy),
                        partner={seat: WORDLESS.format(script) for seat, script in partners.items()},
                        tasks=TaskSettings(given=game.tasks, pairs=0),
                        evaluator=game.evaluator,
                        play=PlaySettings(orders="first", concurrency=self.concurrency),
                        output=str(Path(self.output) / game.name / condition / label(policy)),
                    )
                    yield game, condition, label(policy), settings

    def agent(self, policy: str) -> str:
        """Returns the whole name of one of the policies."""
        is_model = policy.startswith("./")
        return f"{policy}:{self.manner},name={label(policy)}" if is_model else WORDLESS.format(policy)


def label(policy: str) -> str:
    """Returns the short name of a policy."""
    return policy.removeprefix("./").partition(":")[0]


def run(settings: EvaluationSettings) -> None:
    """Plays what is missing."""
    policies: dict[str, Policy] = {}  # each model is loaded once
    for _, _, _, item in settings.collections():
        if item.agent not in policies:
            policies[item.agent] = make_policy(item.agent)
        collection.run(item, Participants(agent=policies[item.agent]))
