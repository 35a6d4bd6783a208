"""The recipe of the proof: the numbers of its stages, chosen on dev tasks.

The defaults here are the second frozen recipe; its figures and those of the first stand in ``LOG.md``. What scripted
speakers do stands in :mod:`training.proof.speakers`, and which rewards are compared in
:mod:`training.proof.seed_run`: these are a part of the recipe as well, and a run that was begun with others is to be
thrown away.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt, model_validator

from sotopia_env.settings import Settings
from training.fitting.arguments import FitSettings
from training.proof.base_model import BaseSettings
from training.stage.settings import LoraSettings, PromptSettings

SEEN = ("linear:horizon=3,floor=0.0", "conceder:horizon=3,floor=0.0", "splitter:floor=0.0")
UNSEEN = (
    "micro:steps=3",
    "hard-headed:horizon=3,floor=0.0",
    "frequency:horizon=3,floor=0.0",
    "tit-for-tat:horizon=3,floor=0.0,goodwill=1.0",
    "random-walk:floor=0.0",
    "liar:horizon=3,floor=0.0",
)
"""The field's opponents, which neither the expert nor a partner in training is."""
PROMPT = PromptSettings(format="brief", max_length=768, max_answer=64)


def _fit(rate: float, steps: int, batch: int, warmup: float = 0.05) -> FitSettings:
    trainer: dict[str, JsonValue] = {
        "learning_rate": rate,
        "max_steps": steps,
        "per_device_train_batch_size": batch,
        "lr_scheduler_type": "linear",
        "warmup_steps": warmup,
        "adam_beta2": 0.99,
        "save_steps": 10_000,
    }
    return FitSettings(trainer=trainer)


class GroupSettings(Settings):
    """One kind of GRPO.

    Attributes:
        fit: optimisation; the batch counts answers or episodes.
        num_generations: of one group; with few, a step sees many situations, which a tiny model needs more.
        prompts: tasks that are played, from both seats; multi-turn only.
        temperature: of sampling in training.
        every: steps between two looks at the dev episodes.
    """

    fit: FitSettings
    num_generations: int = 4
    prompts: PositiveInt = 200
    temperature: float = Field(default=0.7, gt=0)
    every: PositiveInt = 10


class Recipe(Settings):
    """All of it.

    Attributes:
        families: of the tasks, taking turns.
        level: difficulty of the tasks.
        task_seed: of the tasks and their split.
        base_tasks: tasks for the base model's talk.
        train: training tasks; ``dev`` for choosing; ``test`` for the report, each played in both seats.
        max_turns: of an episode.
        temperature: of sampling in tests and recordings; at 1 a model this small writes many a wrong offer.
        training_partners: their names; in tests they are called *seen*.
        test_partners: in tests alone, *unseen*.
        words: whether anything is said beside the moves.
        base: what all seeds begin from.
        expert_tasks: tasks that the expert is recorded on.
        expert_patience: what that of :class:`training.proof.speakers.PlainDealer` is drawn from for each conversation.
        own_tasks: tasks that the cloned model is recorded on, each ``own_repeats`` times; the best is trained on.
        forced_tasks: tasks on which moves are forced, for the reward model.
        forced_samples: continuations of each forced move; more states say more than more continuations.
        lora: of every stage but the reward models, which begin with the base and train all weights.
        cloning: behaviour cloning.
        reinforcing: self-reinforcement.
        reward_model: of each reward model.
        corrupted: share of further rows whose answer is broken and worth nothing.
        single_turn: GRPO with a reward model.
        multi_turn: GRPO on whole episodes.
        arms: further stages, by name (:data:`training.proof.claims.ARMS`); they can be added to a run that is done.
        past_selves: whether every stage plays a third of the test tasks with its seed's clone too; likewise.
        turn_samples: continuations of each state, of the arm ``turn_credit``.
        seeds: training seeds of the report; two or more, since verdicts go by how they differ.
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
    base: BaseSettings = BaseSettings(output="", partners=SEEN, fit=_fit(5e-3, 2000, 16))
    expert_tasks: PositiveInt = 600
    expert_patience: tuple[NonNegativeInt, ...] = Field(default=(0, 0, 1, 1, 2, 3), min_length=1)
    own_tasks: PositiveInt = 165
    own_repeats: PositiveInt = 5
    forced_tasks: PositiveInt = 600
    forced_samples: PositiveInt = 1
    lora: LoraSettings | None = LoraSettings(rank=16, alpha=32, dropout=0.0, target_modules="all-linear")
    cloning: FitSettings = _fit(5e-3, 160, 12)
    reinforcing: FitSettings = _fit(3e-3, 30, 12)
    reward_model: FitSettings = _fit(1e-3, 600, 12)
    corrupted: float = Field(default=0.15, ge=0)
    single_turn: GroupSettings = GroupSettings(fit=_fit(2e-3, 40, 64, warmup=0.0), temperature=1.0, every=20)
    multi_turn: GroupSettings = GroupSettings(fit=_fit(2e-3, 24, 64, warmup=0.0), temperature=0.7, every=12)
    arms: tuple[Literal["uniform", "direct", "goal_alone", "turn_credit", "best_of_8"], ...] = ()
    past_selves: bool = False
    turn_samples: PositiveInt = 2
    seeds: tuple[NonNegativeInt, ...] = Field(default=(54, 55, 56), min_length=2)

    @model_validator(mode="after")
    def _check_counts(self) -> Recipe:
        counts = {name: getattr(self, name) for name in ("expert_tasks", "own_tasks", "forced_tasks")}
        counts["multi_turn.prompts"] = self.multi_turn.prompts
        for name, count in counts.items():
            if count > self.train:
                raise ValueError(f"{name}: expected at most the {self.train} training tasks (train), got {count}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: expected each once, got {self.seeds}")
        return self
