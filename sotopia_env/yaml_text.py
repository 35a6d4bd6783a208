"""YAML from outside, read as data: plain values, every key once, finite numbers; and the YAML that is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sotopia_env.errors import InvalidValueError, Where, excerpt
from sotopia_env.files import read_text
from sotopia_env.json_text import MOST_LEVELS, check_extent

_MERGE = "tag:yaml.org,2002:merge"


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no annotations
    """Constructs plain values only, and says of each that it cannot construct where it stands."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = key.value if key.tag == _MERGE else self.construct_object(key)
                if name in keys:
                    _refuse(f"duplicate key {excerpt(name)}; remove one", key)
                keys.add(name)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int):
                str(value)  # which fails from thousands of digits on, and base 16 is read without such a limit
        except (ValueError, LookupError, OverflowError, AttributeError):  # of `!!int x`, `!!bool x`, 2001-99-99
            value = math.nan
        if isinstance(value, float) and not math.isfinite(value):
            kind = node.tag.rpartition(":")[2]
            _refuse(f"{excerpt(str(node.value))} is not a valid {kind}; put text in quotes, without a tag", node)
        return value


def _refuse(problem: str, node: Any) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def parse_yaml(text: str, where: str | Path) -> Any:
    """Returns what a YAML text holds.

    Raises:
        InvalidValueError: names ``where`` and the line; the text is not YAML, a key occurs twice in a mapping, a value
            is not of the type it has the form or the tag of, or values are nested too deeply.
    """
    try:
        value = yaml.load(text, Loader=_PlainLoader)
        check_extent(value, len(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = Where(where, mark.line + 1 if mark else None)
        raise InvalidValueError(f"not valid YAML ({_problem(error)})", where=location) from None
    except RecursionError:
        raise InvalidValueError(
            f"not valid YAML (it is nested more than {MOST_LEVELS} levels deep)", where=where
        ) from None
    except ValueError as error:
        raise InvalidValueError(f"not valid YAML ({error})", where=where) from None
    return value


def read_yaml(path: str | Path) -> Any:
    """Returns what a YAML file holds; raises as :func:`parse_yaml`, and when the file cannot be read."""
    return parse_yaml(read_text(path), path)


def to_yaml(value: Any) -> str:
    """Returns plain values as YAML, keys in their order."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return text


def _problem(error: Any) -> str:
    text = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return " ".join(str(text).split())
