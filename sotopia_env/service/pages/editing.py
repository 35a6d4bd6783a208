"""Forms for records: reads a record from the fields of a form, or returns a message for each invalid field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from sotopia_env.errors import FieldError
from sotopia_env.records import invalid_part

RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Edited(Generic[RecordT]):
    """A form that was sent.

    Attributes:
        fields: the fields as the browser sent them, to fill the form in again.
        record: the record; ``None`` if a field is invalid.
        problems: messages by field; under an empty name, messages that belong to no field.
    """

    fields: Mapping[str, str]
    record: RecordT | None
    problems: Mapping[str, str]


def edited(kind: type[RecordT], values: Mapping[str, Any], fields: Mapping[str, str]) -> Edited[RecordT]:
    """Reads a record.

    Args:
        kind: of the record.
        values: made of the fields; problems are named by the keys here, with dots between nested ones.
        fields: as the browser sent them.
    """
    try:
        return Edited(fields, kind.model_validate(dict(values)), {})
    except ValidationError as error:
        problems: dict[str, str] = {}
        for item in error.errors():
            problem = invalid_part(item)
            path = ".".join(str(part) for part in item["loc"])
            problems.setdefault(_known(path or problem.field, fields), _sentence(problem))
        return Edited(fields, None, problems)


def _known(path: str, fields: Mapping[str, str]) -> str:
    """The field of the form that a path belongs to: itself, or the part of it that has one."""
    while path and path not in fields:
        path = path.rpartition(".")[0]
    return path


def _sentence(problem: FieldError) -> str:
    text = str(problem)
    return text[:1].upper() + text[1:]


def lines(text: str) -> list[str]:
    """Returns the lines of a text area that hold something."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def words(text: str) -> list[str]:
    """Returns the parts of a text between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
