"""The reader of custom dimensions in YAML files (SOTOPIA-S4 §3.3).

The file contains a list of entries, at the top level or under the key ``dimensions``; a task file may have both tasks
and dimensions::

    dimensions:
      - name: salary_optimality
        low: 1
        high: 5
        instruction: How close was the result to the salary that the agent had in mind?
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.taskset import YAML_KEYS

FIELDS: tuple[str, ...] = ("name", "low", "high", "instruction")
"""The fields of an entry; all are required."""


def load_dimensions(path: str | Path) -> tuple[CustomDimension, ...]:
    """Returns the dimensions in a YAML file, in its order.

    Raises:
        InvalidValueError: the file cannot be read or an entry is invalid. The message names the file, the entry, the
            field and, for a misspelt field, the nearest valid one.
    """
    dimensions: list[CustomDimension] = []
    for number, entry in enumerate(_entries(read_yaml(path), path), start=1):
        where = Where(path, record=f"entry {number}")
        dimension = _dimension(entry, where)
        if dimension.name in [earlier.name for earlier in dimensions]:
            raise InvalidValueError("another entry has this name", field="name", got=dimension.name, where=where)
        dimensions.append(dimension)
    return tuple(dimensions)


def _entries(content: Any, path: str | Path) -> list[Any]:
    if isinstance(content, dict):
        for key in content:
            if key not in YAML_KEYS:
                raise InvalidValueError("unknown key", field=str(key), got=key, valid=YAML_KEYS, where=path)
        content = content.get("dimensions")
    if not isinstance(content, list) or not content:
        expected = f"a list of dimensions, each with {', '.join(FIELDS)}"
        raise InvalidValueError(field="dimensions", expected=expected, got=content, where=path)
    return content


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
