"""A pool of workers that process many items concurrently, with common rules for errors and early stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Dropped, Stop, woken_by_signals
from sotopia_env.foundation.errors import FATAL, InvalidValueError, check_whole

_T = TypeVar("_T")


def check_limits(concurrency: int, timeout: float | None) -> None:
    """Raises :class:`InvalidValueError` unless the number of workers and the time limit are valid."""
    check_whole("concurrency", concurrency, 1)
    if timeout is not None and not timeout > 0:
        raise InvalidValueError(field="timeout", expected="seconds above 0 or None", got=timeout)


async def work_through(
    items: Iterable[_T], work: Callable[[_T], Awaitable[bool]], stop: Stop, progress: Progress, concurrency: int
) -> None:
    """Calls ``work`` for every item, several at a time, until all are done or ``stop`` is requested.

    Workers share one iterator, so memory grows with the concurrency, not with the number of items. A spent budget, or a
    model that refuses every request, requests the stop. The error is then in ``stop.failure``; it is not raised, since
    the caller may have results to write first. After the request no item starts; those in progress have the grace
    period to end, and are then cancelled. Any other exception cancels all work at once and is raised.

    Args:
        items: the items, taken one by one whenever a worker is free.
        work: returns whether the item succeeded. It raises :class:`Dropped` to leave the item for the next time, and
            one of :data:`~sotopia_env.foundation.errors.FATAL` if every other item would fail in the same way.
        stop: ends the work early.
        progress: counts the items, and is shown until the work ends.
        concurrency: the number of workers.
    """
    queue = iter(items)

    async def worker() -> None:
        for item in queue:
            if stop.reason:
                return
            success: bool | None = None  # None: neither done nor failed, but left for the next time
            progress.begin()
            try:
                success = await work(item)
            except FATAL as error:
                stop.fail(error)
            except Dropped:
                pass
            progress.end(done=success is True, failed=success is False)
            # Work that never awaits would otherwise block the other workers and the handling of signals.
            await asyncio.sleep(0)

    async with progress.refreshed():
        await _all_or_first_error([worker() for _ in range(concurrency)], stop)


async def _all_or_first_error(workers: Sequence[Coroutine[Any, Any, None]], stop: Stop) -> None:
    """Waits for all workers; the first error (a full disk, Ctrl-C) cancels the others and is raised unchanged."""
    tasks = [asyncio.create_task(worker) for worker in workers]
    everything = asyncio.gather(*tasks)
    request = asyncio.create_task(stop.wait())
    try:
        with woken_by_signals():
            await asyncio.wait((everything, request), return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                await asyncio.wait((everything,), timeout=stop.grace)
            if everything.done():
                await everything
    finally:
        request.cancel()
        # Cancelling ``everything`` is not enough: after an error, ``gather`` is done while other tasks still run.
        for task in tasks:
            task.cancel()
        await asyncio.gather(everything, *tasks, return_exceptions=True)
