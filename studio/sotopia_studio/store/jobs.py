"""Jobs: units of work for worker processes, each with a lease.

A job is named by its kind and target, so no two workers work on one target. It counts its requests and its completions,
so a request that arrives while it is being done is not lost. The lease of a worker that has died expires, and another
worker takes the job over.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.records import Record
from sotopia_studio.problems import MissingError
from sotopia_studio.store import tables
from sotopia_studio.store.engine import insert_for

LEASE = 20.0
"""The duration of a lease, in seconds; a worker renews it while it works."""
RENEWAL = LEASE / 5
"""Seconds between two renewals: four may fail, for example on a busy database, before the lease expires."""
_SLACK = 3.0
"""Seconds by which a renewal, or the claim of a free worker, may be late without anything being wrong."""
Delay = Literal["", "queued", "interrupted", "retrying"]
"""Why nobody works on a job that is due: none is free, its worker has died, or its model does not respond."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that a worker holds.

    Attributes:
        kind: the name of its handler.
        target: the object it works on, usually an id.
        payload: JSON text.
        requests: the number of requests for it at the time of the claim.
        attempts: the number of claims since it last succeeded, including this one.
    """

    kind: str
    target: str
    payload: str
    requests: int
    attempts: int

    @property
    def id(self) -> str:
        """The id of its row."""
        return f"{self.kind}:{self.target}"


async def request(connection: AsyncConnection, kind: str, target: str, payload: str = "") -> None:
    """Requests a job, in the transaction that makes it necessary."""
    row, now = tables.job, time.time()
    values = {"id": f"{kind}:{target}", "kind": kind, "target": target, "payload": payload}
    new = insert_for(connection, row).values(**values, requests=1, done=0, attempts=0, not_before=now, stop=False)
    # A request during the work raises `requests` above the number that the worker has claimed, so the job is due again
    # when that worker finishes. A lease is not touched.
    change = {
        "requests": row.c.requests + 1,
        "attempts": 0,
        "payload": payload,
        "not_before": now,
        "stop": False,
    }
    await connection.execute(new.on_conflict_do_update(index_elements=["id"], set_=change))


async def claim(connection: AsyncConnection, worker: str, kinds: tuple[str, ...] = ()) -> Job | None:
    """Leases a job that is due for :data:`LEASE` seconds and returns it; ``None`` when no job is due."""
    row, now = tables.job, time.time()
    due = select(row.c.id).where(row.c.requests > row.c.done, row.c.not_before <= now)
    due = due.where((row.c.leased_until.is_(None)) | (row.c.leased_until < now))
    if kinds:
        due = due.where(row.c.kind.in_(kinds))
    # SKIP LOCKED lets several workers claim at once on PostgreSQL without taking the same job; SQLite has one writer.
    due = due.order_by(row.c.not_before, row.c.id).limit(1).with_for_update(skip_locked=True)
    change = update(row).where(row.c.id == due.scalar_subquery())
    change = change.values(worker=worker, leased_until=now + LEASE, attempts=row.c.attempts + 1)
    columns = (row.c.kind, row.c.target, row.c.payload, row.c.requests, row.c.attempts)
    job = (await connection.execute(change.returning(*columns))).one_or_none()
    return None if job is None else Job(*job)


async def renew(connection: AsyncConnection, job: Job, worker: str) -> bool | None:
    """Prolongs a lease; returns whether the job is to stop, ``None`` if another worker has it now."""
    row = tables.job
    change = update(row).where(row.c.id == job.id, row.c.worker == worker).values(leased_until=time.time() + LEASE)
    stop: bool | None = (await connection.execute(change.returning(row.c.stop))).scalar_one_or_none()
    return stop


async def give_back(connection: AsyncConnection, workers: Collection[str]) -> None:
    """Ends the leases of workers that have died; their jobs are due at once."""
    row = tables.job
    change = update(row).where(row.c.worker.in_(workers), row.c.leased_until.is_not(None))
    await connection.execute(change.values(worker="", leased_until=None, not_before=time.time()))


async def delay_of(connection: AsyncConnection, kind: str, target: str) -> Delay:
    """Returns why nobody works on a job; empty if a worker does, or if nothing is to be done."""
    row, now = tables.job.c, time.time()
    job = (await connection.execute(select(tables.job).where(row.id == f"{kind}:{target}"))).one_or_none()
    if job is None or job.requests <= job.done:
        return ""
    if job.leased_until is not None:
        is_late = job.leased_until - LEASE + RENEWAL + _SLACK < now
        # The error of the last attempt stands until an attempt succeeds: a model that is down is tried again and again.
        return "interrupted" if is_late else "retrying" if job.error else ""
    if job.error:
        return "retrying"
    # An attempt that ended without a result and without an error was that of a worker that died.
    return "interrupted" if job.attempts else "queued" if job.not_before + _SLACK < now else ""


async def is_asked_to_stop(connection: AsyncConnection, job: Job) -> bool:
    """Whether a job is to stop."""
    return bool((await connection.execute(select(tables.job.c.stop).where(tables.job.c.id == job.id))).scalar_one())


async def note(connection: AsyncConnection, job: Job, result: str) -> None:
    """Writes what a job has so far as its result, for those who wait for it."""
    await connection.execute(update(tables.job).where(tables.job.c.id == job.id).values(result=result))


async def finish(
    connection: AsyncConnection,
    job: Job,
    worker: str,
    *,
    error: str = "",
    retry_after: float | None = None,
    result: str = "",
) -> None:
    """Returns a job: as done (with its result or its final error), or to be tried again later."""
    row = tables.job
    values: dict[str, object] = {"worker": "", "leased_until": None, "error": error, "result": result}
    # `done` becomes the number that was claimed and not the present one: requests since then are still to be done.
    if retry_after is None:
        values |= {"done": job.requests, "attempts": 0}
    else:
        values |= {"not_before": time.time() + retry_after}
    # A worker that has lost its lease must not finish the job of the worker that has it now.
    await connection.execute(update(row).where(row.c.id == job.id, row.c.worker == worker).values(**values))


async def ask_to_stop(connection: AsyncConnection, kind: str, target: str) -> None:
    """Asks the worker that has leased this job to stop it; a queued job is not started."""
    row = tables.job
    change = update(row).where(row.c.id == f"{kind}:{target}")
    await connection.execute(change.values(stop=True))


class JobState(Record):
    """The state of a job.

    Attributes:
        id: its kind and target.
        kind: the kind of work.
        target: the object it works on, usually an id.
        state: ``queued``, ``running``, ``done`` or ``failed``.
        error: the reason why it failed, or why the last attempt failed if it is queued again.
        result: JSON text with its result; empty for most kinds.
    """

    id: str
    kind: str
    target: str
    state: str
    error: str
    result: str


async def state_of(connection: AsyncConnection, job: str) -> JobState:
    """Returns the state of a job.

    Raises:
        MissingError: the job does not exist.
    """
    row = (await connection.execute(select(tables.job).where(tables.job.c.id == job))).one_or_none()
    if row is None:
        raise MissingError(f"job {job}: not found")
    state = "failed" if row.error else "done"
    if row.requests > row.done:
        state = "running" if row.worker and (row.leased_until or 0.0) > time.time() else "queued"
    return JobState(id=job, kind=row.kind, target=row.target, state=state, error=row.error, result=row.result)
