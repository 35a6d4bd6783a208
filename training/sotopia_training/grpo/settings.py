"""Settings of GRPO, and their checks before a model is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.envs import EpisodeReward
from sotopia_env.foundation.errors import FieldError, InvalidValueError
from sotopia_env.foundation.extras import extra, install_command
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.naming.seats import SELF, check_seat_names, partners_of, seats_named
from sotopia_env.world import Dimension, Scalarisation
from sotopia_training.attribution.by_outcome import make_attributor
from sotopia_training.attribution.settings import COUNTERFACTUAL
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting.arguments import PAPER, FitSettings, training_arguments
from sotopia_training.grpo.situations import PAST, SituationSettings, read_tasks
from sotopia_training.models.constraints import is_available
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import Dtype, LoraSettings, ModelSettings, PromptSettings, Quantization

BELIEF = "belief"
"""The value of ``reward.turns`` that pays for the change of what the other seats believe."""


class RewardSettings(Settings):
    """Settings of the reward of an answer or an episode.

    Attributes:
        model: the output directory of a reward model; single-turn only.
        evaluator: scores whole episodes; multi-turn only.
        scalarisation: the scalarisation of whole episodes: ``share``, the signed share of what the seat could gain (1
            for its best outcome, 0 for none, below 0 for one that is worse than none), which needs tasks with an
            outcome; ``overall``, a dimension, or weights by dimension over scores mapped to [0, 1]. GOAL is ten times
            the share without its sign, so it pays a losing deal like none.
        turns: ``episode`` gives every turn the episode's reward; the name of an attributor
            (:mod:`sotopia_training.attribution.by_outcome`) gives every turn its part r_t = G · A; ``counterfactual``
            measures its turn reward by playing on (:mod:`sotopia_training.grpo.turn_rewards`), which needs many times
            the answers; ``belief`` pays each turn for the change of what the other seats believe, alone, and needs an
            evaluator that asks them, such as ``verified+facts:probe=turns,interviewee=bayesian``.
        samples: the number of continuations of each state with ``turns: counterfactual``.
        invalid: the penalty for impossible actions. It is added to the reward of such an answer; an episode's reward
            gets it multiplied by the share of such answers. It has the unit of the reward: -1 takes a seat's whole
            possible gain as a share, and a tenth of it as GOAL.
        gate: whether an answer that is impossible or was cut off has the reward ``invalid``, without the reward model's
            score; single-turn only.
    """

    model: str | None = None
    evaluator: str = "verified"
    scalarisation: str | Mapping[str, float] = "share"
    turns: str = "episode"
    samples: int = Field(default=4, ge=1)
    invalid: float = Field(default=-1.0, le=0)
    gate: bool = True

    @model_validator(mode="before")
    @classmethod
    def _check_name(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "credit" in values:
            raise InvalidValueError("this setting is now reward.turns", field="credit", hint="its values are the same")
        return values


def rewarded_dimension(reward: RewardSettings) -> str:
    """Returns the full name of the dimension by which turns are rewarded; for the share FIN, five times the share.

    Raises:
        InvalidValueError: the scalarisation is neither the share nor a single dimension.
    """
    scalarisation = Scalarisation.of(reward.scalarisation)
    single = Dimension.FINANCIAL_AND_MATERIAL_BENEFITS if scalarisation.share else scalarisation.single
    if single is None:
        raise InvalidValueError(
            "rewards of turns need the share or one dimension as scalarisation, e.g. 'goal'", field="reward.turns"
        )
    return single.value


class DevSettings(Settings):
    """Settings of dev episodes: whole episodes that are played with the policy during training.

    Attributes:
        situations: the situations, on tasks that are used neither for training nor for reported results.
        temperature: the sampling temperature; ``None`` uses that of training.
        every: the number of optimiser steps between two evaluations.
        patience: the number of evaluations without improvement after which training ends; ``None`` for no limit.
    """

    situations: SituationSettings
    temperature: float | None = Field(default=None, gt=0, le=10)
    every: int = Field(default=20, ge=1)
    patience: int | None = Field(default=None, ge=1)

    @field_validator("situations")
    @classmethod
    def _check_partners(cls, value: SituationSettings) -> SituationSettings:
        if value.has(SELF) or value.has(PAST):
            raise InvalidValueError(
                "evaluations can only be compared with partners that stay the same",
                field="partners",
                got=value.partners,
            )
        return value


class GRPOSettings(FitSettings):
    """Settings of a stage of group-relative policy optimisation (SOTOPIA-RL, arXiv 2508.03905, §4.2 and C.1).

    ``trainer`` is TRL's ``GRPOConfig``: ``num_generations`` answers or episodes form a group, ``beta`` weights the KL
    penalty, and ``per_device_train_batch_size`` counts answers (episodes), not prompts. ``scale_rewards`` divides
    advantages by the standard deviation of the rewards of their ``group`` (the papers' method and TRL's default) or of
    the whole ``batch``, or leaves them as they are (``none``). With ``group``, episodes that differ only in a refused
    turn get advantages as large as those between a good deal and a bad one; in whole episodes use the other two.

    Attributes:
        mode: ``single-turn`` samples answers to prompts cut from episodes and scores them with the reward model;
            ``multi-turn`` plays whole episodes in the environment.
        start_from: the output directory of the stage whose model is trained further, e.g. of behaviour cloning.
        quantization: loads the base in 4 bit; see :class:`sotopia_training.stage.settings.ModelSettings`.
        dtype: the data type of the weights; see :class:`~sotopia_training.stage.settings.ModelSettings`.
        reference: the reference of the KL penalty if ``trainer.beta`` is above 0: ``start``, the model at the start of
            training (the cloned policy, as in the paper), or its ``base`` without adapter.
        data: the episodes whose prompts are answered; single-turn only.
        situations: the situations of the played episodes; multi-turn only.
        reward: the reward of an answer or an episode.
        constrained: whether answers are sampled under the schema of the possible actions, and trained under the same
            masks. This trains the constrained policy, which should be played with ``constrained=on``; multi-turn only
            (:mod:`sotopia_training.grpo.masked_head`).
        max_answer: the maximum number of tokens of an answer; ``None`` uses that of the earlier stage's prompt
            settings.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; its scenarios are refused as training data.
        dev: whole episodes played during training.
        models: the access to models on servers, as partners and judges; processes share its limits.
        output: the directory of the stage.
    """

    defaults: ClassVar[Mapping[str, JsonValue]] = {
        **PAPER,
        "learning_rate": 5e-6,
        "num_train_epochs": 2,
        "num_generations": 16,
    }
    mode: Literal["single-turn", "multi-turn"]
    start_from: str
    quantization: Quantization = "none"
    dtype: Dtype = "float32"
    attention: str | None = None
    lora: LoraSettings | None = LoraSettings()
    reference: Literal["start", "base"] = "start"
    data: tuple[SourceSettings, ...] = ()
    situations: SituationSettings | None = None
    reward: RewardSettings = RewardSettings()
    constrained: bool = False
    max_answer: int | None = Field(default=None, ge=1)
    evaluation_tasks: str | None = None
    dev: DevSettings | None = None
    models: ModelOptions = ModelOptions()
    output: str

    @property
    def model(self) -> ModelSettings:
        """The loading options of the model; base and adapter are those of ``start_from``."""
        return ModelSettings(
            base=self.start_from,
            lora=self.lora,
            quantization=self.quantization,
            dtype=self.dtype,
            attention=self.attention,
        )


def world_size() -> int:
    """Returns the number of processes of a distributed run; does not need torch."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check(settings: GRPOSettings) -> None:
    """Checks for contradictory settings.

    Raises:
        InvalidValueError: names the settings and a valid choice.
    """
    multi = settings.mode == "multi-turn"
    if multi and settings.situations is None:
        raise InvalidValueError("needed for mode 'multi-turn'", field="situations")
    if not multi and not (settings.data and settings.reward.model):
        raise InvalidValueError("both are needed for mode 'single-turn'", field="data, reward.model")
    _check_mode(settings)
    if settings.constrained and not is_available():
        raise InvalidValueError("true needs llguidance", field="constrained", hint=install_command("constrained"))
    if settings.keep == "best" and settings.dev is None:
        raise InvalidValueError("'best' needs dev episodes", field="keep", hint="set dev, or keep: last")
    if isinstance(settings.keep, int):
        raise InvalidValueError(field="keep", expected="'last' or 'best' for GRPO", got=settings.keep)
    scalarisation = Scalarisation.of(settings.reward.scalarisation)
    if settings.reward.turns == BELIEF:
        _check_beliefs(settings)
    elif settings.reward.turns != "episode":
        rewarded_dimension(settings.reward)
        if settings.reward.turns != COUNTERFACTUAL:
            make_attributor(settings.reward.turns)
    played = {"situations": settings.situations, "dev.situations": settings.dev.situations if settings.dev else None}
    for name, situations in played.items():
        if situations is not None:
            _check_partners(name, situations)
            _check_measured(settings, scalarisation, name, situations)
    _check_groups(settings.trainer)


