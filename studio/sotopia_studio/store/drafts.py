"""Drafts of forms: text that people have typed but not sent, kept across reloads and devices."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_studio.store import tables
from sotopia_studio.store.engine import insert_for

LONGEST = 500_000
"""The maximum length of a draft, in characters."""


async def save(connection: AsyncConnection, owner: str, form: str, fields: Mapping[str, str]) -> None:
    """Saves the fields of a form, replacing the previous draft.

    Raises:
        InvalidValueError: the fields are too long.
    """
    content = canonical_json(dict(fields))
    if len(content) > LONGEST:
        raise InvalidValueError(field="draft", expected=f"at most {LONGEST:,} characters", got=len(content))
    values = {"content": content, "at": time.time()}
    new = insert_for(connection, tables.draft).values(owner=owner, form=form, **values)
    await connection.execute(new.on_conflict_do_update(index_elements=["owner", "form"], set_=values))


async def load(connection: AsyncConnection, owner: str, form: str) -> dict[str, str]:
    """Returns the saved fields of a form; empty without a draft."""
    row = tables.draft
    query = select(row.c.content).where(row.c.owner == owner, row.c.form == form)
    content = (await connection.execute(query)).scalar_one_or_none()
    return {} if content is None else {str(name): str(value) for name, value in parse_json(content, "draft").items()}


async def clear(connection: AsyncConnection, owner: str, form: str) -> None:
    """Deletes the draft of a form, once the form was sent."""
    row = tables.draft
    await connection.execute(delete(row).where(row.c.owner == owner, row.c.form == form))


async def listed(connection: AsyncConnection, owner: str, prefix: str) -> list[tuple[str, float, dict[str, str]]]:
    """Returns the forms of an owner whose names begin with a prefix, with their times and fields, the latest first."""
    row = tables.draft
    query = select(row).where(row.c.owner == owner, row.c.form.startswith(prefix, autoescape=True))
    rows = await connection.execute(query.order_by(row.c.at.desc()))
    return [(item.form, item.at, dict(parse_json(item.content, "draft"))) for item in rows]
