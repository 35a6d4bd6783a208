"""Importer of ConvoKit corpora: the conversations of ``utterances.jsonl``.

The file has a line for each utterance, in any order. The lines of one conversation are one episode, in the order of
their times if all have one. Its speakers have no goals that anyone wrote down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    ForeignValue,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    converted,
    plain_name,
)
from sotopia_env.importers.formats.episodes import imported_episode
from sotopia_env.importers.formats.negotiation import HUMAN, idle
from sotopia_env.importers.formats.scene import ObservedScene
from sotopia_env.importers.formats.sotopia_text import UNKNOWN
from sotopia_env.importers.library import Library
from sotopia_env.importers.playback import play_acts, utterance
from sotopia_env.importers.source import RawRecord

_MOST_SPEAKERS = 50  # a relationship for every pair


def _time(value: Any) -> Any:
    """A time as a number; ``None`` for one that is written otherwise."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


class Utterance(Foreign):
    """An utterance; the older names of its fields are ``user``, ``root`` and ``reply-to``."""

    id: Identity
    speaker: Identity = Field(validation_alias=AliasChoices("speaker", "user"))
    conversation_id: Identity = Field(validation_alias=AliasChoices("conversation_id", "root"))
    reply_to: Any = Field(validation_alias=AliasChoices("reply_to", "reply-to"))
    text: Text
    timestamp: Annotated[float | None, BeforeValidator(_time)] = None


class UtteranceLines(ForeignValue[Annotated[list[Utterance], Field(min_length=1)]]):
    """The lines of one conversation."""


_FIELDS = frozenset(("id", "speaker", "user", "conversation_id", "root", "reply_to", "reply-to", "text", "timestamp"))


def _part(line: Any) -> tuple[str, Any]:
    """The conversation of a line, and the line without its metadata, which is most of it."""
    return str(line.get("conversation_id", line.get("root"))), {name: line[name] for name in line.keys() & _FIELDS}


def read(lines: UtteranceLines, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a conversation."""
    parts = lines.root
    if all(line.timestamp is not None for line in parts):
        parts = sorted(parts, key=lambda line: line.timestamp or 0.0)
    conversation = parts[0].conversation_id
    names = list(dict.fromkeys(line.speaker for line in parts))
    if not 2 <= len(names) <= _MOST_SPEAKERS:
        raise DamagedRecordError(field="speaker", expected=f"2 to {_MOST_SPEAKERS} speakers", got=len(names))
    goals = {plain_name(name): UNKNOWN for name in names}
    if len(goals) != len(names):
        raise DamagedRecordError(field="speaker", expected="names that differ in letters or digits", got=names)
    scene = ObservedScene(conversation, "A conversation that people had.", goals, {}, {})
    task = converted(lambda: library.shared(scene.key, scene.task))
    seats = [names.index(line.speaker) for line in parts]
    acts = [
        utterance(seat, line.text) if line.text.strip() else idle(seat) for seat, line in zip(seats, parts, strict=True)
    ]
    playback = converted(lambda: play_acts(task, acts))
    yield Product(ProductKind.EPISODE, imported_episode(conversation, task, playback, [HUMAN] * len(names), ()))


CONVOKIT = Format("convokit", "ConvoKit utterances.jsonl", ProductKind.EPISODE, UtteranceLines, read, gathers=_part)
