"""Forms for records: reads a record from the fields of a form, or returns a message for each invalid field."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming
from sotopia_env.foundation.errors import FieldError, joined
from sotopia_env.foundation.validation import invalid_part
from sotopia_env.naming.policies import PolicyLine
from sotopia_studio.context import Services
from sotopia_studio.store import library
from sotopia_studio.store.kinds import DIMENSION_LISTS

RecordT = TypeVar("RecordT", bound=BaseModel)


async def sent_fields(request: Request) -> dict[str, str]:
    """A dependency: the fields of the form that a browser sent."""
    return {name: str(value) for name, value in (await request.form()).items()}


Fields = Annotated[dict[str, str], Depends(sent_fields)]


@dataclass(frozen=True, slots=True)
class Edited(Generic[RecordT]):
    """A submitted form.

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
        kind: the class of the record.
        values: the values made from the fields; problems are named by these keys, with dots between nested keys.
        fields: the fields as the browser sent them.
    """
    try:
        return Edited(fields, kind.model_validate(dict(values)), {})
    except ValidationError as error:
        problems: dict[str, str] = {}
        for item in error.errors():
            problem = invalid_part(item)
            path = joined(".".join(str(part) for part in item["loc"]), problem.field)
            problems.setdefault(_form_field(path, fields), _sentence(item["type"], problem))
        return Edited(fields, None, problems)


def _form_field(path: str, fields: Mapping[str, str]) -> str:
    """The field of the form that a path belongs to: the path itself, or the part of it that has a field."""
    while path and path not in fields:
        path = path.rpartition(".")[0]
    return path


def _sentence(kind: str, problem: FieldError) -> str:
    text = "this is needed" if kind == "missing" else str(problem)
    return text[:1].upper() + text[1:]


@cache
def policy_lines() -> tuple[PolicyLine, ...]:
    """Returns the policies that a form suggests, each with a line; the installed ones do not change meanwhile."""
    return tuple(naming.described_policies())


async def evaluation_menus(parts: Services, connection: AsyncConnection) -> dict[str, Any]:
    """Returns the choices in the form of an evaluation: evaluators, language models, and lists of dimensions."""
    lists = await library.items(connection, DIMENSION_LISTS, limit=library.PAGE)
    return {"lists": lists, "evaluators": naming.EVALUATOR_NAMES, "models": parts.settings.model_names}


def seconds_since(moment: str) -> float | None:
    """Returns the seconds since the time in a field of a form; ``None`` if it holds no time."""
    is_time = moment.replace(".", "", 1).isdecimal()
    return max(0.0, time.time() - float(moment)) if is_time else None


def lines(text: str) -> list[str]:
    """Returns the non-empty lines of a text area."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def words(text: str) -> list[str]:
    """Returns the parts of a text between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
