"""A base model made from nothing, so that a whole pipeline runs in minutes on a CPU and without a download.

Its tokenizer is trained on what two experts say in tasks of its own; its weights are random. It stands where a real
model's directory would stand.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import Field

from sotopia_env import policies, tasks
from sotopia_env.plan import all_matchups, plan_episodes
from sotopia_env.rollout import run_episodes
from training.models import make_tiny_model, make_tiny_tokenizer, write_prompt_settings
from training.samples import RowMaker
from training.settings import PromptSettings, Settings
from training.stage import StageDirectory

logger = logging.getLogger(__name__)


class TinyBaseSettings(Settings):
    """How large, and whose words it can spell.

    Attributes:
        families: verified families whose texts the tokenizer is trained on.
        experts: policies that speak; one plays with itself, several each with each.
        count: tasks per family.
        level: difficulty.
        seed: of tasks and weights.
        hidden: width; a multiple of 64 can be quantised.
        layers: how many.
        heads: of the attention.
        context: longest input in tokens.
        vocabulary: largest size.
    """

    families: tuple[str, ...] = Field(default=("bargaining",), min_length=1)
    experts: tuple[str, ...] = Field(default=("linear",), min_length=1)
    count: int = Field(default=40, ge=1)
    level: str = "medium"
    seed: int = Field(default=0, ge=0)
    hidden: int = Field(default=128, ge=16)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    context: int = Field(default=1024, ge=64)
    vocabulary: int = Field(default=1024, ge=300)


class TinyBaseStage(Settings):
    """The stage that makes it.

    Attributes:
        base: how large it is.
        prompt: how it will be prompted; the tokenizer sees these texts.
        output: the stage's directory; the model is in ``model/``.
    """

    base: TinyBaseSettings = TinyBaseSettings()
    prompt: PromptSettings = PromptSettings(format="brief", max_length=512, max_answer=64)
    output: str


def run(settings: TinyBaseStage) -> None:
    """Makes the model; does nothing if it is there.

    Raises:
        InvalidValueError: the directory holds another stage.
        UnknownNameError: there is no such family or policy.
    """
    stage = StageDirectory(Path(settings.output), "tiny_base", settings)
    texts = [] if (stage.path / "done.json").is_file() else _texts(settings)
    stage.open()
    if stage.figures is not None:
        logger.info("%s is complete: nothing to do", settings.output)
        return
    base = settings.base
    tokenizer = make_tiny_tokenizer(texts, base.vocabulary)
    size = {"hidden": base.hidden, "layers": base.layers, "heads": base.heads, "context": base.context}
    make_tiny_model(stage.model, tokenizer, **size, seed=base.seed)
    write_prompt_settings(stage.model, settings.prompt)
    stage.finish({"texts": len(texts), "vocabulary": len(tokenizer)})


def _texts(settings: TinyBaseStage) -> list[str]:
    base = settings.base
    made = tasks.generate(list(base.families), base.count * len(base.families), base.seed, base.level)
    experts = [policies.make(name) for name in base.experts]
    pairs = all_matchups(experts, self_play=len(experts) == 1)
    maker = RowMaker(settings.prompt)
    return [
        text
        for episode in run_episodes(plan_episodes(made, pairs, seed=base.seed), progress=False).episodes
        for seat in episode.task.agents
        for row in maker.rows(episode, seat)
        for text in (*(message["content"] for message in row.prompt), row.completion)
    ]


__all__ = ["TinyBaseSettings", "TinyBaseStage", "run"]
