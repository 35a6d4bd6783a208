"""Settings of SOTOPIA-π's pipeline (:mod:`sotopia_training.pi.pipeline`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sotopia_env.foundation.settings import Settings
from sotopia_training.collect.collection import PlaySettings
from sotopia_training.collect.selection import BCFilter, SRFilter
from sotopia_training.collect.task_generation import FamilySettings, SourceName, TaskSettings
from sotopia_training.fitting.behavior_cloning import CloningSettings
from sotopia_training.models.tiny_base import TinyBaseSettings
from sotopia_training.stage.settings import ModelSettings, PromptSettings, Quantization

Update = Literal["bc", "sr", "relabel"]


class SamplingSettings(Settings):
    """Sampling of a trained model in play; see :func:`sotopia_training.models.policy.load`."""

    quantization: Quantization = "none"


class ModelEvaluationSettings(Settings):
    """The evaluation of every model: with one partner, on tasks that are never trained on.

    Attributes:
        tasks: the source of the tasks, by name; their scenarios are never trained on, with any characters.
        partner: the policy of the other seats, the same for all models (SOTOPIA-π, section 4).
        base: whether the model is also evaluated before training.
        expert: whether the expert is also evaluated.
        play: the orders, repeats and limits of the episodes.
    """

    tasks: SourceName = "starter"
    partner: str
    base: bool = True
    expert: bool = True
    play: PlaySettings = PlaySettings()


class PipelineSettings(Settings):
    """Settings of the pipeline.

    Attributes:
        model: the model to train; every update continues the previous one.
        tiny: creates a random ``model.base`` in ``base/``.
        start_from: output directory of an earlier stage, whose model is trained further.
        prompt: format and limits of the model's prompts.
        expert: the policy that behaviour cloning imitates.
        updates: the updates in order; each collects, rates and filters its own tasks. ``bc`` learns from episodes of
            the expert with itself, ``sr`` from those of the current model. ``relabel`` (DAgger) plays as ``sr`` does,
            and then learns what the expert, a script, would have done in the model's own states, together with the
            episodes and labels of all earlier ``bc`` and ``relabel``. More can be added to a complete pipeline.
        tasks: the tasks of every update; each update has its own seeds, inspirations and scenarios. ``given`` tasks are
            the same for every update.
        evaluator: scores the collected episodes and the evaluations.
        max_unscored: share of a collection's episodes that may remain without a rating.
        play: orders, repeats and limits of the collected episodes.
        sr_partner: partner of the model in the episodes for ``sr`` and ``relabel`` (its turns are not trained on), or
            partners by the names of seats, where ``self`` is the model; by default the model itself.
        bc_filter: selects the turns for behaviour cloning.
        sr_filter: selects the turns for self-reinforcement.
        bc: training on the expert's episodes (B.5; the last of 20 epochs, B.6).
        sr: training on the model's own episodes (B.5; the model after epoch 5, B.6).
        relabel: training on the expert's labels.
        sampling: the sampling of the trained model in play.
        launch: the command that trains in separate processes, such as ``accelerate launch -m sotopia_training bc``;
            ``--config FILE`` is appended. Empty trains in this process.
        evaluation: the evaluation of the models.
        output: the directory that contains the directories of the steps.
    """

    model: ModelSettings
    tiny: TinyBaseSettings | None = None
    start_from: str | None = None
    prompt: PromptSettings = PromptSettings()
    expert: str
    updates: tuple[Update, ...] = Field(default=("bc", "sr"), min_length=1)
    tasks: TaskSettings = TaskSettings(families=FamilySettings())
    evaluator: str = "verified"
    max_unscored: float = Field(default=0.1, ge=0, le=1)
    play: PlaySettings = PlaySettings()
    sr_partner: str | dict[str, str] | None = None
    bc_filter: BCFilter = BCFilter()
    sr_filter: SRFilter = SRFilter()
    bc: CloningSettings = CloningSettings()
    sr: CloningSettings = CloningSettings(keep=5)
    relabel: CloningSettings = CloningSettings()
    sampling: SamplingSettings = SamplingSettings()
    launch: tuple[str, ...] = ()
    evaluation: ModelEvaluationSettings
    output: str
