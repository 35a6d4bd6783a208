"""The registry of foreign formats, and detection of a record's format: the first one that matches.

Other packages add formats by an entry point of the group ``sotopia.formats``, the name of a tuple of
:class:`~sotopia_env.importers.foreign.Format`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError, UnknownNameError, Verbatim, Where
from sotopia_env.importers.foreign import Format
from sotopia_env.importers.formats.agentsense import SCENES
from sotopia_env.importers.formats.ampo import AMPO
from sotopia_env.importers.formats.casting import CASTING
from sotopia_env.importers.formats.episodes import EPISODES
from sotopia_env.importers.formats.profiles import PROFILES
from sotopia_env.importers.formats.social_reasoning import SOCIAL_REASONING
from sotopia_env.importers.formats.training_rows import TRAINING

GROUP = "sotopia.formats"
logger = logging.getLogger(__name__)


def _installed() -> list[Format]:
    """The formats of other packages; a package that is broken must not keep the others' files from being read."""
    formats: list[Format] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            formats += entry.load()
        except (ImportError, AttributeError) as error:
            logger.warning("the formats of %s cannot be imported: %s", entry.value, error)
    return formats


_OWN = {format.name: format for format in (*PROFILES, *CASTING, SCENES, *SOCIAL_REASONING, *EPISODES, *AMPO, *TRAINING)}


@cache
def formats() -> Mapping[str, Format]:
    """Returns the formats by name, in the order in which files refer to each other: profiles, combinations, lists.

    Those of other packages come last, and cannot have the name of a built-in format.
    """
    return _OWN | {format.name: format for format in _installed() if format.name not in _OWN}


def format_named(name: str) -> Format:
    """Returns a format, or raises :class:`UnknownNameError` with the nearest name."""
    if name not in formats():
        raise UnknownNameError(field="format", got=name, valid=formats())
    return formats()[name]


def detect(value: Any) -> Format | None:
    """Returns the format of a record; ``None`` if no format matches."""
    return next((format for format in formats().values() if format.detects(value)), None)


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
            hint=f"name its format, one of {', '.join(formats())}",
            where=where,
        )
    return format
