"""Importers of rows with a prompt: with one completion, or with a chosen and a rejected one.

A pair becomes two rows, the chosen completion with the value 1 and the rejected one with 0, which a reward model can
learn. Most files order the two and measure nothing, so the difference of 1 is a convention; scores in a file are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, Format, Product, ProductKind, Text
from sotopia_env.importers.formats.rows.conversations import (
    ASSISTANT,
    ChatEntryMessage,
    RowMessage,
    ShareGptMessage,
    chat_messages,
    row_of,
    sharegpt_messages,
)
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord

CHOSEN, REJECTED = 1.0, 0.0
"""Values of the two completions."""
_HUMAN, _ASSISTANT = "\n\nHuman:", "\n\nAssistant:"

_Turns = str | list[ChatEntryMessage]


class CompletionRow(Foreign):
    """A prompt with its completion, as text or as chat messages."""

    prompt: _Turns
    completion: _Turns
    value: float | None = None
    label: bool | None = None


class PreferencePair(Foreign):
    """Two completions of a prompt, as texts or as chat messages; without a prompt, they begin with the same turns."""

    prompt: _Turns = ""
    system: Text = ""
    chosen: _Turns
    rejected: _Turns
    score_chosen: float | None = None
    score_rejected: float | None = None


class ShareGptPair(Foreign):
    """Two answers to a conversation in ShareGPT's form."""

    conversations: list[ShareGptMessage]
    system: Text = ""
    chosen: ShareGptMessage
    rejected: ShareGptMessage


class MessagesPair(Foreign):
    """Two whole conversations that begin with the same messages."""

    chosen_messages: list[ChatEntryMessage]
    rejected_messages: list[ChatEntryMessage]


def read_completion(row: CompletionRow, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the row."""
    value = row.value if row.value is not None or row.label is None else float(row.label)
    yield row_of(
        _turns("prompt", row.prompt, "user"), _answer("completion", _turns("completion", row.completion)), value
    )


def read_pair(pair: PreferencePair, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the rows of a pair."""
    prompt = _turns("prompt", pair.prompt, "user") if pair.prompt else []
    if pair.system:
        prompt = [RowMessage("system", pair.system), *prompt]
    # Scores were measured; without both of them, only the order is known.
    scores = (pair.score_chosen, pair.score_rejected)
    values = (CHOSEN, REJECTED) if None in scores else scores
    yield from _pair(prompt, _turns("chosen", pair.chosen), _turns("rejected", pair.rejected), values)


def read_sharegpt_pair(pair: ShareGptPair, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the rows of a pair."""
    prompt = sharegpt_messages("conversations", pair.conversations, pair.system)
    chosen, rejected = (sharegpt_messages(field, [getattr(pair, field)]) for field in ("chosen", "rejected"))
    yield from _pair(prompt, chosen, rejected)


def read_messages_pair(pair: MessagesPair, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the rows of a pair."""
    chosen = chat_messages("chosen_messages", pair.chosen_messages)
    yield from _pair([], chosen, chat_messages("rejected_messages", pair.rejected_messages))


def _turns(field: str, value: _Turns, role: str = ASSISTANT) -> list[RowMessage]:
    """The messages of a field; a text is one message, or those of a transcript with ``Human:`` and ``Assistant:``."""
    if not isinstance(value, str):
        return chat_messages(field, value)
    if not value.startswith(_HUMAN):
        return [RowMessage(role, value)]
    # Anthropic's files: every turn begins with its speaker after a blank line.
    turns = []
    for part in value.split(_HUMAN)[1:]:
        words, *answers = part.split(_ASSISTANT)
        turns += [RowMessage("user", words.strip()), *(RowMessage(ASSISTANT, answer.strip()) for answer in answers)]
    return turns


def _pair(
    prompt: list[RowMessage],
    chosen: list[RowMessage],
    rejected: list[RowMessage],
    values: tuple[float | None, float | None] = (CHOSEN, REJECTED),
) -> Iterator[Product]:
    turns_of_both = zip(chosen[:-1], rejected[:-1], strict=False)
    shared = [turn for turn, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], turns_of_both)]
    # Some files repeat the prompt at the beginning of both completions.
    before = shared if shared[: len(prompt)] == prompt else [*prompt, *shared]
    for field, turns, value in zip(("chosen", "rejected"), (chosen, rejected), values, strict=True):
        yield row_of(_prompt(before), _answer(field, turns[len(shared) :]), value)


def _prompt(messages: list[RowMessage]) -> list[RowMessage]:
    if not messages:
        raise DamagedRecordError(field="prompt", expected="a prompt, or turns with which both completions begin")
    return messages


def _answer(field: str, turns: Sequence[RowMessage]) -> str:
    """The completion's text; raises :class:`DamagedRecordError` unless it is one message of the assistant."""
    roles: Any = [turn.role for turn in turns]
    if roles != [ASSISTANT]:
        raise DamagedRecordError(field=field, expected="one message of the assistant after the prompt", got=roles)
    if not turns[0].content.strip():
        raise DamagedRecordError(field=field, expected="an answer with a text", got=turns[0].content)
    return turns[0].content


PREFERENCES = (
    Format("completion-rows", "rows with prompt, completion", ProductKind.ROW, CompletionRow, read_completion),
    Format("preference-rows", "rows with chosen, rejected", ProductKind.ROW, PreferencePair, read_pair),
    Format("sharegpt-preferences", "ShareGPT with chosen, rejected", ProductKind.ROW, ShareGptPair, read_sharegpt_pair),
    Format(
        "message-preferences", "chosen_messages, rejected_messages", ProductKind.ROW, MessagesPair, read_messages_pair
    ),
)
