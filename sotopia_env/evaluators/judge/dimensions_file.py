"""Custom dimensions from a YAML file (SOTOPIA-S4 §3.3).

The file holds a list of entries, bare or under the key ``dimensions``, beside which a task file has its tasks::

    dimensions:
      - name: salary_optimality
        low: 1
        high: 5
        instruction: How close did the agent come to the salary it had in mind?
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sotopia_env.errors import InvalidValueError, name_hint
from sotopia_env.records import expectation
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.taskset import YAML_KEYS
from sotopia_env.yaml_text import read_yaml

FIELDS: tuple[str, ...] = ("name", "low", "high", "instruction")
"""The fields of an entry; all are required."""


def load_dimensions(path: str | Path) -> tuple[CustomDimension, ...]:
    """Returns the dimensions in a YAML file, in its order.

    Raises:
        InvalidValueError: the file cannot be read or an entry is not well formed; names file, entry, field and, for
            a misspelt field, the nearest one.
    """
    entries = _entries(read_yaml(path), path)
    dimensions: list[CustomDimension] = []
    for number, entry in enumerate(entries, start=1):
        dimension = _dimension(entry, f"{path}: entry {number}")
        if dimension.name in [earlier.name for earlier in dimensions]:
            raise InvalidValueError(f"{path}: entry {number}: field 'name': {dimension.name!r} is given twice")
        dimensions.append(dimension)
    return tuple(dimensions)


def _entries(content: Any, path: str | Path) -> list[Any]:
    if isinstance(content, dict):
        for key in content:
            if key not in YAML_KEYS:
                raise InvalidValueError(f"{path}: key: {name_hint(str(key), YAML_KEYS)}")
        content = content.get("dimensions")
    if not isinstance(content, list) or not content:
        raise InvalidValueError(
            f"{path}: expected a list of dimensions, each with {', '.join(FIELDS)}, got {content!r}"
        )
    return content


def _dimension(entry: Any, where: str) -> CustomDimension:
    if not isinstance(entry, dict):
        raise InvalidValueError(f"{where}: expected the fields {', '.join(FIELDS)}, got {_excerpt(entry)}")
    where += f" ({_excerpt(entry['name'])})" if "name" in entry else ""
    for key in entry:
        if key not in FIELDS:
            raise InvalidValueError(f"{where}: field: {name_hint(str(key), FIELDS)}")
    for field in FIELDS:
        if field not in entry:
            raise InvalidValueError(f"{where}: field {field!r}: expected a value, got none")
    try:
        return CustomDimension.model_validate(entry, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = f"field {first['loc'][0]!r}: " if first["loc"] else ""
        raise InvalidValueError(f"{where}: {field}{expectation(first)}") from None


def _excerpt(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
