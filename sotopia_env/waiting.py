"""Waiting for coroutines: one from synchronous code, or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


def wait(coroutine: Coroutine[Any, Any, _T], loop: asyncio.AbstractEventLoop | None = None) -> _T:
    """Returns a coroutine's result to synchronous code, or raises what it raised.

    Inside a running loop (a notebook), which it blocks, the waiting is done in a thread, for loops do not nest.

    Args:
        coroutine: to be run.
        loop: that runs it, open and not running; a new one by default.
    """
    run: Callable[[Coroutine[Any, Any, _T]], _T] = asyncio.run if loop is None else loop.run_until_complete
    if not is_inside_a_loop():
        return run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run, coroutine).result()


def is_inside_a_loop() -> bool:
    """Whether the caller is run by an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def all_at_once(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Returns all results, computed at the same time; the first exception cancels the rest.

    It is raised after the rest has ended, so that nothing is recorded after the ledger is closed.
    """
    running = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
