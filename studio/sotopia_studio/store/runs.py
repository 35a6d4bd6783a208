"""Batch runs in the database: their settings, progress and cost.

The run directory is authoritative for a batch run. Its row is a copy for pages and the API, which can be rebuilt.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.records import Record
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import jobs, tables
from sotopia_studio.store import tags as tag_store

PLAY = "run"
"""The job that plays a batch run."""
PAGE = 50
ENDED = ("done", "failed", "stopped")
"""The states of a run that has ended; only resuming it changes them."""


class RunRow(Record):
    """A run in a list.

    Attributes:
        id: sorts by time of creation.
        name: its name on pages; by default made from the id.
        kind: ``batch``.
        status: ``queued``, ``running``, ``done``, ``failed`` or ``stopped``.
        directory: its run directory.
        planned: the total number of its episodes.
        played: the number of recorded episodes.
        failed: the number of episodes that could not be played.
        unscored: the number of played episodes that could not be evaluated.
        tokens: read and written by models; ``None``: unknown.
        cost: in US dollars; ``None``: unknown.
        error: the reason why it failed or was stopped.
        owner: id of the user who started it.
        tags: in alphabetical order.
        created: seconds since the epoch.
        started: the time at which a worker last started it.
        finished: the time at which it ended.
    """

    id: str
    name: str
    kind: str
    status: str
    directory: str
    planned: int
    played: int
    failed: int
    unscored: int
    tokens: int | None
    cost: float | None
    error: str
    owner: str
    tags: tuple[str, ...] = ()
    created: float
    started: float | None
    finished: float | None


_COLUMNS = [tables.run.c[name] for name in RunRow.model_fields if name != "tags"]


async def add(
    connection: AsyncConnection,
    spec: str,
    *,
    identity: str = "",
    name: str = "",
    directory: str = "",
    planned: int = 0,
    owner: str = "",
    status: str = "queued",
) -> str:
    """Adds a batch run and returns its id; nothing plays it before :func:`ask_to_play`.

    Args:
        connection: a writing transaction.
        spec: the settings of the run, as JSON text; empty if it was imported without them.
        identity: its id, if the caller has chosen one.
        name: its name on pages; by default made from the id.
        directory: its run directory.
        planned: the number of its episodes.
        owner: id of the user who started it.
        status: its status; set it for a run that was played elsewhere.
    """
    identity = identity or tables.new_id()
    values = {
        "name": name or f"run {identity[-6:]}",
        "kind": "batch",
        "spec": spec,
        "status": status,
        "directory": directory,
    }
    row = {"id": identity, "planned": planned, "owner": owner, "created": time.time(), **values}
    await connection.execute(insert(tables.run).values(**row))
    return identity


async def one(connection: AsyncConnection, run: str) -> RunRow:
    """Returns the row of a run.

    Raises:
        MissingError: the run does not exist.
    """
    row = (await connection.execute(select(*_COLUMNS).where(tables.run.c.id == run))).mappings().one_or_none()
    if row is None:
        raise MissingError(f"run {run}: not found")
    return RunRow(**row, tags=(await tag_store.of(connection, "run", [run]))[run])


async def spec_of(connection: AsyncConnection, run: str) -> str:
    """Returns the settings of a run, as JSON text.

    Raises:
        MissingError: the run does not exist or was imported without its settings.
    """
    spec = (await connection.execute(select(tables.run.c.spec).where(tables.run.c.id == run))).scalar_one_or_none()
    if not spec:
        raise MissingError(f"run {run}: not found, or imported without its settings")
    return str(spec)


async def page(
    connection: AsyncConnection, *, status: str = "", owner: str = "", tag: str = "", after: str = "", limit: int = PAGE
) -> list[RunRow]:
    """Returns a page of runs, the newest first.

    Args:
        connection: a transaction.
        status: the status of the runs; ``""`` for all.
        owner: id of the user who started them.
        tag: a tag of the runs.
        after: id of the last run of the previous page.
        limit: the maximum number of runs to return.
    """
    query = _filtered(select(*_COLUMNS), status, owner, tag).order_by(tables.run.c.id.desc()).limit(limit)
    # Ids sort by time of creation, so paging by id stays stable while new runs are added.
    query = query.where(tables.run.c.id < after) if after else query
    rows = (await connection.execute(query)).mappings().all()
    tags = await tag_store.of(connection, "run", [item["id"] for item in rows])
    return [RunRow(**item, tags=tags[item["id"]]) for item in rows]


async def count(connection: AsyncConnection, *, status: str = "", owner: str = "", tag: str = "") -> int:
    """Returns the total number of runs of a list; the arguments are those of :func:`page`."""
    query = _filtered(select(func.count()).select_from(tables.run), status, owner, tag)
    return int((await connection.execute(query)).scalar_one())


def _filtered(query: Select[Any], status: str, owner: str, tag: str) -> Select[Any]:
    row = tables.run.c
    query = query.where(row.status == status) if status else query
    query = query.where(row.owner == owner) if owner else query
    tagged = select(tables.tag.c.item).where(tables.tag.c.kind == "run", tables.tag.c.tag == tag)
    return query.where(row.id.in_(tagged)) if tag else query


async def by_directory(connection: AsyncConnection, directory: str) -> str | None:
    """Returns the id of the run in a run directory, if the database has it."""
    run: str | None = (
        await connection.execute(select(tables.run.c.id).where(tables.run.c.directory == directory))
    ).scalar_one_or_none()
    return run


async def change(connection: AsyncConnection, run: str, **columns: Any) -> None:
    """Changes columns of a run."""
    await connection.execute(update(tables.run).where(tables.run.c.id == run).values(**columns))


async def ask_to_play(connection: AsyncConnection, run: str) -> None:
    """Requests that a run is played or continued.

    Raises:
        MissingError: the run does not exist or was imported without its settings.
        ConflictError: it is being played.
    """
    row = await one(connection, run)
    if row.status == "running":
        raise ConflictError(f"run {run} is being played")
    # Raises for an imported run without settings before anything is changed.
    await spec_of(connection, run)
    await change(connection, run, status="queued", error="", finished=None)
    await jobs.request(connection, PLAY, run)


async def ask_to_stop(connection: AsyncConnection, run: str) -> None:
    """Requests the stop of a run; its episodes are kept, and it can be resumed.

    Raises:
        MissingError: the run does not exist.
        ConflictError: it has ended.
    """
    row = await one(connection, run)
    if row.status in ENDED:
        raise ConflictError(f"run {run} has ended ({row.status})")
    await jobs.ask_to_stop(connection, PLAY, run)
    # No worker has begun it: none would ever write that it was stopped.
    if row.status == "queued":
        await change(connection, run, status="stopped", error="stopped before it started", finished=time.time())
