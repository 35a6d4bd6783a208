"""What a reward model reads, the same in training, as best-of-N scorer and as reward of GRPO.

Prompt and answer go through the chat template together, without a generation prompt and without further special
tokens. The answer is never cut (sotopia-rl cut it first): a conversation that is too long loses the oldest turns of its
prompt, whole ones, and what is too long even then is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sotopia_env.errors import DamagedRecordError, InvalidValueError
from sotopia_env.files import read_lines
from sotopia_env.policies.agent_prompt import KEPT_TURNS
from sotopia_env.records import explain
from sotopia_env.world.observation import LEFT_OUT, NOTHING_NEW, ChatMessage
from training.models.loading import prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROWS = "rows.jsonl"
"""The rows in a stage's directory."""
_MARKER = re.compile(re.escape(LEFT_OUT).replace(r"\{\}", r"(\d+)"))
# Lines of a user's message that tell of no turn; others' words stand quoted on one line, and can begin none.
_NO_TURN = re.compile(r"^(\(.*|Turn #\d+ is yours\.|It is not your turn\.|Your action was not possible: .*)$")
_REFUSED = re.compile(r"\A(\(that was not possible\)|Your action was not possible: .*)(\n|\Z)")


# --- rows ---------------------------------------------------------------------------------------------------------


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str
    content: str


class ValuedRow(BaseModel):
    """A turn and what it is worth; further columns are not read.

    Attributes:
        prompt: what the seat was told.
        completion: the action it took, as text or as one assistant's message.
        value: what it is worth; ``None`` where nobody said, which is not 0.
        scenario: what is split by.
        split: whether it is to train on, where the rows were split before (their values are then scaled by what the
            training part held).
        format: of the prompt; ``None`` where nobody noted it.
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
        DamagedRecordError: a line is no row; says which key is missing or wrong.
    """
    file = Path(path) / ROWS if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InvalidValueError(f"{file}: expected rows with prompt, completion, value and scenario, found none")
    for where, line in read_lines(file):
        try:
            yield ValuedRow.model_validate_json(line)
        except ValidationError as error:
            raise DamagedRecordError(f"{where}: {explain(error)}") from None


# --- text ---------------------------------------------------------------------------------------------------------


def scored_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[ChatMessage], completion: str, finished: bool = True
) -> list[int]:
    """Returns the token ids a reward model reads.

    Args:
        tokenizer: of the reward model.
        prompt: what the seat was told.
        completion: what it answered.
        finished: whether it ended its answer. Where it was cut off, no end token is pretended.
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
    """As :func:`scored_ids`, without as many of the oldest turns as it takes; ``None`` if it cannot fit."""
    for shorter in shortened(prompt):
        ids = scored_ids(tokenizer, shorter, completion, finished)
        if len(ids) <= max_length:
            return ids
    return None


def shortened(prompt: Sequence[ChatMessage]) -> Iterator[Sequence[ChatMessage]]:
    """Yields a prompt as it is, then without ever more of its oldest turns, as an observation would leave them out.

    The instructions and the last turns stay. A prompt that is one message (the ``single`` format) is not shortened.
    """
    yield prompt
    start = 1 if prompt[0]["role"] == "system" else 0
    dropped = 0
    for index in range(start, len(prompt) - 1):
        message = prompt[index]
        if message["role"] == "assistant":
            dropped += 1
            if _turns(prompt[index + 1 :]) < KEPT_TURNS:
                return
            yield [*prompt[:start], _with_marker(prompt[index + 1], dropped), *prompt[index + 2 :]]
        else:
            dropped += _told(message["content"])


def _turns(messages: Sequence[ChatMessage]) -> int:
    return sum(1 if message["role"] == "assistant" else _told(message["content"]) for message in messages)


def _told(content: str) -> int:
    """How many turns a user's message tells of, those of an earlier marker included."""
    lines = sum(not _NO_TURN.match(line) for line in content.split("\n"))
    return lines + sum(int(number) for number in _MARKER.findall(content + "\n"))


def _with_marker(message: ChatMessage, dropped: int) -> ChatMessage:
    """The message with which a shortened conversation begins; it says nothing of the turn before it either."""
    told = _REFUSED.sub("", message["content"]).removeprefix(NOTHING_NEW)
    if _NO_TURN.match(told) and told.startswith("("):
        told = ""
    return {"role": message["role"], "content": (LEFT_OUT.format(dropped) + told).strip()}
