"""The early end of long work, by a signal or a spent budget, with everything that was paid for counted.

A stop is requested by a signal (Ctrl-C, SIGTERM), by a spent budget or by a model that refuses every request. From then
on nothing is begun. Calls in progress are answered and counted, and what they complete is recorded; everything else is
left as it is, and the same command continues it. What is not done after the grace period is cancelled.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sotopia_env.errors import BudgetExceededError, ModelRefusedError

GRACE = 20.0
"""Seconds to wait for what is under way: batch systems commonly kill 30 seconds after SIGTERM."""


class Dropped(Exception):  # noqa: N818 - not an error: the same command continues what was left
    """Ends a piece of work that is left for the next time, because the whole is being stopped."""


class Terminated(KeyboardInterrupt):
    """What SIGTERM raises where Ctrl-C raises :class:`KeyboardInterrupt`; batch systems send it before they kill."""


class Stop:
    """Whether long work shall end, and why.

    Attributes:
        reason: why; empty as long as it goes on. The first reason stays.
        signal: number of the signal that asked for it, if one did.
        failure: of a model or its budget that asked for it, if one did.
        grace: seconds to wait for what is under way.
    """

    def __init__(self, grace: float = GRACE) -> None:
        self.reason = ""
        self.signal: int | None = None
        self.failure: BudgetExceededError | ModelRefusedError | None = None
        self.grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def ask(self, reason: str) -> None:
        """Asks for the end; also from a signal handler or another thread."""
        self.reason = self.reason or reason
        if self._loop is not None and self._event is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def fail(self, failure: BudgetExceededError | ModelRefusedError) -> None:
        """Asks for the end, because everything else would fail likewise."""
        self.failure = self.failure or failure
        self.ask(str(failure))

    def check(self) -> None:
        """Raises :class:`Dropped` once the end was asked for."""
        if self.reason:
            raise Dropped(self.reason)

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
