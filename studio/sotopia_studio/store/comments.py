"""Comments of researchers on episodes."""

from __future__ import annotations

import time

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.records import Record
from sotopia_studio.store import events, tables

LONGEST = 10_000
"""The maximum length of a comment, in characters."""


class Comment(Record):
    """A comment; ``created`` is in seconds since the epoch."""

    id: str
    author: str
    text: str
    created: float


async def add(connection: AsyncConnection, episode: str, author: str, text: str) -> str:
    """Adds a comment and returns its id.

    Raises:
        MissingError: the episode does not exist.
        InvalidValueError: the comment is empty or too long.
    """
    await events.row_of(connection, episode)
    if not 0 < len(text.strip()) <= LONGEST:
        raise InvalidValueError(field="text", expected=f"1 to {LONGEST:,} characters", got=len(text.strip()))
    row = {"id": tables.new_id(), "episode": episode, "author": author, "text": text.strip(), "created": time.time()}
    await connection.execute(insert(tables.comment).values(**row))
    return row["id"]  # type: ignore[return-value]


async def of(connection: AsyncConnection, episode: str) -> list[Comment]:
    """Returns the comments on an episode, the oldest first."""
    row = tables.comment.c
    query = select(row.id, row.author, row.text, row.created).where(row.episode == episode).order_by(row.id)
    return [Comment(**item) for item in (await connection.execute(query)).mappings()]
