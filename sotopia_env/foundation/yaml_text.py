"""A strict reader of YAML from outside (plain values, unique keys, finite numbers), and a writer of YAML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sotopia_env.foundation.errors import InvalidValueError, Where, excerpt
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.json_text import MOST_LEVELS, check_extent

_MERGE = "tag:yaml.org,2002:merge"
_BREAKS = frozenset("\r\x85\u2028\u2029")


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no annotations
    """A loader that constructs plain values only; its errors have the location of the value."""

    # PyYAML lets the last of several equal keys win, so duplicates are detected before the mapping is constructed.
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
                # Fails for thousands of digits, as decimal numbers do when they are read; hexadecimal ones do not.
                str(value)
        except (ValueError, LookupError, OverflowError, AttributeError):  # for `!!int x`, `!!bool x`, 2001-99-99
            value = math.nan  # refused below
        if isinstance(value, float) and not math.isfinite(value):
            kind = node.tag.rpartition(":")[2]
            _refuse(f"{excerpt(str(node.value))} is not a valid {kind}; put text in quotes, without a tag", node)
        return value


def _refuse(problem: str, node: Any) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed YAML text.

    Attributes:
        value: the value of the document.
    """

    value: Any
    _root: Any

    def line(self, path: Sequence[str | int]) -> int:
        """Returns the line, from 1, of the key or list item at ``path``, or of its deepest part that exists."""
        node, line = self._root, self._root.start_mark.line if self._root else 0
        for part in path:
            if isinstance(node, yaml.MappingNode):
                pairs = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            else:
                items = node.value if isinstance(node, yaml.SequenceNode) else ()
                pairs = {str(index): (item, item) for index, item in enumerate(items)}
            if str(part) not in pairs:
                break
            key, node = pairs[str(part)]
            line = key.start_mark.line
        return int(line) + 1


def parse_yaml(text: str, where: str | Path) -> Any:
    """Returns the value of a YAML text; raises the errors of :func:`parse_document`."""
    return parse_document(text, where).value


def parse_document(text: str, where: str | Path) -> YamlDocument:
    """Returns the value of a YAML text, with the lines of its parts.

    Raises:
        InvalidValueError: the text is not YAML, a key occurs twice in a mapping, a value does not match its tag or the
            type that its form implies, or values are nested too deeply; the error has ``where`` and the line.
    """
    try:
        loader = _PlainLoader(text)
        root = loader.get_single_node()
        value = None if root is None else loader.construct_document(root)
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
    return YamlDocument(value, root)


def read_yaml(path: str | Path) -> Any:
    """Returns the value in a YAML file; raises the errors of :func:`read_document`."""
    return read_document(path).value


def read_document(path: str | Path) -> YamlDocument:
    """Does the same as :func:`parse_document` for a file; also raises the error if the file cannot be read."""
    return parse_document(read_text(path), path)


class _PlainDumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no annotations
    """A dumper that writes texts of several lines as blocks, as people do."""


def _text_node(dumper: Any, text: str) -> Any:
    # PyYAML breaks lines at these characters, and would give back other ones; only double quotes escape them.
    style = '"' if _BREAKS.intersection(text) else "|" if "\n" in text else None
    # It puts a text in quotes nevertheless if a block would not give it back, as with spaces before a line's end.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_PlainDumper.add_representer(str, _text_node)


def to_yaml(value: Any) -> str:
    """Returns plain values as YAML; keys keep their order, texts of several lines are blocks."""
    text: str = yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _problem(error: Any) -> str:
    text = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return " ".join(str(text).split())
