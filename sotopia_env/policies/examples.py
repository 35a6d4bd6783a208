"""Few-shot examples and the template of the ``single`` format, read from values or files and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError, field_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.foundation.records import JsonObject, Record
from sotopia_env.foundation.validation import invalid
from sotopia_env.world.action import ParseFailure, parse, to_json

PLACEHOLDER = "{{observation}}"


class Example(Record):
    """One situation and a good answer to it, shown to the model before its own.

    Attributes:
        observation: the situation as text, such as ``Observation.text``.
        action: the answer: an object with ``action_type``, ``argument`` and optionally ``to`` and ``move``, or its
            JSON text.
    """

    observation: str
    action: JsonObject

    @field_validator("action")
    @classmethod
    def _is_an_action(cls, value: dict[str, Any]) -> dict[str, Any]:
        action = parse(json.dumps(value))
        if isinstance(action, ParseFailure):
            raise InvalidValueError(expected="an action", got=value, hint=action.reason)
        return value

    @property
    def answer(self) -> str:
        """The action in the form that the model is asked to write."""
        # Parsed again for the normal form; terms keep the order of their issues.
        action = parse(json.dumps(self.action))
        assert not isinstance(action, ParseFailure)
        return to_json(action)


_EXAMPLES: TypeAdapter[tuple[Example, ...]] = TypeAdapter(tuple[Example, ...])
ExampleSource = Sequence[Example | tuple[str, str]] | Path
"""Examples, pairs of observation text and action JSON, or a JSON file with a list of objects with these two keys."""


def read_examples(source: ExampleSource) -> tuple[Example, ...]:
    """Returns the examples in ``source``, checked.

    Raises:
        InvalidValueError: the file cannot be read, or one of its entries is not an example; the message says which.
    """
    where = source if isinstance(source, Path) else ""
    try:
        if isinstance(source, Path):
            return _EXAMPLES.validate_python(parse_json(read_text(source), where))
        pairs = [{"observation": e[0], "action": e[1]} if isinstance(e, tuple) and len(e) == 2 else e for e in source]
        return _EXAMPLES.validate_python(pairs)
    except ValidationError as error:
        raise InvalidValueError.of(invalid(error), within="examples", where=where) from None


def read_template(source: str | Path | None) -> str:
    """Returns the text of a template for the ``single`` format; for ``None``, the observation alone.

    Args:
        source: the text itself, or the path of a file. It holds ``{{observation}}`` and no other placeholder.

    Raises:
        InvalidValueError: the file cannot be read, or the placeholders are not exactly ``{{observation}}``.
    """
    if source is None:
        return PLACEHOLDER

    text = read_text(source).rstrip("\n") if isinstance(source, Path) else source
    # Checked now: :func:`~sotopia_env.foundation.prompts.fill` would notice an unknown placeholder only in the first
    # turn.
    names = sorted(set(re.findall(r"\{\{\w+\}\}", text)))
    if names != [PLACEHOLDER]:
        where = source if isinstance(source, Path) else ""
        raise InvalidValueError(field="template", expected=f"the placeholder {PLACEHOLDER}", got=names, where=where)
    return text
