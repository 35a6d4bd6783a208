"""A pool of workers: many pieces of work, several at a time, with one rule for its early end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Dropped, Stop, woken_by_signals
from sotopia_env.errors import FATAL, InvalidValueError, check_whole
from sotopia_env.waiting import is_inside_a_loop, wait

_P = ParamSpec("_P")
_T = TypeVar("_T")


def check_limits(concurrency: int, timeout: float | None) -> None:
    """Raises :class:`InvalidValueError` unless these are a number of workers and a time limit."""
    check_whole("concurrency", concurrency, 1)
    if timeout is not None and not timeout > 0:
        raise InvalidValueError(field="timeout", expected="seconds above 0 or None", got=timeout)


async def work_through(
    items: Iterable[_T], work: Callable[[_T], Awaitable[bool]], stop: Stop, progress: Progress, concurrency: int
) -> None:
    """Does ``work`` on every item, several at a time, until all are done or ``stop`` is requested.

    Workers share one iterator, so memory grows with the concurrency, not with the number of items. A spent budget and
    a model that refuses every request request the stop; the error is then ``stop.failure``, and raising it is left to
    the caller, who may have results to write first. After the request no item is begun; those in progress have the
    grace period to end, and are then cancelled. Any other exception cancels everything at once and is raised.

    Args:
        items: taken one by one, when a worker is free.
        work: returns whether it succeeded. It raises :class:`Dropped` if the item is left for the next time, and any
            of :data:`~sotopia_env.errors.FATAL` where every other item would fail likewise.
        stop: ends the work early.
        progress: counts the items, and is shown until the work ends.
        concurrency: number of workers.
    """
    queue = iter(items)

    async def worker() -> None:
        for item in queue:
            if stop.reason:
                return
            success: bool | None = None  # neither done nor failed: left for the next time
            progress.begin()
            try:
                success = await work(item)
            except FATAL as error:
                stop.fail(error)
            except Dropped:
                pass
            progress.end(done=success is True, failed=success is False)
            await asyncio.sleep(0)  # work that never waits would keep the others, and signals, from their turn

    async with progress.refreshed():
        await _all_or_first_error([worker() for _ in range(concurrency)], stop)


async def _all_or_first_error(workers: Sequence[Coroutine[Any, Any, None]], stop: Stop) -> None:
    """Waits for all; the first error (a full disk, Ctrl-C) cancels the rest and leaves as itself."""
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
        for task in tasks:
            task.cancel()
        await asyncio.gather(everything, *tasks, return_exceptions=True)


def blocking(work: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """Returns ``work`` for callers without an event loop, under its name without ``_async``.

    What is returned raises :class:`InvalidValueError` where a loop is running, and says what to await there.
    """
    name = work.__name__.removesuffix("_async")

    @wraps(work)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if is_inside_a_loop():  # a run that was waited for in a thread could not be interrupted by Ctrl-C
            hint = f"await {work.__name__}() there"
            raise InvalidValueError(f"{name}() was called where an event loop is running", hint=hint)
        return wait(work(*args, **kwargs))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"As :func:`{work.__name__}`, for callers without an event loop."
    return run
