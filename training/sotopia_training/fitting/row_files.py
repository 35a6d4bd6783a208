"""Training rows as files for other trainers: those that a supervised stage cuts from the same source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.files import replacement
from sotopia_training.data.samples import Counts, RowMaker, TrainingRow, stream_dataset
from sotopia_training.data.sources import SourceSettings, source_rows
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings, training_rows
from sotopia_training.models.loading import located
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.settings import ModelSettings, PromptSettings

SUFFIXES = (".jsonl", ".parquet")


def _prompt_completion(row: TrainingRow) -> dict[str, Any]:
    columns = row.columns()
    del columns["value"]  # a target of reward models, which rows of supervised stages do not have
    return columns


def _messages(row: TrainingRow) -> dict[str, Any]:
    columns = _prompt_completion(row)
    return {"messages": [*columns.pop("prompt"), *columns.pop("completion")], **columns}


FORMATS: Mapping[str, Callable[[TrainingRow], dict[str, Any]]] = {
    "prompt-completion": _prompt_completion,
    "messages": _messages,
}
"""The forms of a row: TRL's conversational prompt and completion, or one list of messages that ends with the answer."""


def write_rows(
    source: SourceSettings,
    file: Path,
    prompt: PromptSettings,
    *,
    format: str = "prompt-completion",
    tokenizer: str | None = None,
    evaluation_tasks: str | None = None,
) -> Counts:
    """Writes the rows of a source, one for each answer, and returns the counts of turns.

    Args:
        source: the run, and which of its seats and episodes to take.
        file: ``.jsonl``, or ``.parquet`` (with the extra ``train``).
        prompt: the format and limits of prompts.
        format: a name in :data:`FORMATS`.
        tokenizer: the model whose tokens the limits of ``prompt`` count; ``None`` keeps every prompt at full length.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; rows of its scenarios are refused.

    Raises:
        UnknownNameError: the format is unknown, or no episode has such a seat or dimension.
        InvalidValueError: the file has another suffix or is the source, or the source gives no row.
        DamagedRecordError: a record cannot be read or replayed.
    """
    if format not in FORMATS:
        raise UnknownNameError(field="format", got=format, valid=FORMATS)
    if file.suffix not in SUFFIXES:
        raise InvalidValueError(field="out", expected=f"a name that ends with {' or '.join(SUFFIXES)}", got=str(file))
    if file.exists() and Path(source.run).resolve() in (file.resolve(), file.resolve().parent):
        raise InvalidValueError(field="out", expected="a file outside the run", got=str(file), hint="choose another")
    maker, rows = _cut(source, prompt, tokenizer, evaluation_tasks)
    file.parent.mkdir(parents=True, exist_ok=True)
    write = _write_parquet if file.suffix == ".parquet" else _write_lines
    with replacement(file) as stream:
        write((FORMATS[format](row) for row in rows), stream)
    return maker.counts


def _cut(
    source: SourceSettings, prompt: PromptSettings, tokenizer: str | None, evaluation_tasks: str | None
) -> tuple[RowMaker, Iterator[TrainingRow]]:
    if tokenizer is None:
        maker = RowMaker(prompt)
        return maker, source_rows([source], maker, evaluation_tasks)
    tokenizer = located(tokenizer)
    # The stage's own function, so that the same rows are shortened and left out.
    settings = BehaviorCloningSettings(
        model=ModelSettings(base=tokenizer),
        prompt=prompt,
        data=(source,),
        evaluation_tasks=evaluation_tasks,
        output="",
    )
    maker, pairs = training_rows(settings, load_tokenizer(tokenizer, prompt))
    return maker, (row for row, _ in pairs)


def _write_lines(records: Iterator[dict[str, Any]], stream: BinaryIO) -> None:
    for record in records:
        stream.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())


def _write_parquet(records: Iterator[dict[str, Any]], stream: BinaryIO) -> None:
    with extra("train"):
        from datasets import Features, Value

    def feature(value: object) -> Any:
        if isinstance(value, list):
            return [{"role": Value("string"), "content": Value("string")}]
        return Value("int64" if isinstance(value, int) else "string")

    first = next(records)
    features = Features({name: feature(value) for name, value in first.items()})

    def whole() -> Iterator[dict[str, Any]]:
        yield first
        yield from records

    with TemporaryDirectory() as folder:
        stream_dataset(whole(), features, folder).to_parquet(stream)