def _check_beliefs(settings: GRPOSettings) -> None:
    """Checks that the evaluator asks for beliefs after every turn, of a policy that it has."""
    evaluator = make_evaluator(settings.reward.evaluator, model_factory=ModelPool(settings.models).judge)
    members = evaluator.parameters.get("members", {evaluator.name: evaluator.parameters}).values()
    if not any(member.get("probe") == "turns" and member.get("interviewee") for member in members):
        raise InvalidValueError(
            field="reward.evaluator",
            expected=f"one that asks a policy for beliefs after every turn, for turns {BELIEF!r}",
            got=settings.reward.evaluator,
            hint="for example 'verified+facts:probe=turns,interviewee=bayesian'",
        )


def _check_partners(name: str, played: SituationSettings) -> None:
    """Checks the names of seats and scripted partners; directories of models may be those of stages to come."""
    if played.tasks is None or Path(played.tasks).exists():
        tasks = read_tasks(played)
        check_seat_names(tasks, played.partners, f"{name}.partners")
        check_seat_names(tasks, played.learners, f"{name}.learners", relative=False)
        for task in tasks:
            for seat in seats_named(task, played.learners):
                partners_of(task, seat, played.partners)
    for rung in (rung for rungs in played.partners.values() for rung in rungs):
        if rung.policy not in (SELF, PAST) and "/" not in rung.policy.partition(":")[0]:
            try:
                make_policy(rung.policy)
            except FieldError as error:
                raise type(error).of(error, within=f"{name}.partners") from None


