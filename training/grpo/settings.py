"""Settings of GRPO, and their checks before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

from pydantic import Field

from sotopia_env.errors import InvalidValueError
from sotopia_env.world import Scalarisation
from training.data.sources import SourceSettings
from training.fitting.loop import FitSettings
from training.grpo.situations import SituationSettings
from training.stage.access import ModelAccess
from training.stage.settings import LoraSettings, ModelSettings, Settings


class RewardSettings(Settings):
    """The reward of an answer or an episode.

    Attributes:
        model: output directory of a reward model; single-turn only.
        evaluator: scores whole episodes; multi-turn only.
        scalarisation: ``overall``, a dimension, or weights by dimension over scores mapped to [0, 1]; of whole
            episodes.
        credit: ``episode`` gives every turn the episode's reward; the name of an attributor
            (:mod:`training.attribution.by_outcome`) gives every turn its own part r_t = G · A; ``counterfactual`` gives
            it its gain, measured by playing on (:mod:`training.grpo.branches`), at many times the answers.
        samples: continuations of each state, of ``credit: counterfactual``.
        invalid: penalty for impossible actions: added to the reward of such an answer, and to an episode's reward times
            the share of such answers.
        gate: whether an answer that is impossible or was cut off has the reward ``invalid``, without the reward model's
            score; single-turn only.
    """

    model: str | None = None
    evaluator: str = "verified+rules"
    scalarisation: str | Mapping[str, float] = "goal"
    credit: str = "episode"
    samples: int = Field(default=4, ge=1)
    invalid: float = Field(default=-1.0, le=0)
    gate: bool = True


class DevSettings(Settings):
    """Dev episodes: whole episodes that are played with the policy during training.

    Attributes:
        situations: on tasks that are neither trained nor reported on.
        temperature: of sampling; ``None`` takes that of training.
        every: optimiser steps between two evaluations.
        patience: evaluations without a better result after which training ends; ``None`` for no end.
    """

    situations: SituationSettings
    temperature: float | None = Field(default=None, gt=0)
    every: int = Field(default=20, ge=1)
    patience: int | None = Field(default=None, ge=1)


class GRPOSettings(Settings):
    """One stage of group-relative policy optimisation (SOTOPIA-RL, arXiv 2508.03905, §4.2 and C.1).

    Attributes:
        mode: ``single-turn`` samples answers to prompts cut from episodes and scores them with the reward model;
            ``multi-turn`` plays whole episodes in the environment.
        start_from: output directory of the stage whose model is trained further, e.g. behaviour cloning's.
        quantization: loads the base in 4 bit; see :class:`training.stage.settings.ModelSettings`.
        dtype: of the weights.
        reference: of the KL penalty when ``beta`` is above 0: ``start``, the model at the start of training (the cloned
            policy, as in the paper), or its bare ``base``.
        beta: weight of the KL penalty; above 0 dropout is off, because KL would measure its masks.
        data: episodes whose prompts are answered; single-turn only.
        situations: of the played episodes; multi-turn only.
        reward: of an answer or an episode.
        num_generations: answers per prompt, or episodes per situation: one group.
        steps_per_generation: batches that are generated at once.
        temperature: of sampling.
        max_answer: tokens of one answer; ``None`` takes that of the earlier stage's prompt settings.
        scale_rewards: whether advantages are divided by the standard deviation of their ``group`` or ``batch``.
        loss: TRL's ``loss_type``.
        vllm: ``none``, or TRL's ``colocate`` or ``server`` mode.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; its scenarios are refused as training data.
        dev: whole episodes played during training.
        keep: the saved model: the ``last``, or the ``best`` by the dev episodes' reward.
        access: to models on servers, as partners and as judges; processes share its limits.
        check_memory: whether a run that cannot fit is refused before it starts.
        output: the stage's directory.
        fit: optimisation; the batch size counts answers (episodes), not prompts.
    """

    mode: Literal["single-turn", "multi-turn"]
    start_from: str
    quantization: str = Field(default="none", pattern="^(none|nf4)$")
    dtype: str = Field(default="float32", pattern="^(float32|bfloat16|float16)$")
    attention: str | None = None
    lora: LoraSettings | None = LoraSettings()
    reference: Literal["start", "base"] = "start"
    beta: float = Field(default=0.0, ge=0)
    data: tuple[SourceSettings, ...] = ()
    situations: SituationSettings | None = None
    reward: RewardSettings = RewardSettings()
    num_generations: int = Field(default=16, ge=2)
    steps_per_generation: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    max_answer: int | None = Field(default=None, ge=1)
    scale_rewards: Literal["group", "batch", "none"] = "group"
    loss: str = "dapo"
    vllm: Literal["none", "colocate", "server"] = "none"
    evaluation_tasks: str | None = None
    dev: DevSettings | None = None
    keep: Literal["last", "best"] = "last"
    access: ModelAccess = ModelAccess()
    check_memory: bool = True
    output: str
    fit: FitSettings = FitSettings(learning_rate=5e-6, epochs=2, batch_size=4)

    @property
    def model(self) -> ModelSettings:
        """Loading options of the model; base and adapter are those of ``start_from``."""
        return ModelSettings(
            base=self.start_from,
            lora=self.lora,
            quantization=self.quantization,
            dtype=self.dtype,
            attention=self.attention,
        )

    @property
    def generation_batch(self) -> int:
        """Answers that are generated and compared at once, over all processes."""
        return self.fit.batch_size * self.steps_per_generation * world_size()


def world_size() -> int:
    """Number of processes of a distributed run; works before torch is imported."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check(settings: GRPOSettings) -> None:
    """Checks for contradictory settings.

    Raises:
        InvalidValueError: names the settings and a valid choice.
    """
    multi = settings.mode == "multi-turn"
    if multi and settings.situations is None:
        raise InvalidValueError("situations: expected for mode 'multi-turn', got none")
    if not multi and not (settings.data and settings.reward.model):
        raise InvalidValueError("data, reward.model: both expected for mode 'single-turn'")
    if multi and (settings.data or settings.reward.model):
        raise InvalidValueError("data, reward.model: only for mode 'single-turn'; whole episodes are evaluated")
    if settings.keep == "best" and settings.dev is None:
        raise InvalidValueError("keep: 'best' needs dev episodes; give dev, or keep the last")
    if settings.fit.keep != "last":
        raise InvalidValueError("fit.keep: GRPO keeps by `keep` at the top, not by epochs")
    if settings.vllm != "none" and find_spec("vllm") is None:
        raise InvalidValueError(f"vllm: {settings.vllm!r} needs the package vllm; install it, or set vllm: none")
    one = isinstance(settings.reward.scalarisation, str) and settings.reward.scalarisation != "overall"
    if settings.reward.credit != "episode" and not one:
        raise InvalidValueError("reward.credit: an attributor needs one dimension as scalarisation, e.g. 'goal'")
    Scalarisation.of(settings.reward.scalarisation)
    batch, group = settings.generation_batch, settings.num_generations
    if batch % group:
        raise InvalidValueError(
            f"num_generations: batch_size {settings.fit.batch_size} × steps_per_generation "
            f"{settings.steps_per_generation} × {world_size()} processes = {batch} answers cannot be divided into "
            f"groups of {group}; e.g. steps_per_generation: {_fitting_steps(settings)}"
        )


def _fitting_steps(settings: GRPOSettings) -> int:
    one = settings.fit.batch_size * world_size()
    return next(
        steps for steps in range(1, settings.num_generations + 1) if one * steps % settings.num_generations == 0
    )
