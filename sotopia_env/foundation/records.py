"""The base classes of records on disk, and the types of their fields."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from sotopia_env.foundation.errors import (
    DamagedRecordError,
    FieldError,
    Where,
)
from sotopia_env.foundation.json_text import canonical_json, decode_json, parse_json
from sotopia_env.foundation.quoting import structural_character
from sotopia_env.foundation.validation import invalid

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must be a single line without control characters")
    return text


def not_blank(text: str) -> str:
    """Returns ``text``, or raises :class:`ValueError` if it has no visible character."""
    # Characters that are not printable (a zero-width space) are as invisible as blanks.
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise ValueError("must not be blank")
    return text


def not_structural(text: str) -> str:
    """Returns ``text``, or raises :class:`ValueError` if it could imitate the structure of a line that shows it."""
    if character := structural_character(text):
        raise ValueError(f"must not contain {character!r}: names are shown without quotes; omit it, or use a word")
    return text


def json_or_value(value: Any) -> Any:
    """Returns the value of a JSON text, and any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value)
    except ValueError as problem:
        raise ValueError(f"must be valid JSON ({problem})") from None


def _writable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:  # not JSON, half a surrogate pair, nested too deeply
        raise ValueError(f"must be JSON that can be written ({error})") from None
    return value


def _as_read_back(value: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(canonical_json(_writable(value)))  # noqa: TID251 - it was written just now
    return content


def _sorted(value: dict[str, str]) -> dict[str, str]:
    return dict(sorted(value.items()))


Line = Annotated[str, AfterValidator(_one_line)]
MOST_CHARACTERS = 80
"""Maximum number of characters in a name or an id."""
Name = Annotated[
    str, Field(min_length=1, max_length=MOST_CHARACTERS), AfterValidator(_one_line), AfterValidator(not_blank)
]
Label = Annotated[Name, AfterValidator(not_structural)]
"""A name that is shown without quotes; see :func:`~sotopia_env.foundation.quoting.structural_character`."""


# Free-form data has a different shape in every task family. As JSON *text* inside a record it has one column type, so
# that columnar readers (``datasets.load_dataset("json")``) can load files that mix families. Both forms can be read.
JsonObject = Annotated[
    dict[str, Any],
    BeforeValidator(json_or_value),
    AfterValidator(_writable),
    PlainSerializer(canonical_json, return_type=str, when_used="json"),
]
# Policies and prompts list the keys of what a task says. A task that was written and read must be played alike, so its
# keys have the order of the file from the start.
SortedObject = Annotated[
    dict[str, Any],
    BeforeValidator(json_or_value),
    AfterValidator(_as_read_back),
    PlainSerializer(canonical_json, return_type=str, when_used="json"),
]


TextMap = Annotated[
    dict[Name, Line],
    BeforeValidator(json_or_value),
    AfterValidator(_sorted),
    PlainSerializer(canonical_json, return_type=str, when_used="json"),
]


class Record(BaseModel):
    """Base class of everything that is written to disk: immutable, without undeclared fields."""

    # Validators are built when a class is first used: building all of them takes a sixth of the package's import time.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class SourcedRecord(Record):
    """A record that may come from an import.

    Earlier versions stored the rest of the foreign record in the field ``origin``. It is ignored when such a file is
    read.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_origin(cls, values: Any) -> Any:
        if isinstance(values, dict) and "origin" in values:
            return {name: value for name, value in values.items() if name != "origin"}
        return values


_RecordT = TypeVar("_RecordT", bound=BaseModel)


def read_record(
    kind: type[_RecordT],
    text: str | bytes,
    where: Where | str | Path,
    failure: type[FieldError] = DamagedRecordError,
) -> _RecordT:
    """Returns the record in a JSON text.

    Args:
        kind: the class of the record.
        text: the text of one JSON object.
        where: the location of the text, for messages.
        failure: the type of the exception to raise.

    Raises:
        FieldError: the text is not JSON, or not a record of this class; of type ``failure``.
    """
    raw = parse_json(text, where, failure)
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise failure.of(invalid(error, kind.model_fields, raw), where=where) from None


"""The expected value of a field by pydantic's type of the problem; formatted with the problem's context."""
