"""The recipe of the study: its tasks, partners, counts and base model, chosen on dev tasks.

The YAML files of this folder set the training of each stage. These files, the scripted speakers
(:mod:`studies.learn.speakers`) and the compared rewards (:mod:`studies.learn.seed_run`) also belong to the recipe: do
not continue a run that started with different ones. This is the third frozen recipe: the second with the
reward model of the papers, of attributed episodes, in place of one of measured moves; docs/results.md has the figures.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt, model_validator
from sotopia_training.fitting.arguments import FitSettings
from sotopia_training.stage.settings import PromptSettings

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings
from sotopia_env.world.dynamics import Rules
from studies.learn.base_model import BaseSettings

SEEN = ("linear:horizon=3,floor=0.0", "conceder:horizon=3,floor=0.0", "splitter:floor=0.0")
UNSEEN = (
    "micro:steps=3",
    "hard-headed:horizon=3,floor=0.0",
    "frequency:horizon=3,floor=0.0",
    "tit-for-tat:horizon=3,floor=0.0,goodwill=1.0",
    "random-walk:floor=0.0",
    "liar:horizon=3,floor=0.0",
)
"""Opponents from the negotiation literature; neither the expert nor a training partner is among them."""
BASE_FIT = FitSettings(
    trainer={
        "learning_rate": 5e-3,
        "max_steps": 2000,
        "per_device_train_batch_size": 16,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0.05,
        "adam_beta2": 0.99,
        "save_steps": 10_000,
    }
)
"""Optimisation of the base model."""
PROMPT = PromptSettings(format="brief", max_length=768, max_answer=64)


class Recipe(Settings):
    """The numbers and names of the recipe.

    Attributes:
        families: the families of the tasks, which alternate.
        level: the difficulty of the tasks.
        task_seed: the seed of the tasks and their split.
        base_tasks: the number of tasks for the base model's talk.
        train: the number of training tasks; ``dev`` for choosing; ``test`` for the report, each played in both seats.
        max_turns: the turn limit of an episode.
        temperature: the sampling temperature in tests and recordings; at 1 a model this small writes many wrong offers.
        training_partners: names of the partners in training; in tests they are called *seen*.
        test_partners: names of the partners in tests only, called *unseen*.
        words: whether anything is said besides the moves.
        base: the settings of the base model, which all seeds share.
        expert_tasks: the number of tasks on which the expert is recorded.
        expert_patience: values from which the patience of :class:`studies.learn.speakers.PlainDealer` is drawn for
            each conversation.
        own_tasks: the number of tasks on which the cloned model is recorded, each ``own_repeats`` times; the best
            episodes are trained on.
        forced_tasks: the number of tasks for single-turn GRPO, on which the arm ``measured`` also forces moves.
        forced_samples: continuations of each forced move; more states are worth more than more continuations.
        corrupted: further rows with a broken answer of value 0, as a share of the rows.
        prompts: the number of tasks for GRPO on whole episodes, played from both seats.
        arms: further stages, by name (:data:`studies.learn.claims.ARMS`); they can be added to a complete run.
        past_selves: whether every stage also plays a third of the test tasks with its seed's clone; this can be added
            to a complete run, too.
        turn_samples: continuations of each state in the arm ``turn_credit``.
        seeds: the training seeds; two or more, because verdicts depend on their variation.
        changes: settings that replace a file's, by the file's name and the setting's key (``trainer.max_steps``).
    """

    families: tuple[str, ...] = Field(default=("bargaining", "division"), min_length=1)
    level: str = "easy"
    task_seed: int = 94
    base_tasks: PositiveInt = 2000
    train: PositiveInt = 600
    dev: PositiveInt = 32
    test: PositiveInt = 210
    max_turns: PositiveInt = 6
    temperature: float = Field(default=0.7, gt=0)
    training_partners: tuple[str, ...] = Field(default=SEEN, min_length=1)
    test_partners: tuple[str, ...] = Field(default=UNSEEN, min_length=1)
    words: bool = True
    base: BaseSettings = BaseSettings(output="", partners=SEEN, fit=BASE_FIT)
    expert_tasks: PositiveInt = 600
    expert_patience: tuple[NonNegativeInt, ...] = Field(default=(0, 0, 1, 1, 2, 3), min_length=1)
    own_tasks: PositiveInt = 165
    own_repeats: PositiveInt = 5
    forced_tasks: PositiveInt = 600
    forced_samples: PositiveInt = 1
    corrupted: float = Field(default=0.15, ge=0)
    prompts: PositiveInt = 200
    arms: tuple[Literal["measured", "direct", "goal_alone", "turn_credit", "best_of_8"], ...] = ()
    past_selves: bool = False
    turn_samples: PositiveInt = 2
    seeds: tuple[NonNegativeInt, ...] = Field(default=(54, 55, 56), min_length=2)
    changes: dict[str, dict[str, JsonValue]] = Field(default={})

    @property
    def rules(self) -> Rules:
        """The rules of every episode; without tables of worths, for which the recipe was not chosen."""
        return Rules(max_turns=self.max_turns, worths=False)

    @model_validator(mode="after")
    def _check_counts(self) -> Recipe:
        counts = {name: getattr(self, name) for name in ("expert_tasks", "own_tasks", "forced_tasks", "prompts")}
        for name, count in counts.items():
            if count > self.train:
                raise InvalidValueError(
                    field=name, expected=f"at most the {self.train} training tasks (train)", got=count
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise InvalidValueError(field="seeds", expected="each once", got=self.seeds)
        return self
