"""Custom dimensions as entries of a YAML document, on their own or beside the tasks of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.foundation.validation import invalid
from sotopia_env.world.reward import CustomDimension

FIELDS: tuple[str, ...] = ("name", "low", "high", "instruction")
"""The fields of an entry; all are required."""


def custom_dimensions_of(entries: Any, path: str | Path) -> tuple[CustomDimension, ...]:
    """Returns the dimensions that the entries of a document describe, in their order.

    Args:
        entries: the part of the document, which should be a list of mappings with :data:`FIELDS`.
        path: the document's file, for messages.

    Raises:
        InvalidValueError: there is no entry, or one is invalid. The message names the file, the entry, the field and,
            for a misspelt field, the nearest valid one.
    """
    if not isinstance(entries, list) or not entries:
        expected = f"a list of dimensions, each with {', '.join(FIELDS)}"
        raise InvalidValueError(field="dimensions", expected=expected, got=entries, where=path)
    dimensions: list[CustomDimension] = []
    for number, entry in enumerate(entries, start=1):
        where = Where(path, record=f"entry {number}")
        dimension = _dimension(entry, where)
        if dimension.name in [earlier.name for earlier in dimensions]:
            raise InvalidValueError("another entry has this name", field="name", got=dimension.name, where=where)
        dimensions.append(dimension)
    return tuple(dimensions)


def _dimension(entry: Any, where: Where) -> CustomDimension:
    if not isinstance(entry, dict):
        raise InvalidValueError(expected=f"the fields {', '.join(FIELDS)}", got=entry, where=where)
    for key in entry:
        if key not in FIELDS:
            raise InvalidValueError("unknown field", field=str(key), got=key, valid=FIELDS, where=where)
    try:
        return CustomDimension.model_validate(entry, strict=True)
    except ValidationError as error:
        raise InvalidValueError.of(invalid(error), where=where) from None


def with_dimensions(record: Any, dimensions: Sequence[CustomDimension]) -> Any:
    """Returns the raw record of a task, template or scenario with the dimensions of its file added.

    A record with dimensions of its own keeps these alone; a cast has none.
    """
    if not dimensions or not isinstance(record, Mapping):
        return record
    if "scenario" in record:
        return {**record, "scenario": with_dimensions(record["scenario"], dimensions)}
    return {"dimensions": [one.model_dump() for one in dimensions], **record} if "context" in record else record
