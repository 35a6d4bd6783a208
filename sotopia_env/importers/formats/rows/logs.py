"""Importers of logs of chat programs: ChatGPT's export (``conversations.json``) and SillyTavern's chats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, ForeignValue, Format, Product, ProductKind, Text
from sotopia_env.importers.formats.rows.conversations import ASSISTANT, ROLES, RowMessage, rows
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord

# --- ChatGPT ---------------------------------------------------------------------------------------------------------

_TEXT = "text"


class ExportAuthor(Foreign):
    """The author of a message."""

    role: str


class ExportContent(Foreign):
    """The content of a message; only the type ``text`` consists of texts alone."""

    content_type: str
    parts: list[Any] = Field(default_factory=list)


class ExportMessage(Foreign):
    """A message."""

    author: ExportAuthor
    content: ExportContent

    @property
    def text(self) -> str | None:
        """The text; ``None`` for a picture, thinking, a program and the like."""
        is_text = self.content.content_type == _TEXT and all(isinstance(part, str) for part in self.content.parts)
        return "\n".join(self.content.parts) if is_text else None


class ExportNode(Foreign):
    """A node of the tree of messages, which branches where a person edited a message or asked again."""

    parent: str | None = None
    message: ExportMessage | None = None


class ExportedChat(Foreign):
    """A conversation of ChatGPT's export."""

    mapping: dict[str, ExportNode]
    current_node: str

    def branch(self) -> list[ExportMessage]:
        """Returns the messages from the first one to the current node."""
        messages: list[ExportMessage] = []
        name: str | None = self.current_node
        for _ in self.mapping:
            if name is None:
                return messages[::-1]
            if name not in self.mapping:
                raise DamagedRecordError(field="parent", got=name, valid=self.mapping)
            node = self.mapping[name]
            messages += [] if node.message is None else [node.message]
            name = node.parent
        # Every node has been visited: the last one must be the root.
        if name is not None:
            raise DamagedRecordError(field="mapping", expected="a tree whose root has no parent", got=name)
        return messages[::-1]


def read_export(chat: ExportedChat, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a row for each answer on the current branch."""
    branch = chat.branch()
    messages = [
        RowMessage(ROLES[message.author.role], message.text)
        for message in branch
        if message.text and message.author.role in ROLES
    ]
    left_out = sum(message.text is None for message in branch)
    note = f"mapping: {left_out} messages that are not text are left out of the prompts"
    for product in rows(messages):
        yield Product(product.kind, product.value, (note,) if left_out else ())


# --- SillyTavern -----------------------------------------------------------------------------------------------------


class TavernHeader(Foreign):
    """The first line of a chat."""

    one_of = (("chat_metadata", "character_name"),)

    chat_metadata: Any = None
    character_name: Any = None


class TavernLine(Foreign):
    """A message of a chat."""

    name: Text
    is_user: bool
    is_system: bool = False
    mes: str


class TavernChat(ForeignValue[list[TavernLine | TavernHeader]]):
    """The lines of a chat."""


def _continues(lines: Sequence[Any], line: Any) -> bool:
    return "mes" in line  # a header begins another chat


def read_tavern(chat: TavernChat, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a row for each message of a character; notices of the program are left out."""
    lines = [line for line in chat.root if isinstance(line, TavernLine) and not line.is_system]
    yield from rows([RowMessage("user" if line.is_user else ASSISTANT, line.mes) for line in lines])


LOGS = (
    Format("chatgpt-export", "ChatGPT's export, conversations.json", ProductKind.ROW, ExportedChat, read_export),
    Format("sillytavern-chat", "SillyTavern chats, .jsonl", ProductKind.ROW, TavernChat, read_tavern, joins=_continues),
)
