"""The events of live episodes: append-only, numbered without gaps within an episode.

While an episode is played, its events are the authoritative state. The episode's row counts them, and a writer appends
by raising that count from the number it has read (optimistic locking): of two concurrent writers one is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import tables


@dataclass(frozen=True, slots=True)
class Event:
    """One event of an episode.

    Attributes:
        number: from 1, without gaps.
        kind: ``began``, ``waiting``, ``answer`` (part of a simultaneous round), ``turn``, ``ended``, ``evaluated``,
            ``failed`` or ``stopped``.
        payload: JSON text.
        at: seconds since the epoch.
    """

    number: int
    kind: str
    payload: str
    at: float


async def append(
    connection: AsyncConnection,
    episode: str,
    after: int,
    events: Sequence[tuple[str, str]],
    columns: Mapping[str, Any] | None = None,
) -> int:
    """Appends events, with a change of the episode's row in the same transaction.

    Args:
        connection: a writing transaction.
        episode: the episode's id.
        after: the number of the last event that the caller has read.
        events: kinds and payloads.
        columns: columns of the episode's row to change, with their new values.

    Returns:
        The number of the last event.

    Raises:
        ConflictError: another writer has appended events since.
    """
    number = after + len(events)
    row = tables.episode
    change = update(row).where(row.c.id == episode, row.c.events == after).values(events=number, **(columns or {}))
    # The condition on `events` makes this a compare-and-swap: it changes no row when another transaction was faster.
    if (await connection.execute(change)).rowcount != 1:
        raise ConflictError(f"episode {episode}: it has changed since event {after}")
    now = time.time()
    rows = [
        {"episode": episode, "number": after + index, "kind": kind, "payload": payload, "at": now}
        for index, (kind, payload) in enumerate(events, start=1)
    ]
    if rows:
        await connection.execute(insert(tables.event), rows)
    return number


async def read(connection: AsyncConnection, episode: str, after: int = 0) -> list[Event]:
    """Returns the events of an episode with numbers greater than ``after``, in order."""
    row = tables.event
    query = select(row.c.number, row.c.kind, row.c.payload, row.c.at)
    result = await connection.execute(
        query.where(row.c.episode == episode, row.c.number > after).order_by(row.c.number)
    )
    return [Event(*item) for item in result]


async def counts(connection: AsyncConnection, episodes: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Returns how many events each of these episodes has, and its status."""
    columns = tables.episode.c
    query = select(columns.id, columns.events, columns.status).where(columns.id.in_(list(episodes)))
    return {row.id: (row.events, row.status) for row in await connection.execute(query)}


async def row_of(connection: AsyncConnection, episode: str, *, lock: bool = False) -> Any:
    """Returns the row of an episode; with ``lock``, other transactions that want to lock it wait for this one.

    Raises:
        MissingError: the episode does not exist.
    """
    query = select(tables.episode).where(tables.episode.c.id == episode)
    # SQLAlchemy omits FOR UPDATE on SQLite; there, BEGIN IMMEDIATE has locked the whole database already.
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is None:
        raise MissingError(f"episode {episode}: not found")
    return row
