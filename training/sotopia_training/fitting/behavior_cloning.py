"""Supervised fine-tuning on an expert's turns or on the model's own best turns: the two stages of SOTOPIA-π.

Behaviour cloning and self-reinforcement (arXiv 2403.08715, §3) are the same computation on different episodes. Rows are
tokenised here, not by the trainer: the trained tokens are exactly those that the policy would sample, the action's JSON
and the end token, after exactly the prompt that it would receive. Rows are not truncated: a row that is too long has
already lost its oldest turns (:mod:`sotopia_training.data.samples`), or was left out and counted.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_env.world.observation import ChatMessage
from sotopia_training.data.samples import RowMaker, Split, TrainingRow, in_share, split_scenarios, stream_dataset
from sotopia_training.data.sources import SourceSettings, source_rows
from sotopia_training.fitting.answer_parts import word_tokens
from sotopia_training.fitting.arguments import FitSettings, check_keep, training_arguments
from sotopia_training.fitting.forecast import TrainingForecast, supervised_forecast
from sotopia_training.fitting.held_out_states import HeldOutStates, read_states, write_states
from sotopia_training.fitting.loop import (
    TrainingRun,
    begin,
    begin_from,
    completed,
    has_sharded_weights,
    load_for_training,
)
from sotopia_training.fitting.probe import MeasuredStep, full_rows, measure, probing, row_count
from sotopia_training.models.tokenizers import answer_ids, load_tokenizer, prompt_ids
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import ModelSettings, PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase
    from trl import SFTTrainer

logger = logging.getLogger(__name__)
STATES = "held_out_states.jsonl"
IGNORED = -100
"""Label of tokens without loss."""


class CloningSettings(FitSettings):
    """How a supervised stage learns from its episodes; ``trainer`` is TRL's ``SFTConfig``.

    Attributes:
        validation: the share of the scenarios for the validation loss; 0 for none.
        held_out_states: the number of states of validation scenarios in which the model is compared with its teacher
            after every validation (:mod:`sotopia_training.fitting.held_out_states`); 0 for none. Each costs an answer.
        rows: ``turns`` makes one row per answer; ``conversations`` makes one row of all answers of a seat in an
            episode, as long as each prompt continues the previous one. The loss is the same for a half to a fifth of
            the tokens.
        word_share: the share of the answers with a move whose words are trained, too; of the others the move and the
            JSON around the words. Below 1, fewer tokens that a script draws at random compete with those that decide.
            Made for answers with the move before the words, as scripts' are: in others it follows untrained words.
    """

    validation: float = Field(default=0.1, ge=0, lt=1)
    held_out_states: int = Field(default=0, ge=0)
    rows: Literal["turns", "conversations"] = "turns"
    word_share: float = Field(default=1.0, ge=0, le=1)

    @model_validator(mode="after")
    def _check_keep(self) -> CloningSettings:
        check_keep(self, self.validation)
        if self.held_out_states and not self.validation:
            raise ValueError("held_out_states: they are states of validation scenarios; set validation above 0")
        return self


class BehaviorCloningSettings(CloningSettings):
    """Settings of a supervised stage.

    Attributes:
        model: the model to train.
        start_from: the output directory of an earlier stage, whose model is trained further; it replaces ``model.base``
            (which must be its adapter's base, or empty) and ``model.adapter``.
        prompt: the format and limits of the prompts.
        data: the sources of the episodes.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; the data must not contain its scenarios.
        output: the directory of the stage.
    """

    model: ModelSettings
    start_from: str | None = None
    prompt: PromptSettings = PromptSettings()
    data: tuple[SourceSettings, ...] = Field(min_length=1)
    evaluation_tasks: str | None = None
    output: str


# --- tokens -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A row as token ids.

    Attributes:
        input_ids: prompt, answer and end token.
        labels: the id of each token with loss, and :data:`IGNORED` for the others.
    """

    input_ids: list[int]
    labels: list[int]


def tokenise(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[ChatMessage], completion: str, max_length: int
) -> TokenRow:
    """Returns a row's tokens, with loss only on the answer and its end token.

    Raises:
        InvalidValueError: the row is longer than ``max_length``.
    """
    row = _tokens(tokenizer, prompt, completion)
    if len(row.input_ids) > max_length:
        raise InvalidValueError(field="row", expected=f"at most {max_length} tokens", got=len(row.input_ids))
    return row


def _tokens(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[ChatMessage], completion: str) -> TokenRow:
    question, answer = prompt_ids(tokenizer, prompt), answer_ids(tokenizer, completion)
    return TokenRow([*question, *answer], [*([IGNORED] * len(question)), *answer])


def training_rows(
    settings: BehaviorCloningSettings, tokenizer: PreTrainedTokenizerBase
) -> tuple[RowMaker, Iterator[tuple[TrainingRow, TokenRow]]]:
    """Returns the row maker, which counts the turns, and an iterator over the rows of all sources with their tokens.

    A row is tokenised once, when its length is checked. It fits if the policy could have given the answer: the prompt
    leaves room for the longest possible answer, and the answer is not longer than that.
    """
    limit, room = settings.prompt.max_length, settings.prompt.max_answer
    # The tokens of the row whose length was counted last, which is nearly always the row that is yielded next.
    latest: dict[tuple[tuple[str, ...], str], TokenRow] = {}

    def key(prompt: Sequence[ChatMessage], completion: str) -> tuple[tuple[str, ...], str]:
        return tuple(message["content"] for message in prompt), completion

    def count(prompt: Sequence[ChatMessage], completion: str) -> int:
        latest.clear()
        row = latest[key(prompt, completion)] = _tokens(tokenizer, prompt, completion)
        return sum(label == IGNORED for label in row.labels) + room

    def tokens(row: TrainingRow) -> TokenRow:
        cached = latest.get(key(row.prompt, row.completion))
        return cached or tokenise(tokenizer, row.prompt, row.completion, limit)

    def count_answer(completion: str) -> int:
        return len(answer_ids(tokenizer, completion))

    maker = RowMaker(settings.prompt, count, count_answer)
    rows = source_rows(settings.data, maker, settings.evaluation_tasks)
    pairs = ((row, _trained_parts(row, tokens(row), tokenizer, settings.word_share)) for row in rows)
    return maker, pairs if settings.rows == "turns" else conversations(pairs)


def _trained_parts(
    row: TrainingRow, tokens: TokenRow, tokenizer: PreTrainedTokenizerBase, word_share: float
) -> TokenRow:
    """Returns the tokens with the labels of an answer's words removed, unless it is drawn to keep them."""
    if in_share(f"{row.episode}:{row.seat}:{row.turn}", word_share):
        return tokens
    words = word_tokens(tokenizer, row.completion)
    start = len(tokens.labels) - len(words)
    answer = [IGNORED if word else label for word, label in zip(words, tokens.labels[start:], strict=True)]
    return TokenRow(tokens.input_ids, [*tokens.labels[:start], *answer])


def conversations(rows: Iterable[tuple[TrainingRow, TokenRow]]) -> Iterator[tuple[TrainingRow, TokenRow]]:
    """Yields rows of whole conversations: a row is merged into the next one if it is its prefix, token for token.

    Rows of another seat, episode or format, and of prompts without their oldest turns, stay separate.
    """
    pending: tuple[TrainingRow, TokenRow] | None = None
    for row, tokens in rows:
        if pending is not None:
            earlier, prefix = pending
            same = (earlier.episode, earlier.seat) == (row.episode, row.seat)
            longer = len(tokens.input_ids) > len(prefix.input_ids)
            # The merged row keeps the loss on all earlier answers.
            if same and longer and tokens.input_ids[: len(prefix.input_ids)] == prefix.input_ids:
                tokens = TokenRow(tokens.input_ids, [*prefix.labels, *tokens.labels[len(prefix.labels) :]])
            else:
                yield pending
        pending = row, tokens
    if pending is not None:
        yield pending


def marked(tokenizer: PreTrainedTokenizerBase, row: TokenRow, colour: bool) -> str:
    """Returns a row as text with the trained tokens marked: in green, or between ``[[`` and ``]]``."""
    start, end = ("\033[32m", "\033[0m") if colour else ("[[", "]]")
    parts = []
    for trained, pairs in groupby(zip(row.input_ids, row.labels, strict=True), key=lambda pair: pair[1] != IGNORED):
        text = tokenizer.decode([token for token, _ in pairs])
        parts.append(f"{start}{text}{end}" if trained else text)
    return "".join(parts)


# --- the data on disk ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """The tokenised rows of a stage, saved in its directory so that a resumed run trains on the same rows.

    Attributes:
        folder: the directory of the rows.
        facts: the numbers of rows, scenarios and left out turns.
    """

    folder: Path
    facts: dict[str, Any]

    def load(self) -> tuple[Dataset, Dataset | None]:
        """Returns the rows for training and, if there are any, for validation."""
        from datasets import load_from_disk

        validation = self.folder / "validation"
        return load_from_disk(str(self.folder / "train")), (
            load_from_disk(str(validation)) if validation.is_dir() else None
        )


def prepare(settings: BehaviorCloningSettings, folder: Path, tokenizer: PreTrainedTokenizerBase) -> Prepared:
    """Cuts, splits and tokenises the rows into ``folder``, or returns the existing ones.

    Raises:
        InvalidValueError: as :func:`sotopia_training.data.sources.source_rows`.
    """
    facts = folder / "facts.json"
    if facts.is_file():
        return Prepared(folder, read_json(facts))
    maker, rows = training_rows(settings, tokenizer)
    try:
        whole = _dataset(rows, folder / "building")
        split = split_scenarios(whole["scenario"], settings.validation, settings.seed)
        sizes = _divided(whole, split, folder)
    finally:
        shutil.rmtree(folder / "building", ignore_errors=True)  # corrected settings must not reuse refused rows
    if settings.held_out_states:
        by_turn = training_rows(settings.model_copy(update={"rows": "turns"}), tokenizer)[1]
        write_states((row for row, _ in by_turn), split.validation, settings.held_out_states, folder / STATES)
    # Written last: without it, an interrupted preparation starts again.
    record = {"data": sizes, "counts": maker.counts.text()}
    write_text_atomically(facts, json.dumps(record, indent=2) + "\n")
    logger.info("rows: %s; %s", sizes, record["counts"])
    if lost := maker.counts.lost(settings.prompt):
        logger.warning("rows: %s", lost)
    return Prepared(folder, record)


def _divided(whole: Dataset, split: Split, folder: Path) -> dict[str, dict[str, int]]:
    """Writes the training and the validation rows, and returns their sizes."""
    keys = list(whole["scenario"])
    sizes = {}
    for name, scenarios in (("train", split.train), ("validation", split.validation)):
        indices = [index for index, key in enumerate(keys) if key in scenarios]
        if indices:
            whole.select(indices).select_columns(["input_ids", "labels"]).save_to_disk(str(folder / name))
        sizes[name] = {"rows": len(indices), "scenarios": len(scenarios)}
    return sizes


def _dataset(rows: Iterable[tuple[TrainingRow, TokenRow]], folder: Path) -> Dataset:
    from datasets import Features, Value

    features = Features({"input_ids": [Value("int32")], "labels": [Value("int32")], "scenario": Value("string")})
    records = ({"input_ids": t.input_ids, "labels": t.labels, "scenario": row.scenario} for row, t in rows)
    return stream_dataset(records, features, folder)


# --- the stage ----------------------------------------------------------------------------------------------------


def run(settings: BehaviorCloningSettings) -> dict[str, Any]:
    """Trains, or continues training; does nothing if the stage is complete.

    The model and its prompt settings are written to ``output/model``.

    Returns:
        The figures, as in ``done.json``.

    Raises:
        InvalidValueError: the settings or the data are invalid; mostly before any model is loaded.
    """
    complete = completed(_directory(settings))
    if complete is not None:
        return complete
    frame = _begin(settings)
    prepared = frame.rows(lambda: prepare(settings, frame.stage.path / "rows", frame.tokenizer))
    trainer = _trainer(frame, *prepared.load())
    states = read_states(prepared.folder / STATES)
    if states and not has_sharded_weights(trainer):  # each process could answer only with its part of the weights
        held_out = HeldOutStates(states, frame.tokenizer, settings.prompt.max_answer)
        trainer.add_callback(held_out.callback(trainer))
    return frame.finish(trainer, frame.fit_to_end(trainer, prepared.facts))


def _directory(settings: BehaviorCloningSettings) -> StageDirectory:
    return StageDirectory(Path(settings.output), "behavior_cloning", settings)


def _begin(settings: BehaviorCloningSettings) -> TrainingRun:
    model = begin_from(settings.model, settings.start_from, settings.prompt)
    return begin(_directory(settings), settings, model, settings.prompt, lambda: trainer_arguments(settings))


def _trainer(frame: TrainingRun, rows: Dataset, validation: Dataset | None = None) -> SFTTrainer:
    from trl import SFTTrainer

    model, adapter = load_for_training(frame.model, frame.arguments.gradient_checkpointing)
    return SFTTrainer(
        model=model,
        args=frame.arguments,
        train_dataset=rows,
        eval_dataset=validation,
        processing_class=frame.tokenizer,
        peft_config=adapter,
    )


def trainer_arguments(settings: BehaviorCloningSettings) -> Any:
    """Returns TRL's arguments."""
    with extra("train"):
        from trl import SFTConfig

    # The length of rows is already checked, and packing would mix conversations.
    decided = {"max_length": None, "completion_only_loss": True, "packing": False}
    output = StageDirectory(Path(settings.output), "", settings).checkpoints
    return training_arguments(settings, str(output), settings.validation > 0, SFTConfig, **decided)


def forecast(settings: BehaviorCloningSettings, rows: int | None, devices: int) -> TrainingForecast:
    """Returns the forecast of a supervised stage; see :func:`~sotopia_training.fitting.forecast.supervised_forecast`.

    Raises:
        InvalidValueError: the settings contradict each other, or the data do not exist.
    """

    def train(folder: Path) -> Dataset:
        model = begin_from(settings.model, settings.start_from, settings.prompt)
        return prepare(settings, folder, load_tokenizer(model.base, settings.prompt)).load()[0]

    return supervised_forecast(settings, trainer_arguments(settings), rows, devices, train)


def probe(settings: BehaviorCloningSettings) -> MeasuredStep:
    """Measures a step on rows of full length, which end with the longest answer or are one conversation.

    Raises:
        InvalidValueError: as :func:`run`, except for errors of the data.
    """
    from datasets import Dataset

    length, answer = settings.prompt.max_length, settings.prompt.max_answer
    question = length - answer if settings.rows == "turns" else 0
    with probing(settings) as shortened:
        frame = _begin(shortened)
        ids = full_rows(frame.tokenizer, row_count(frame.arguments), length)
        rows = {"input_ids": ids, "labels": [[IGNORED] * question + row[question:] for row in ids]}
        return measure(_trainer(frame, Dataset.from_dict(rows)), length)
