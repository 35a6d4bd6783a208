"""The base model of the proof: made from nothing, then trained on aimless talk, as real base models are on texts.

It learns what an action and a move look like and how to offer what stands in its prompt. It does not learn what
to do when: the talk it reads is drawn at random (:class:`training.proof.speakers.Chatter`). This is the *untrained*
model of the report. Every seed of training begins from this one model.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task
from training.data.samples import RowMaker
from training.fitting.arguments import FitSettings, training_arguments
from training.fitting.behavior_cloning import IGNORED, TokenRow, conversations, tokenise
from training.fitting.loop import fit_model, quiet
from training.models.loading import load_causal_lm, load_tokenizer, write_prompt_settings
from training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from training.proof.speakers import Chatter
from training.stage.directory import StageDirectory
from training.stage.settings import ModelSettings, PromptSettings, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
NUMBERS = 256
"""Whole numbers below this are one token each; no price is greater (:mod:`training.proof.tasks`)."""
OTHER_WORDS = 0.3
"""The share of the tokens that are not its own on which the base model is trained as well: it learns to read by it."""


class BaseSettings(Settings):
    """How the base is made.

    Attributes:
        hidden: width.
        layers: how many.
        heads: of the attention.
        context: longest input in tokens.
        vocabulary: largest size, numbers included.
        prompt: how it is prompted.
        max_turns: of the talk.
        seed: of weights, talk and order.
        output: the stage's directory.
        fit: optimisation.
    """

    hidden: int = 128
    layers: int = 2
    heads: int = 2
    context: int = 1024
    vocabulary: int = 1200
    prompt: PromptSettings = PromptSettings(format="brief", max_length=768, max_answer=64)
    max_turns: int = 6
    seed: int = 0
    output: str
    fit: FitSettings


def make_base(settings: BaseSettings, tasks: Sequence[Task]) -> Path:
    """Returns the directory of the base model; it is made if it is not there.

    Args:
        settings: how.
        tasks: what the talk is about; training tasks.
    """
    stage = StageDirectory(Path(settings.output), "base", settings)
    stage.open()
    if stage.figures is not None:
        return stage.model
    quiet()
    episodes = _talk(tasks, settings)
    blank = stage.path / "blank"
    make_tiny_model(
        blank,
        make_tiny_tokenizer(_texts(episodes, settings.prompt), settings.vocabulary, numbers=NUMBERS),
        hidden=settings.hidden,
        layers=settings.layers,
        heads=settings.heads,
        context=settings.context,
        seed=settings.seed,
    )
    tokenizer = load_tokenizer(blank, settings.prompt)
    rows = [row for episode in episodes for row in talk_rows(episode, settings.prompt, tokenizer)]
    stage.finish(_fit(stage, settings, blank, rows, tokenizer))
    return stage.model


def _talk(tasks: Sequence[Task], settings: BaseSettings) -> tuple[Episode, ...]:
    plans = plan_episodes(tasks, [(Chatter(),)], rules=Rules(max_turns=settings.max_turns), seed=settings.seed)
    return run_episodes(plans, progress=False).episodes


def _texts(episodes: Iterable[Episode], prompt: PromptSettings) -> Iterator[str]:
    maker = RowMaker(prompt)
    for episode in episodes:
        for seat in episode.task.agents:
            rows = list(maker.rows(episode, seat))
            if rows:  # the last prompt of a seat holds all earlier ones
                yield from (message["content"] for message in rows[-1].prompt)
                yield rows[-1].completion


def talk_rows(episode: Episode, prompt: PromptSettings, tokenizer: PreTrainedTokenizerBase) -> Iterator[TokenRow]:
    """Yields the whole conversation of each seat, with loss on its answers and on a part of all else."""
    maker = RowMaker(prompt)
    for seat in episode.task.agents:
        rows = maker.rows(episode, seat)
        tokens = ((row, tokenise(tokenizer, row.prompt, row.completion, prompt.max_length)) for row in rows)
        for row, whole in conversations(tokens):
            rng = random.Random(f"{row.episode}:{seat}")
            pairs = zip(whole.input_ids, whole.labels, strict=True)
            labels = [token if label != IGNORED or rng.random() < OTHER_WORDS else IGNORED for token, label in pairs]
            yield TokenRow(whole.input_ids, labels)


def _fit(
    stage: StageDirectory,
    settings: BaseSettings,
    blank: Path,
    rows: Sequence[TokenRow],
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    trainer = Trainer(
        model=load_causal_lm(ModelSettings(base=str(blank))),
        args=training_arguments(settings.fit, str(stage.checkpoints), False, TrainingArguments),
        train_dataset=Dataset.from_list([asdict(row) for row in rows]),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
    )
    figures = fit_model(trainer, stage, settings.fit)
    write_prompt_settings(stage.model, settings.prompt)
    return {"conversations": len(rows), **figures}