def _check_measured(settings: GRPOSettings, scalarisation: Scalarisation, name: str, played: SituationSettings) -> None:
    """Checks that the evaluator scores the dimensions of the reward; a judge is created, but not called."""
    if played.tasks is not None and not Path(played.tasks).exists():
        return  # the file of a stage that has not run yet; reading it later raises an error
    evaluator = make_evaluator(settings.reward.evaluator, model_factory=ModelPool(settings.models).judge)
    # A task of each family is enough: whether a dimension is scored depends only on the family and the evaluator.
    one_of_each = played.model_copy(update={"count": max(1, len(played.families))})
    for task in read_tasks(one_of_each):
        try:
            EpisodeReward.of(task, evaluator, scalarisation)
        except InvalidValueError as error:
            raise InvalidValueError.of(error, within="reward", where=name) from None


_ONLY = {
    "single-turn": ("data", "reward.model", "reward.gate"),
    "multi-turn": ("situations", "reward.turns", "reward.samples", "constrained"),
}
"""Settings that have an effect in one mode only."""


def _check_mode(settings: GRPOSettings) -> None:
    """Checks that no setting is set that has an effect only in the other mode."""
    (other,) = _ONLY.keys() - {settings.mode}
    for name in _ONLY[other]:
        *owner, last = name.split(".")
        holder: Settings = getattr(settings, owner[0]) if owner else settings
        if getattr(holder, last) != type(holder).model_fields[last].default:
            raise InvalidValueError(
                f"only for mode {other!r}", field=name, hint=f"it has no effect in mode {settings.mode!r}"
            )


