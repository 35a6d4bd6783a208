"""Custom dimensions from a YAML file (SOTOPIA-S4 §3.3).

The file holds a list of entries, bare or under the key ``dimensions``::

    dimensions:
      - name: salary_optimality
        low: 1
        high: 5
        instruction: How close did the agent come to the salary it had in mind?
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sotopia_env.errors import InvalidValueError, name_hint
from sotopia_env.world.reward import CustomDimension

FIELDS: tuple[str, ...] = ("name", "low", "high", "instruction")
"""The fields of an entry; all are required."""


def load_dimensions(path: str | Path) -> tuple[CustomDimension, ...]:
    """Returns the dimensions in a YAML file, in its order.

    Raises:
        InvalidValueError: the file cannot be read or an entry is not well formed; names file, entry, field and, for
            a misspelt field, the nearest one.
    """
    entries = _entries(_read(path), path)
    dimensions: list[CustomDimension] = []
    for number, entry in enumerate(entries, start=1):
        dimension = _dimension(entry, f"{path}: entry {number}")
        if dimension.name in [earlier.name for earlier in dimensions]:
            raise InvalidValueError(f"{path}: entry {number}: field 'name': {dimension.name!r} is given twice")
        dimensions.append(dimension)
    return tuple(dimensions)


def _read(path: str | Path) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8")
        _check_keys(yaml.compose(text, Loader=yaml.SafeLoader), path)
        return yaml.safe_load(text)
    except OSError as error:
        raise InvalidValueError(f"{path}: cannot be opened ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{path}: expected UTF-8 text, got byte {error.object[error.start]:#x}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise InvalidValueError(f"{where}: expected YAML, got {getattr(error, 'problem', None) or error}") from None


def _check_keys(root: Any, path: str | Path) -> None:
    """Refuses duplicate keys, of which YAML would use the last without a word."""
    nodes, ids = [root], set()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in ids:  # an alias may lead back
            continue
        ids.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        if isinstance(node, yaml.MappingNode):
            _check_mapping(node, path)
            nodes += [value for _, value in node.value]


def _check_mapping(node: Any, path: str | Path) -> None:
    keys: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in keys:
                raise InvalidValueError(f"{path}, line {key.start_mark.line + 1}: {key.value!r} is given twice")
            keys.add(key.value)


def _entries(content: Any, path: str | Path) -> list[Any]:
    if isinstance(content, dict):
        for key in content:
            if key != "dimensions":
                raise InvalidValueError(f"{path}: key: {name_hint(str(key), ['dimensions'])}")
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
        value = f", got {_excerpt(first['input'])}" if first["loc"] else ""
        raise InvalidValueError(f"{where}: {field}{first['msg'].removeprefix('Value error, ')}{value}") from None


def _excerpt(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
