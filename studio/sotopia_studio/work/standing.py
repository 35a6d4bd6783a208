"""Whether the others in a conversation can answer: the worker, its model, and the people whose pages are open."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_studio.store import jobs, tables
from sotopia_studio.store.jobs import Delay

SLOW = 8.0
"""Seconds after which a turn takes longer than usual."""
ABSENT = 6.0
"""Seconds without a sign of an open page after which a person counts as absent; a page gives one every two seconds."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of those who have not answered yet.

    Attributes:
        delay: why no worker plays the policies, if none does.
        since: the time of the latest event, in seconds since the epoch.
        slow: whether that was more than :data:`SLOW` seconds ago.
        absent: the agents of people whose page is closed or has no connection.
    """

    delay: Delay
    since: float
    slow: bool
    absent: frozenset[str]


async def standing_of(connection: AsyncConnection, episode: str, kind: str) -> Standing:
    """Returns how an episode stands whose policies are played by jobs of ``kind``."""
    seat, person, event, now = tables.seat.c, tables.participant.c, tables.event.c, time.time()
    people = select(seat.agent, person.seen).join(tables.participant, seat.participant == person.id)
    rows = await connection.execute(people.where(seat.episode == episode))
    # Who has never come is expected and not absent.
    absent = frozenset(row.agent for row in rows if row.seen is not None and row.seen < now - ABSENT)
    latest = await connection.execute(select(func.max(event.at)).where(event.episode == episode))
    since = float(latest.scalar_one_or_none() or now)
    return Standing(await jobs.delay_of(connection, kind, episode), since, since < now - SLOW, absent)


async def is_shared(connection: AsyncConnection, episode: str) -> bool:
    """Whether several people have a seat in an episode, so that one may wait for another."""
    seat = tables.seat.c
    query = select(func.count()).where(seat.episode == episode, seat.participant != "")
    return (await connection.execute(query)).scalar_one() > 1


async def beat(connection: AsyncConnection, person: str) -> None:
    """Records that a person's page is open; does nothing for people without a row, who are researchers."""
    row = tables.participant
    await connection.execute(update(row).where(row.c.id == person).values(seen=time.time()))
