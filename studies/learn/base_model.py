"""The base model of the study: built from scratch, then trained on aimless talk, as real base models are on texts.

It learns the form of actions and moves, and to copy the plan in its prompt into an offer. It does not learn when to
make which move, because the talk is drawn at random (:class:`studies.learn.speakers.Chatter`). This is the *untrained*
model of the report. Every training seed begins from this one model.

Besides the talk it is trained on drills: random tokens in which one stretch is repeated. From these a model of two
layers learns to copy within some hundred steps (its induction heads; Olsson et al. 2022, arXiv 2209.11895); from talk
alone it takes more than a thousand.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from sotopia_training.data.samples import RowMaker
from sotopia_training.fitting.arguments import FitSettings, training_arguments
from sotopia_training.fitting.behavior_cloning import IGNORED, TokenRow, conversations, tokenise
from sotopia_training.fitting.loop import fit_model, quiet
from sotopia_training.models.loading import load_causal_lm, write_prompt_settings
from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task
from studies.learn.episodes import play_all, seat_of
from studies.learn.speakers import Chatter

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer

logger = logging.getLogger(__name__)
NUMBERS = 256
"""Whole numbers below this are one token each; no price is greater (:mod:`studies.learn.tasks`)."""
_DRILL = 96
"""The number of tokens of a drill."""
_NEAR = 50
"""The number of batches among which rows of similar length are grouped."""
RowsOf = Callable[[Episode, PromptSettings, "PreTrainedTokenizerBase"], Iterable[TokenRow]]
"""Cuts an episode into rows for a format of prompts and a tokenizer."""


class BaseSettings(Settings):
    """The settings of the base model.

    Attributes:
        hidden: the width of the hidden layers.
        layers: the number of layers.
        heads: the number of attention heads.
        context: the longest input in tokens.
        vocabulary: the maximum size, numbers included; large enough that every thing's name is one token.
        drills: the number of drills besides the conversations.
        prompt: the format and the limits of prompts.
        partners: names of the policies with which the aimless seat talks, one for each task.
        words: whether the aimless seat says anything besides its moves.
        max_turns: the turn limit of the talk.
        seed: the seed of weights, talk and order.
        output: the stage's directory.
        fit: optimisation; ``max_steps`` batches, in the order of :func:`in_batches`.
    """

    hidden: int = 128
    layers: int = 2
    heads: int = 4
    context: int = 1024
    vocabulary: int = 4000
    drills: int = Field(default=2000, ge=0)
    prompt: PromptSettings = PromptSettings(format="brief", max_length=768, max_answer=64)
    partners: tuple[str, ...] = Field(min_length=1)
    words: bool = True
    max_turns: int = 6
    seed: int = 0
    output: str
    fit: FitSettings


def make_base(settings: BaseSettings, tasks: Sequence[Task]) -> Path:
    """Returns the directory of the base model; trains it if it does not exist.

    Args:
        settings: the settings of the model and its training.
        tasks: the tasks of the talk; see :attr:`studies.learn.tasks.TaskSplit.base`.
    """
    return make_model(settings, lambda: _talk(tasks, settings), talk_rows)


def make_model(settings: BaseSettings, episodes: Callable[[], Sequence[Episode]], rows_of: RowsOf) -> Path:
    """Returns the directory of a model that is built from scratch and trained on episodes and drills.

    Args:
        settings: the settings of the model and its training.
        episodes: returns the episodes; not called if the model exists.
        rows_of: cuts an episode into rows.
    """
    stage = StageDirectory(Path(settings.output), "base", settings)
    stage.open()
    if stage.figures is not None:
        return stage.model
    quiet()
    played = episodes()
    blank = stage.path / "blank"
    make_tiny_model(
        blank,
        make_tiny_tokenizer(_texts(played, settings.prompt), settings.vocabulary, numbers=NUMBERS),
        hidden=settings.hidden,
        layers=settings.layers,
        heads=settings.heads,
        context=settings.context,
        seed=settings.seed,
    )
    tokenizer = load_tokenizer(blank, settings.prompt)
    rows = [row for episode in played for row in rows_of(episode, settings.prompt, tokenizer)]
    rows += drill_rows(settings.drills, len(tokenizer), settings.seed)
    stage.finish(_fit(stage, settings, blank, rows, tokenizer))
    return stage.model


def _talk(tasks: Sequence[Task], settings: BaseSettings) -> tuple[Episode, ...]:
    plans = []
    for number, partner in enumerate(settings.partners):
        mine = tasks[number :: len(settings.partners)]
        rules = Rules(max_turns=settings.max_turns, worths=False)
        plans += plan_episodes(mine, [(Chatter(settings.words), partner)], rules=rules, seed=settings.seed)
    return play_all(plans)


def _texts(episodes: Iterable[Episode], prompt: PromptSettings) -> Iterator[str]:
    maker = RowMaker(prompt)
    for episode in episodes:
        for seat in episode.task.agents:
            rows = list(maker.rows(episode, seat))
            # The last prompt of a seat contains all earlier ones.
            if rows:
                yield from (message["content"] for message in rows[-1].prompt)
                yield rows[-1].completion


def talk_rows(episode: Episode, prompt: PromptSettings, tokenizer: PreTrainedTokenizerBase) -> Iterator[TokenRow]:
    """Yields the whole conversation as the aimless seat reads it, with loss on its answers."""
    rows = RowMaker(prompt).rows(episode, seat_of(episode, Chatter().name))
    tokens = ((row, tokenise(tokenizer, row.prompt, row.completion, prompt.max_length)) for row in rows)
    yield from (whole for _, whole in conversations(tokens))


def drill_rows(count: int, vocabulary: int, seed: int) -> Iterator[TokenRow]:
    """Yields rows of random tokens in which one stretch is repeated, with loss from its first end on.

    Every second token of a stretch is one of three, as in the JSON of a move, so that the token before is not enough
    to predict the next one. Up to three random tokens separate two repetitions.
    """
    rng = random.Random(f"drills {seed}")

    def random_tokens(size: int) -> list[int]:
        return rng.choices(range(vocabulary), k=size)

    for _ in range(count):
        few = random_tokens(3)
        stretch = [rng.choice((token, rng.choice(few))) for token in random_tokens(rng.randint(4, 16))]
        ids = list(stretch)
        while len(ids) < _DRILL:
            ids += random_tokens(rng.randint(0, 3)) + stretch
        ids = ids[:_DRILL]
        # No loss on the first stretch: it cannot be predicted.
        yield TokenRow(ids, [IGNORED] * len(stretch) + ids[len(stretch) :])


def in_batches(rows: Sequence[TokenRow], size: int, steps: int, seed: int) -> list[TokenRow]:
    """Returns rows in the order of training: batches of similar length, in random order.

    transformers' ``group_by_length`` leaves such batches ordered from long to short. Talk and drills then come in
    blocks, each of which undoes the other: 0.54 of whole offers were copied instead of 0.82 after 1,000 steps.

    Args:
        rows: all rows; each pass over them has a new order.
        size: the size of a batch.
        steps: the number of batches.
        seed: the seed of the order.

    Raises:
        InvalidValueError: a batch takes more rows than there are, or ``steps`` is not positive.
    """
    if steps < 1:
        raise InvalidValueError(field="max_steps", expected="at least 1", got=steps, hint="the base counts no epochs")
    if len(rows) < size:
        raise InvalidValueError(
            field="per_device_train_batch_size", expected=f"at most {len(rows)}, the number of rows", got=size
        )
    rng, ordered = random.Random(f"batches {seed}"), list[TokenRow]()
    while len(ordered) < size * steps:
        # Whole batches only; the rows that are left out differ from pass to pass.
        shuffled = rng.sample(rows, len(rows) // size * size)
        near = [sorted(part, key=lambda row: len(row.input_ids)) for part in _parts(shuffled, size * _NEAR)]
        batches = [batch for part in near for batch in _parts(part, size)]
        ordered += chain.from_iterable(rng.sample(batches, len(batches)))
    return ordered[: size * steps]


def _parts(rows: Sequence[TokenRow], size: int) -> list[Sequence[TokenRow]]:
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def _trainer_class() -> type[Trainer]:
    from torch.nn.functional import cross_entropy
    from transformers import Trainer

    class OwnTokensTrainer(Trainer):
        """Computes logits only for tokens with loss, because the vocabulary is half of a model this small."""

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            # (batch, length - 1): the label of a position is the next token.
            labels = inputs.pop("labels")[:, 1:]
            hidden, own = model.model(**inputs).last_hidden_state[:, :-1], labels != IGNORED
            return cross_entropy(model.lm_head(hidden[own]), labels[own])

    return OwnTokensTrainer


def _fit(
    stage: StageDirectory,
    settings: BaseSettings,
    blank: Path,
    rows: Sequence[TokenRow],
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import DataCollatorForSeq2Seq, TrainingArguments

    # The rows are in order already.
    decided = {"train_sampling_strategy": "sequential"}
    arguments = training_arguments(settings.fit, str(stage.checkpoints), False, TrainingArguments, **decided)
    ordered = in_batches(rows, arguments.per_device_train_batch_size, arguments.max_steps, settings.seed)
    trainer = _trainer_class()(
        model=load_causal_lm(ModelSettings(base=str(blank))),
        args=arguments,
        train_dataset=Dataset.from_list([asdict(row) for row in ordered]),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
    )
    figures = fit_model(trainer, stage, settings.fit)
    write_prompt_settings(stage.model, settings.prompt)
    return {"conversations": len(rows) - settings.drills, "drills": settings.drills, **figures}
