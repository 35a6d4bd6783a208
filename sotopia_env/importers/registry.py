"""The registry of foreign formats, and detection of a record's format: the one whose shape it has.

Other packages add formats by an entry point of the group ``sotopia.formats``, the name of a tuple of
:class:`~sotopia_env.importers.foreign.Format`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError, UnknownNameError, Verbatim, Where
from sotopia_env.importers.foreign import Foreign, Format
from sotopia_env.importers.formats.agentsense import SCENES
from sotopia_env.importers.formats.ampo import AMPO
from sotopia_env.importers.formats.cards import CARDS
from sotopia_env.importers.formats.casting import CASTING
from sotopia_env.importers.formats.convokit import CONVOKIT
from sotopia_env.importers.formats.episodes import EPISODES
from sotopia_env.importers.formats.facts.tom import TOM
from sotopia_env.importers.formats.facts.werewolf import WEREWOLF_GAMES
from sotopia_env.importers.formats.multi_agent import MULTI_AGENT
from sotopia_env.importers.formats.profiles import PROFILES
from sotopia_env.importers.formats.rows.conversations import CONVERSATIONS
from sotopia_env.importers.formats.rows.logs import LOGS
from sotopia_env.importers.formats.rows.preferences import PREFERENCES
from sotopia_env.importers.formats.rows.sotopia_rl import TRAINING
from sotopia_env.importers.formats.sheets import SHEETS
from sotopia_env.importers.formats.social_reasoning import SOCIAL_REASONING

GROUP = "sotopia.formats"
logger = logging.getLogger(__name__)


def _installed() -> list[Format[Any]]:
    """The formats of other packages; a package that is broken must not keep the others' files from being read."""
    formats: list[Format[Any]] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            formats += entry.load()
        except (ImportError, AttributeError) as error:
            logger.warning("the formats of %s cannot be imported: %s", entry.value, error)
    return formats


BUILT_IN: tuple[Format[Any], ...] = (
    *PROFILES,
    *CARDS,
    *SHEETS,
    *CASTING,
    SCENES,
    *SOCIAL_REASONING,
    *EPISODES,
    *AMPO,
    *MULTI_AGENT,
    TOM,
    WEREWOLF_GAMES,
    CONVOKIT,
    *TRAINING,
    *CONVERSATIONS,
    *LOGS,
    *PREFERENCES,
)
"""The formats of this package."""
_OWN = {format.name: format for format in BUILT_IN}


@cache
def formats() -> Mapping[str, Format[Any]]:
    """Returns the formats by name, in the order in which files refer to each other: profiles, combinations, lists.

    Those of other packages come last, and cannot have the name of a built-in format.
    """
    return _OWN | {format.name: format for format in _installed() if format.name not in _OWN}


def format_named(name: str) -> Format[Any]:
    """Returns a format, or raises :class:`UnknownNameError` with the nearest name."""
    if name not in formats():
        raise UnknownNameError(field="format", got=name, valid=formats())
    return formats()[name]


def detect(value: Any) -> Format[Any] | None:
    """Returns the format of a record; ``None`` if it is not valid as one of any format."""
    matches = [format for format in formats().values() if format.detects(value)]
    # ``max`` takes the first of several formats that declare as many of the record's fields.
    return max(matches, key=lambda format: format.coverage(value), default=None)


def is_record(value: Any) -> bool:
    """Whether a value has the fields of a record of some format, valid or not."""
    return any(not format.missing(value) for format in formats().values() if issubclass(format.shape, Foreign))


def format_of(value: Any, where: Where | str = "") -> Format[Any]:
    """Returns the format of a record.

    Raises:
        DamagedRecordError: no format matches; the message names the field that is wrong, or the nearest formats with
            the fields that are missing.
    """
    format = detect(value)
    if format is None:
        raise DamagedRecordError.of(_unknown(value), where=where)
    return format


def _unknown(value: Any) -> DamagedRecordError:
    """The error for a value of no format: what is wrong with it as the nearest one, or the nearest ones."""
    near = [format for format in formats().values() if format.coverage(value)]
    near.sort(key=lambda format: (len(format.missing(value)), format.problems(value), -format.coverage(value)))
    if near and (error := _damage(near[0], value)) is not None:
        return error
    names = ", ".join(list(map(str, value))[:_MOST_NAMES]) if isinstance(value, dict) else ""
    hints = [_TABLES] if isinstance(value, str) else list(_nearest(near[:_MOST_NEAREST], value))
    return DamagedRecordError(
        expected="a record of a known format",
        got=Verbatim(f"an object with {names}") if names else value,
        hint="; ".join((*hints, _OTHERS)),
    )


_MOST_NAMES, _MOST_NEAREST = 8, 3
_OTHERS = "`sotopia import` without files lists the formats, and examples/negotiation_corpora reads more"
_TABLES = "a table is read from a .csv, .tsv or .parquet file"


def _damage(format: Format[Any], value: Any) -> DamagedRecordError | None:
    """The error of a record that is a damaged one of ``format``: it has all its fields, or all but a misspelt one."""
    missing = len(format.missing(value))
    try:
        format.check(value)
    except DamagedRecordError as error:
        return error if not missing or (missing == 1 and error.nearest is not None) else None
    return None


def _nearest(near: Sequence[Format[Any]], value: Mapping[str, Any]) -> Iterator[str]:
    """A clause that names the formats, each with the fields that the value lacks."""
    needs = [" and ".join(" or ".join(group) for group in format.missing(value)) for format in near]
    if near:
        clauses = ", ".join(f"{format.name} also needs {need}" for format, need in zip(near, needs, strict=True))
        yield f"nearest: {clauses}"
