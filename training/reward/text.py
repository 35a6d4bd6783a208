"""Input of a reward model, the same in training, as best-of-N scorer and as reward of GRPO.

Prompt and answer go through the chat template together, without a generation prompt and further special tokens. The
answer is never truncated (sotopia-rl truncated it first): a conversation that is too long loses the oldest turns of its
prompt, and one that is still too long is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sotopia_env.errors import InvalidValueError
from sotopia_env.files import read_lines
from sotopia_env.policies import KEPT_TURNS
from sotopia_env.records import read_record
from sotopia_env.world import LEFT_OUT, NOTHING_NEW, ChatMessage
from training.models.loading import prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROWS = "rows.jsonl"
"""The rows in a stage's directory."""
_MARKER = re.compile(re.escape(LEFT_OUT).replace(r"\{\}", r"(\d+)"))
_REFUSAL = r"Your (?:action was not possible|(?:words were heard, but your )?move did not count): .*"
# Lines of a user's message that are no turns; arguments are quoted on one line and cannot begin such a line, and what
# stands on the table is indented.
_NO_TURN = re.compile(
    rf"^(\(.*|  .*|On the table:|Moves open to you:|Turn #\d+ is yours\.|It is not your turn\.|{_REFUSAL})$"
)
_REFUSED = re.compile(rf"\A(\(that was not possible\)|\(your move did not count\)|{_REFUSAL})(\n|\Z)")


# --- rows ---------------------------------------------------------------------------------------------------------


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str
    content: str


class ValuedRow(BaseModel):
    """A turn and its value; further columns are ignored.

    Attributes:
        prompt: chat messages up to the turn.
        completion: the seat's action, as text or as one assistant's message.
        value: the combined reward; ``None`` if unknown, which is not 0.
        scenario: key of the split.
        split: part of the row, if the rows are split already (their values are scaled by the training part).
        format: of the prompt; ``None`` if unknown.
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
        InvalidValueError: there is no such file.
        DamagedRecordError: a line is no row; names the key that is missing or wrong.
    """
    file = Path(path) / ROWS if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InvalidValueError(f"{file}: expected rows with prompt, completion, value and scenario, found none")
    for origin, line in read_lines(file):
        yield read_record(ValuedRow, line, origin, "row")


# --- text ---------------------------------------------------------------------------------------------------------


def scored_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[ChatMessage], completion: str, finished: bool = True
) -> list[int]:
    """Returns the token ids of the reward model's input.

    Args:
        tokenizer: of the reward model.
        prompt: chat messages up to the turn.
        completion: the answer.
        finished: whether the answer ended; one that was cut off gets no end token.
    """
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
    """As :func:`scored_ids`, without the oldest turns that do not fit; ``None`` if nothing fits."""
    for shorter in shortened(prompt):
        ids = scored_ids(tokenizer, shorter, completion, finished)
        if len(ids) <= max_length:
            return ids
    return None


def shortened(prompt: Sequence[ChatMessage]) -> Iterator[Sequence[ChatMessage]]:
    """Yields the prompt, then the prompt with fewer and fewer turns, the oldest left out as in an observation.

    The instructions and the last turns stay. A prompt of one message (the ``single`` format) is not shortened.
    """
    yield prompt
    start = 1 if prompt[0]["role"] == "system" else 0
    dropped = 0
    for index in range(start, len(prompt) - 1):
        message = prompt[index]
        if message["role"] == "assistant":
            dropped += 1
            if _total_turns(prompt[index + 1 :]) < KEPT_TURNS:
                return
            yield [*prompt[:start], _with_marker(prompt[index + 1], dropped), *prompt[index + 2 :]]
        else:
            dropped += _turn_count(message["content"])


def _total_turns(messages: Sequence[ChatMessage]) -> int:
    return sum(1 if message["role"] == "assistant" else _turn_count(message["content"]) for message in messages)


def _turn_count(content: str) -> int:
    """The number of turns in a user's message, those of an earlier marker included."""
    lines = sum(not _NO_TURN.match(line) for line in content.split("\n"))
    return lines + sum(int(number) for number in _MARKER.findall(content + "\n"))


def _with_marker(message: ChatMessage, dropped: int) -> ChatMessage:
    """The first message of a shortened conversation, without its reference to the turn before it."""
    content = _REFUSED.sub("", message["content"]).removeprefix(NOTHING_NEW)
    if _NO_TURN.match(content) and content.startswith("("):
        content = ""
    return {"role": message["role"], "content": (LEFT_OUT.format(dropped) + content).strip()}
