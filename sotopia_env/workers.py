"""Work that is done by several at once: to the end, or until it is stopped, and nothing left running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sotopia_env.errors import InvalidValueError
from sotopia_env.stopping import Stop, woken_by_signals

_P = ParamSpec("_P")
_T = TypeVar("_T")


def check_limits(concurrency: int, timeout: float | None) -> None:
    """Raises :class:`InvalidValueError` unless these are a number of workers and a time limit."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidValueError(f"concurrency: expected a whole number of at least 1, got {concurrency!r}")
    if timeout is not None and not timeout > 0:
        raise InvalidValueError(f"timeout: expected seconds above 0 or None, got {timeout!r}")


async def all_or_first_error(workers: Sequence[Coroutine[Any, Any, None]], stop: Stop) -> None:
    """Waits for all; the first error (a full disk, Ctrl-C) cancels the rest and leaves as itself.

    Once ``stop`` is asked for, the workers have its grace period to come to an end; what is left then is cancelled.
    """
    tasks = [asyncio.create_task(worker) for worker in workers]
    everything = asyncio.gather(*tasks)
    asked = asyncio.create_task(stop.wait())
    try:
        with woken_by_signals():
            await asyncio.wait((everything, asked), return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                await asyncio.wait((everything,), timeout=stop.grace)
            if everything.done():
                await everything
    finally:
        asked.cancel()
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
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work(*args, **kwargs))
        raise InvalidValueError(f"{name}() was called where an event loop is running; await {work.__name__}() there")

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"As :func:`{work.__name__}`, for callers without an event loop."
    return run


__all__ = ["all_or_first_error", "blocking", "check_limits"]
