"""Early stopping of long work after a signal or a spent budget, without losing results that were paid for.

A stop is requested by a signal (Ctrl-C, SIGTERM), by a spent budget or by a model that refuses every request. After the
request no further item starts. Calls in progress are completed and counted, and the results that they complete are
recorded; all other work is left for the next time, when the same command continues it. Work that is not done after the
grace period is cancelled.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sotopia_env.foundation.errors import BudgetExceededError, ModelRefusedError

GRACE = 20.0
"""Seconds to wait for calls in progress: batch systems commonly kill a process 30 seconds after SIGTERM."""


class Dropped(Exception):  # noqa: N818 - not an error: the same command continues this item
    """Ends an item of work that is left for the next time, because all work is being stopped."""


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM, which batch systems send before they kill a process; Ctrl-C raises the base class."""


class Stop:
    """A request to stop long work, with its reason.

    Attributes:
        reason: the reason of the first request; empty before it.
        signal: the number of the signal that requested the stop, if any.
        failure: the failure of a model or its budget that requested the stop, if any.
        grace: seconds to wait for calls in progress.
    """

    def __init__(self, grace: float = GRACE) -> None:
        self.reason = ""
        self.signal: int | None = None
        self.failure: BudgetExceededError | ModelRefusedError | None = None
        self.grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def ask(self, reason: str) -> None:
        """Requests the stop; may be called from a signal handler or another thread."""
        self.reason = self.reason or reason
        if self._loop is not None and self._event is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def fail(self, failure: BudgetExceededError | ModelRefusedError) -> None:
        """Requests the stop because all other items would fail in the same way."""
        self.failure = self.failure or failure
        self.ask(str(failure))

    def check(self) -> None:
        """Raises :class:`Dropped` after a request to stop."""
        if self.reason:
            raise Dropped(self.reason)

    @property
    def interruption(self) -> KeyboardInterrupt:
        """The exception to raise for the signal after the work has stopped."""
        return Terminated(self.reason) if self.signal == signal.SIGTERM else KeyboardInterrupt(self.reason)

    async def wait(self) -> None:
        """Waits for a request to stop."""
        # Created here, since an event belongs to the running loop, and a Stop may be made outside of one.
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        if not self.reason:
            await self._event.wait()


@contextmanager
def woken_by_signals() -> Iterator[None]:
    """Makes signals wake the running event loop of the main thread, unless another wakeup descriptor is set.

    A signal that arrives just before the loop starts to wait for events is otherwise handled only when that wait ends,
    which may take the whole grace period.
    """
    # Python runs signal handlers in the main thread only, and only there may the descriptor be set.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        # An existing descriptor belongs to another library, such as a running ``asyncio.Runner``: it is restored.
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
    """Makes the first Ctrl-C or SIGTERM request the stop, and the second raise :class:`KeyboardInterrupt` at once.

    For the main thread only. From the third signal on, the previous handlers apply again.

    Args:
        stop: receives the request.
        say: shows a message of one sentence to the user.
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
            say(f"stopping: at most {stop.grace:g} s for calls in progress; the same signal again stops at once")

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def _raise_safely(interruption: KeyboardInterrupt) -> None:
    """Raises the exception at once or, while an event loop runs in this thread, from a separate callback.

    Raised in the middle of the loop's own code, the exception could discard a callback that is about to run. The task
    that waits for this callback would then never end, even if cancelled, and neither would the process.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise interruption from None

    def leave() -> None:
        raise interruption

    loop.call_soon_threadsafe(leave)
