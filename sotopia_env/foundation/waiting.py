"""Functions that run coroutines: one from synchronous code, or many concurrently."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


def wait(coroutine: Coroutine[Any, Any, _T], loop: asyncio.AbstractEventLoop | None = None) -> _T:
    """Runs a coroutine from synchronous code; returns its result or raises its exception.

    Within a running event loop, such as that of a notebook, the call blocks that loop.

    Args:
        coroutine: the coroutine to run.
        loop: the event loop that runs it, open and not running; a new one by default.
    """
    run: Callable[[Coroutine[Any, Any, _T]], _T] = asyncio.run if loop is None else loop.run_until_complete
    if not is_inside_a_loop():
        return run(coroutine)
    # Event loops cannot be nested, so the coroutine runs in another thread.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run, coroutine).result()


class Waiter:
    """Waits for coroutines from synchronous code, in one event loop that lives as long as this object."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Returns the coroutine's result, or raises its exception."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # Closing runs no code in the loop, so the garbage collector may do it at any time.
            weakref.finalize(self, self._loop.close)
        return wait(coroutine, self._loop)

    def close(self) -> None:
        """Closes the loop; a later :meth:`wait` opens another."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __reduce__(self) -> tuple[type[Waiter], tuple[()]]:
        # Loops cannot be copied; a copy opens its own.
        return Waiter, ()


def is_inside_a_loop() -> bool:
    """Whether the caller runs within an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def all_at_once(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Returns the results of all coroutines, run concurrently; the first exception cancels the others.

    The exception is raised after all others have ended, so that nothing is recorded after the ledger is closed.
    """
    running = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