def _check_groups(trainer: Mapping[str, JsonValue]) -> None:
    """Checks that a generation batch consists of whole groups."""
    if "generation_batch_size" in trainer:
        return  # TRL divides it by the batch itself
    batch, group, steps = (
        trainer.get(name, 1)
        for name in ("per_device_train_batch_size", "num_generations", "gradient_accumulation_steps")
    )
    steps = trainer.get("steps_per_generation", steps)
    if not (isinstance(batch, int) and isinstance(group, int) and isinstance(steps, int)):
        return  # types are checked elsewhere, with all other arguments
    answers = batch * steps * world_size()
    if group > 0 and answers % group:
        fitting = next(count for count in range(1, group + 1) if batch * world_size() * count % group == 0)
        raise InvalidValueError(
            f"per_device_train_batch_size {batch} × steps_per_generation {steps} × {world_size()} processes = "
            f"{answers} answers cannot be divided into groups of {group}",
            field="trainer.num_generations",
            hint=f"e.g. steps_per_generation: {fitting}",
        )


def check_rows(rows: int, arguments: Any) -> None:
    """Checks that the prompts or situations fill one generation batch; TRL would end without a step.

    Raises:
        InvalidValueError: there are fewer.
    """
    batch, group = arguments.generation_batch_size, arguments.num_generations
    if rows * group < batch:
        raise InvalidValueError(
            field="data",
            expected=f"at least {batch // group} prompts or situations for the {batch} answers of a generation batch "
            f"in groups of {group}",
            got=rows,
            hint="lower trainer.per_device_train_batch_size or steps_per_generation",
        )


def trainer_arguments(settings: GRPOSettings, prompt: PromptSettings | None = None) -> Any:
    """Returns TRL's arguments; ``prompt`` is the policy's, if the stage that it is started from has run.

    Raises:
        UnknownNameError: TRL has no such argument.
        InvalidValueError: an argument is of another type, out of bounds, or contradicts another one.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # TRL is pinned, because rollout_func is experimental
    with extra("train"):
        from trl.trainer.grpo_config import GRPOConfig

    decided: dict[str, Any] = {"max_completion_length": settings.max_answer or (prompt or PromptSettings()).max_answer}
    if settings.trainer.get("beta"):
        # Policy and reference would draw different dropout masks, and KL would measure the difference.
        decided["disable_dropout"] = True
    if settings.trainer.get("use_vllm") and "vllm_max_model_length" not in settings.trainer and prompt is not None:
        # By default vLLM reserves a cache for the longest context of the model.
        decided["vllm_max_model_length"] = prompt.max_length
    output = StageDirectory(Path(settings.output), "", settings).checkpoints
    arguments = training_arguments(settings, str(output), False, GRPOConfig, **decided)
    _check_checkpoints(arguments)
    return arguments


def _check_checkpoints(arguments: Any) -> None:
    """Checks that no checkpoint is between two generations: TRL would continue from it with other answers."""
    passes, accumulated = (
        arguments.steps_per_generation * arguments.num_iterations,
        arguments.gradient_accumulation_steps,
    )
    steps = math.lcm(passes, accumulated) // accumulated  # of the optimiser, from a generation to another one
    saved = arguments.save_steps
    if arguments.save_strategy == "steps" and saved >= 1 and saved % steps:
        raise InvalidValueError(
            field="trainer.save_steps",
            expected=f"a multiple of {steps}, as new answers are generated every {steps} steps and a stage that was "
            "stopped between two generations cannot continue exactly",
            got=saved,
        )
