"""The registry of foreign formats, and detection of a record's format: the first one that matches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError, UnknownNameError, Verbatim, Where
from sotopia_env.importers.foreign import Format
from sotopia_env.importers.formats.agentsense import SCENES
from sotopia_env.importers.formats.ampo import AMPO
from sotopia_env.importers.formats.casino import CASINO
from sotopia_env.importers.formats.casting import CASTING
from sotopia_env.importers.formats.craigslist import CRAIGSLIST
from sotopia_env.importers.formats.deal_or_no_deal import COCOA, TEXT
from sotopia_env.importers.formats.episodes import EPISODES
from sotopia_env.importers.formats.profiles import PROFILES
from sotopia_env.importers.formats.social_reasoning import SOCIAL_REASONING
from sotopia_env.importers.formats.training_rows import TRAINING

_ALL = (*PROFILES, *CASTING, SCENES, *SOCIAL_REASONING, *EPISODES, *AMPO, *TRAINING, TEXT, COCOA, *CRAIGSLIST, CASINO)
FORMATS: Mapping[str, Format] = {format.name: format for format in _ALL}
"""Formats by name, in the order in which files refer to each other: profiles, combinations, lists, then the rest."""


def format_named(name: str) -> Format:
    """Returns a format, or raises :class:`UnknownNameError` with the nearest name."""
    if name not in FORMATS:
        raise UnknownNameError(field="format", got=name, valid=FORMATS)
    return FORMATS[name]


def detect(value: Any) -> Format | None:
    """Returns the format of a record; ``None`` if no format matches."""
    return next((format for format in FORMATS.values() if format.detects(value)), None)


def format_of(value: Any, where: Where | str = "") -> Format:
    """Returns the format of a record.

    Raises:
        DamagedRecordError: no format matches; the message names the record's fields.
    """
    format = detect(value)
    if format is None:
        names = ", ".join(list(value)[:8]) if isinstance(value, dict) else ""
        raise DamagedRecordError(
            expected="a record of a known format",
            got=Verbatim(f"an object with {names}") if names else value,
            hint=f"name its format, one of {', '.join(FORMATS)}",
            where=where,
        )
    return format
