"""Importers of conversations of chat models: ShareGPT (``conversations``) and chat messages (``messages``).

Every message of the assistant becomes a row, with the messages before it as the prompt. All rows of a conversation have
one ``scenario``, so that a split does not part them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, Format, Product, ProductKind, Text
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord

ASSISTANT = "assistant"
ROLES: Mapping[str, str] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys((ASSISTANT, "gpt", "chatgpt", "bot", "model", "bing", "bard", "function_call"), ASSISTANT),
    **dict.fromkeys(("tool", "function", "observation"), "tool"),
}
"""Roles in the files, with those of chat messages."""
_TEXTS = ("text", "input_text", "output_text")


def _nothing(value: Any) -> None:
    if value:
        raise ValueError("a row holds text alone: leave this record out, or write the field's content as text")


_Empty = Annotated[None, BeforeValidator(_nothing)]


@dataclass(frozen=True, slots=True)
class RowMessage:
    """A message of a row."""

    role: str
    content: str

    @property
    def json(self) -> dict[str, str]:
        """The message as JSON."""
        return {"role": self.role, "content": self.content}


def _content(value: Any) -> Any:
    """A message's text, also from a list of parts; a part of another kind (picture, thinking) is left to be refused."""
    if not isinstance(value, list):
        return value
    parts = [part if isinstance(part, dict) else {} for part in value]
    texts: list[Any] = [part.get("text", part.get("value")) for part in parts if part.get("type") in _TEXTS]
    return "\n".join(texts) if len(texts) == len(value) and all(isinstance(text, str) for text in texts) else value


class ChatEntryMessage(Foreign):
    """A message of a chat model's API."""

    role: str
    content: Annotated[str, BeforeValidator(_content)]
    tool_calls: _Empty = None


class ShareGptMessage(Foreign):
    """A message in ShareGPT's form."""

    speaker: str = Field(validation_alias="from")
    value: Annotated[str, BeforeValidator(_content)]


class TextConversation(Foreign):
    """The fields of a conversation beside its messages; one with media cannot become rows of text.

    ``label`` says whether the last message is wanted (KTO's rows).
    """

    label: bool | None = None
    images: _Empty = None
    videos: _Empty = None
    audios: _Empty = None


class ChatRecord(TextConversation):
    """A conversation as chat messages."""

    messages: list[ChatEntryMessage] = Field(min_length=1, validation_alias=AliasChoices("messages", "conversation"))


class ShareGptRecord(TextConversation):
    """A conversation in ShareGPT's form."""

    conversations: list[ShareGptMessage] = Field(min_length=1)
    system: Text = ""


def read_chat(record: ChatRecord, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a row for each message of the assistant."""
    yield from rows(chat_messages("messages", record.messages), record.label)


def read_sharegpt(record: ShareGptRecord, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a row for each message of the assistant."""
    yield from rows(sharegpt_messages("conversations", record.conversations, record.system), record.label)


def chat_messages(field: str, entries: Sequence[ChatEntryMessage]) -> list[RowMessage]:
    """Returns the messages of a chat; ``field`` is the path of their list, for errors."""
    return [_message(f"{field}.{n}.role", entry.role, entry.content) for n, entry in enumerate(entries)]


def sharegpt_messages(field: str, entries: Sequence[ShareGptMessage], system: str = "") -> list[RowMessage]:
    """Returns the messages of a conversation in ShareGPT's form, after the system's if there is one."""
    messages = [_message(f"{field}.{n}.from", entry.speaker, entry.value) for n, entry in enumerate(entries)]
    return [RowMessage("system", system), *messages] if system else messages


def _message(field: str, role: str, content: str) -> RowMessage:
    if role.casefold() not in ROLES:
        raise DamagedRecordError(field=field, got=role, valid=ROLES)
    return RowMessage(ROLES[role.casefold()], content)


def conversation_key(prompt: Sequence[RowMessage]) -> str:
    """Returns the key by which rows are split: that of the conversation's beginning, up to the first user's message."""
    end = next((n for n, message in enumerate(prompt) if message.role == "user"), 0)
    return content_id(*(message.content for message in prompt[: end + 1]))


def row_of(prompt: Sequence[RowMessage], completion: str, value: float | None) -> Product:
    """Returns a training row."""
    return Product(
        ProductKind.ROW,
        {
            "prompt": [message.json for message in prompt],
            "completion": [RowMessage(ASSISTANT, completion).json],
            "value": value,
            "scenario": conversation_key(prompt),
        },
    )


def rows(messages: Sequence[RowMessage], label: bool | None = None) -> Iterator[Product]:
    """Yields a row for each message of the assistant that has a prompt and a text.

    Raises:
        DamagedRecordError: there is none.
    """
    answers = [n for n, message in enumerate(messages) if n and message.role == ASSISTANT and message.content.strip()]
    if not answers:
        raise DamagedRecordError(
            expected="a message of the assistant after another one", got=[m.role for m in messages]
        )
    for n in answers:
        # A label is about the whole conversation's last answer; the value of earlier ones is unknown.
        value = float(label) if label is not None and n == answers[-1] else None
        yield row_of(messages[:n], messages[n].content, value)


CONVERSATIONS = (
    Format("sharegpt", "ShareGPT conversations: from, value", ProductKind.ROW, ShareGptRecord, read_sharegpt),
    Format("chat-messages", "chat messages: role, content", ProductKind.ROW, ChatRecord, read_chat),
)
