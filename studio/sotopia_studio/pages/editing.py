"""Forms: reading what a browser sent, and the menus that several forms have."""

from __future__ import annotations

import time
from functools import cache
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming
from sotopia_env.naming.policies import PolicyLine
from sotopia_studio.context import Services
from sotopia_studio.store import library
from sotopia_studio.store.kinds import DIMENSION_LISTS


async def sent_fields(request: Request) -> dict[str, str]:
    """A dependency: the fields of the form that a browser sent."""
    return {name: str(value) for name, value in (await request.form()).items()}


Fields = Annotated[dict[str, str], Depends(sent_fields)]


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
