"""What SOTOPIA-π's pipeline is asked to do; how it is done stands in :mod:`training.pi.pipeline`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training.collect.collection import PlaySettings
from training.collect.selection import BCFilter, SRFilter
from training.collect.task_generation import FamilySettings, TaskSettings, TaskSource
from training.fitting.loop import FitSettings
from training.models.tiny_base import TinyBaseSettings
from training.stage.settings import ModelSettings, PromptSettings, Settings

Update = Literal["bc", "sr"]


class TrainingSettings(Settings):
    """How the model is updated, beyond what the pipeline decides.

    Attributes:
        fit: optimisation.
        validation: share of the scenarios kept for the validation loss.
        keep_silence: whether turns in which nothing was done are learnt as well.
    """

    fit: FitSettings = FitSettings()
    validation: float = Field(default=0.1, ge=0, lt=1)
    keep_silence: bool = False


class SamplingSettings(Settings):
    """How a trained model plays; see :func:`training.models.policy.load`."""

    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    quantization: Literal["none", "nf4"] = "none"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_batch: int = Field(default=64, ge=1)


class EvaluationSettings(Settings):
    """How every model is measured: with one partner, on tasks that nobody trains on.

    Attributes:
        tasks: kept for evaluation. Whoever plays them, their scenarios are never trained on.
        partner: sits in the other seats, the same for all (SOTOPIA-π, section 4).
        base: whether the model is also measured before it is trained.
        expert: whether the expert is.
        play: how.
    """

    tasks: TaskSource = TaskSource(source="starter")
    partner: str
    base: bool = True
    expert: bool = True
    play: PlaySettings = PlaySettings()


class PipelineSettings(Settings):
    """The pipeline.

    Attributes:
        model: what is trained; every update goes on from the one before.
        tiny: makes ``model.base`` from nothing, in ``base/``.
        start_from: output directory of an earlier stage, whose model is trained further.
        prompt: how observations are put to the model.
        expert: the policy that behaviour cloning imitates.
        updates: in order; each has tasks of its own, collected, rated and filtered. ``bc`` learns from the expert
            with itself, ``sr`` from the model as it is then. More may be added to a pipeline that is done.
        tasks: of every update; seeds are moved on from update to update, inspirations are used once in all, and no
            scenario is made for two. ``given`` tasks are the same for every update.
        evaluator: rates episodes, and measures.
        max_unscored: share of a collection's episodes that may remain without a rating.
        play: how episodes are collected.
        sr_partner: collects for ``sr`` with this partner, of whom nothing is learnt, instead of with the model itself.
        bc_filter: what behaviour cloning takes.
        sr_filter: what self-reinforcement takes.
        bc: training on the expert's episodes (B.5; the last of 20 epochs, B.6).
        sr: training on the model's own (B.5; the model after epoch 5, B.6).
        sampling: how the model plays.
        launch: command that trains in processes of its own, such as ``accelerate launch scripts/train_bc.py``; the
            settings follow as ``--config FILE``. Empty trains in this process.
        evaluation: how models are measured.
        output: a directory for each stage goes there.
    """

    model: ModelSettings
    tiny: TinyBaseSettings | None = None
    start_from: str | None = None
    prompt: PromptSettings = PromptSettings()
    expert: str
    updates: tuple[Update, ...] = Field(default=("bc", "sr"), min_length=1)
    tasks: TaskSettings = TaskSettings(families=FamilySettings())
    evaluator: str = "verified+rules"
    max_unscored: float = Field(default=0.1, ge=0, le=1)
    play: PlaySettings = PlaySettings()
    sr_partner: str | None = None
    bc_filter: BCFilter = BCFilter()
    sr_filter: SRFilter = SRFilter()
    bc: TrainingSettings = TrainingSettings()
    sr: TrainingSettings = TrainingSettings(fit=FitSettings(keep=5))
    sampling: SamplingSettings = SamplingSettings()
    launch: tuple[str, ...] = ()
    evaluation: EvaluationSettings
    output: str


__all__ = ["EvaluationSettings", "PipelineSettings", "SamplingSettings", "TrainingSettings", "Update"]
