"""Input of a reward model, which is the same in training, best-of-N and GRPO.

The chat template renders prompt and answer together, without a generation prompt or further special tokens. The answer
is never truncated (sotopia-rl truncated it first). Prompts lose their oldest turns when they are rendered from the
observation; rows that are still too long for the reward model are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.files import read_lines
from sotopia_env.foundation.records import read_record
from sotopia_env.world.observation import ChatMessage
from sotopia_training.models.tokenizers import prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROWS = "rows.jsonl"
"""The rows in a stage's directory."""


# --- rows ---------------------------------------------------------------------------------------------------------


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str
    content: str


class ValuedRow(BaseModel):
    """A turn and its value; further columns are ignored.

    Attributes:
        prompt: the chat messages up to the turn.
        completion: the seat's action, as text or as one assistant's message.
        value: the combined reward; ``None`` if unknown, which is not 0.
        scenario: the key by which rows are split.
        split: the part of the row, if the rows are split already (their values are scaled by the training part).
        format: the format of the prompt; ``None`` if unknown.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    prompt: tuple[_Message, ...] = Field(min_length=1)
    completion: str
    value: float | None = Field(allow_inf_nan=False)
    scenario: str
    split: Literal["train", "validation"] | None = None
    format: str | None = None

    @field_validator("completion", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return value[0]["content"] if isinstance(value, list) and len(value) == 1 else value

    @property
    def messages(self) -> list[ChatMessage]:
        """The prompt as chat messages."""
        return [{"role": message.role, "content": message.content} for message in self.prompt]


def read_rows(path: str | Path) -> Iterator[ValuedRow]:
    """Yields the rows of a JSON Lines file, or of the stage directory that holds ``rows.jsonl``.

    Raises:
        InvalidValueError: the file does not exist.
        DamagedRecordError: a line is not a row; names the key that is missing or wrong.
    """
    file = Path(path) / ROWS if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InvalidValueError(expected="rows with prompt, completion, value and scenario", where=file)
    for origin, line in read_lines(file):
        yield read_record(ValuedRow, line, origin)


# --- text ---------------------------------------------------------------------------------------------------------


def scored_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[ChatMessage], completion: str, finished: bool = True
) -> list[int]:
    """Returns the token ids of the reward model's input.

    Args:
        tokenizer: the tokenizer of the reward model.
        prompt: the chat messages up to the turn.
        completion: the answer.
        finished: whether the answer is complete; one that was cut off gets no end token.
    """
    # The template would close an unfinished answer, and the model would score a text that was never written.
    if not finished:
        return [*prompt_ids(tokenizer, prompt), *tokenizer(completion, add_special_tokens=False)["input_ids"]]
    messages = [*(dict(message) for message in prompt), {"role": "assistant", "content": completion}]
    return list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))


def fitting_ids(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[ChatMessage],
    completion: str,
    max_length: int,
    finished: bool = True,
) -> list[int] | None:
    """Returns :func:`scored_ids`, or ``None`` for more than ``max_length`` tokens: input is never truncated."""
    ids = scored_ids(tokenizer, prompt, completion, finished)
    return ids if len(ids) <= max_length else None
