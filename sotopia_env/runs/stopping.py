"""The early end of a run, by a signal or a spent budget, with everything that was paid for counted.

A stop is requested by a signal (Ctrl-C, SIGTERM) or by the budget. From then on no turn is begun. Calls under way are
answered and counted, episodes whose last turn was taken are evaluated and recorded, all others are left where they are;
a resumed run goes on with them from there. What is not done after the grace period is cancelled.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from sotopia_env.errors import InvalidValueError

GRACE = 20.0
"""Seconds to wait for what is under way: batch systems commonly kill 30 seconds after SIGTERM."""


class EpisodeDropped(Exception):  # noqa: N818 - not an error: the episode goes on when the run is resumed
    """Ends the play of an episode whose run is being stopped."""


class Terminated(KeyboardInterrupt):
    """What SIGTERM raises where Ctrl-C raises :class:`KeyboardInterrupt`; batch systems send it before they kill."""


class Stop:
    """Whether a run shall end, and why.

    Attributes:
        reason: why; empty as long as it goes on. The first reason stays.
        signal: number of the signal that asked for it, if one did.
        grace: seconds to wait for what is under way.
    """

    def __init__(self, grace: float = GRACE) -> None:
        self.reason = ""
        self.signal: int | None = None
        self.grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def ask(self, reason: str) -> None:
        """Asks for the end; also from a signal handler or another thread."""
        self.reason = self.reason or reason
        if self._loop is not None and self._event is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def check(self) -> None:
        """Raises :class:`EpisodeDropped` once the end was asked for."""
        if self.reason:
            raise EpisodeDropped(self.reason)

    @property
    def interruption(self) -> KeyboardInterrupt:
        """What the signal raises in the end."""
        return Terminated(self.reason) if self.signal == signal.SIGTERM else KeyboardInterrupt(self.reason)

    async def wait(self) -> None:
        """Returns once the end was asked for."""
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        if not self.reason:
            await self._event.wait()


@contextmanager
def woken_by_signals() -> Iterator[None]:
    """Makes signals wake the running event loop; in the main thread, where nobody else sees to it.

    A signal that comes in the moment before the loop begins to wait for its events is otherwise handled only when
    the wait is over, which may be the whole grace period.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        if before == -1:
            loop.add_reader(reader, reader.recv, 4096)
        else:
            signal.set_wakeup_fd(before)
        yield
    finally:
        if before == -1:
            loop.remove_reader(reader)
            signal.set_wakeup_fd(-1)
        reader.close()
        writer.close()


@contextmanager
def stop_on_signals(stop: Stop, say: Callable[[str], object]) -> Iterator[None]:
    """Makes the first Ctrl-C or SIGTERM ask for the end, and the next one raise :class:`KeyboardInterrupt` at once.

    For the main thread only. A third one does what it did before.

    Args:
        stop: gets the request.
        say: writes what happens, in one sentence.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, _: FrameType | None) -> None:
        at_once = bool(stop.reason)
        stop.signal = stop.signal or number
        stop.ask(f"stopped by {signal.Signals(number).name}")
        if at_once:
            restore()
            _raise_safely(stop.interruption)
            return
        if stop.grace:
            say(f"stopping: no more than {stop.grace:g} s for answers under way; the same signal again stops at once")

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def _raise_safely(interruption: KeyboardInterrupt) -> None:
    """Raises it here, or, while an event loop runs in this thread, from a callback of its own.

    Raised in the midst of the loop's work, it may take a callback with it that is about to run. The task that waits
    for that callback never ends then, cancelled or not, and the process with it.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise interruption from None

    def leave() -> None:
        raise interruption

    loop.call_soon_threadsafe(leave)


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
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work(*args, **kwargs))
        raise InvalidValueError(f"{name}() was called where an event loop is running; await {work.__name__}() there")

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"As :func:`{work.__name__}`, for callers without an event loop."
    return run
