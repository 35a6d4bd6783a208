"""The number of requests that one route may have in flight, adapted to the rate limits of its provider.

A provider that rejects a request with status 429 has more requests than it takes, and no failure. The window then
shrinks and the rejected request waits for its next turn, ahead of requests that were never sent. The rule is that of
TCP (RFC 5681): a rejection halves the window, an answer widens it slightly. After rejections without an answer between
them, each answer doubles the window until it reaches half of the width at which answers last came.

A provider that answers quickly and takes three requests per second rejects even one request at a time, and one that
answers slowly rejects requests that start together. In a window that was shrunk, requests therefore start ``l / w``
seconds apart, at width ``w`` and a mean latency of ``l`` seconds: the rate is ``w / l`` at every width, also below one
(Little's law).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable

_GROWTH = 0.05  # the largest relative growth for one answer; from half of a rate to the full one in 14 answers
_SMOOTHING = 0.1  # weight of the newest latency in the mean


class Window:
    """Admits requests in order, at most :attr:`width` at a time.

    Attributes:
        width: the number of requests that may be in flight; below 1, one request at a time with pauses.
        in_flight: the number of admitted requests that have not left.
    """

    def __init__(
        self,
        most: int,
        *,
        base: float = 0.5,
        cap: float = 30.0,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Creates a window of full width.

        Args:
            most: the maximum width.
            base: the maximum pause after the first rejection, in seconds; it doubles with each rejection without an
                answer between them.
            cap: the maximum pause, in seconds, unless the provider asks for a longer one.
            rng: the source of random jitter, which keeps several processes apart.
            clock: returns the time in seconds.
            sleep: waits for a number of seconds.
        """
        self.width = float(most)
        self.in_flight = 0
        self._most, self._base, self._cap = float(most), base, cap
        self._rng, self._clock, self._sleep = rng or random.Random(), clock, sleep
        self._queue: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threshold = 0.0  # below this width, an answer doubles the window
        self._rejected_at = float("-inf")  # the time of the rejection that shrank the window last
        self._rejections = 0  # that shrank the window since the latest answer
        self._resume = float("-inf")  # no request starts before this time
        self._next = float("-inf")  # nor before this one, which keeps requests apart
        self._latency = 0.0

    async def enter(self, is_repeated: bool = False) -> float:
        """Waits until a request may be sent, and returns the time; :meth:`leave` must follow.

        Args:
            is_repeated: whether this request was rejected before; it then waits at the head of the queue, so that
                the time from its first rejection to its answer does not depend on the length of the queue.
        """
        if self._loop is not asyncio.get_running_loop():
            # A future belongs to one event loop, but a model may be used in several loops one after another.
            self._loop, self._queue, self.in_flight = asyncio.get_running_loop(), deque(), 0
        if self._queue or not self._has_room():
            await self._queued(is_repeated)
        else:
            self.in_flight += 1
        if self.width < self._most or self._resume > self._clock():
            try:
                await self._pause()
            except BaseException:
                self.leave()
                raise
        return self._clock()

    async def _pause(self) -> None:
        """Waits for the end of a pause, and for the distance from the previous request."""
        while True:
            # The distance is reserved after a pause, so that the requests that waited for its end do not start at once.
            while (wait := self._resume - self._clock()) > 0:
                await self._sleep(wait)
            start = max(self._clock(), self._next)
            if self.width < self._most:
                self._next = start + min(self._cap, self._latency / self.width)
            if (wait := start - self._clock()) <= 0:
                return
            await self._sleep(wait)
            if self._resume <= self._clock():
                return

    def leave(self) -> None:
        """Ends a request, and admits the next ones."""
        self.in_flight -= 1
        self._admit()

    def note_answer(self, sent: float) -> None:
        """Widens the window after an answer to a request that was sent at ``sent``."""
        latency = self._clock() - sent
        self._latency += (_SMOOTHING if self._latency else 1.0) * (latency - self._latency)
        self._rejections = 0
        if self.width >= self._most:
            return
        if self.width < self._threshold:
            width = min(2 * self.width, self._threshold)
        else:
            width = self.width + min(_GROWTH * self.width, 1 / self.width)
        self.width = min(width, self._most)
        self._admit()

    def note_rejection(self, sent: float, wait: float | None) -> None:
        """Shrinks the window, and pauses the route.

        Args:
            sent: the time when the rejected request was sent.
            wait: the seconds that the provider asks to wait; ``None`` if it does not say.
        """
        now = self._clock()
        if sent > self._rejected_at:
            # Requests sent before this time tell nothing about the new width, so one burst halves it once.
            self._rejected_at = now
            # The window may be wider than what is used of it.
            half = min(self.width, float(self.in_flight)) / 2
            if not self._rejections or not self._threshold:
                self._threshold = half
            self.width = max(half, self._latency / self._cap)
            pause = self._rng.uniform(0.5, 1.0) * min(self._cap, self._base * 2.0 ** min(self._rejections, 60))
            self._rejections += 1
            self._resume = max(self._resume, now + (pause if wait is None else wait + self._rng.uniform(0, self._base)))
        elif wait is not None:
            self._resume = max(self._resume, now + wait)

    def _has_room(self) -> bool:
        return self.in_flight < max(1.0, self.width)

    async def _queued(self, is_repeated: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        if is_repeated:
            self._queue.appendleft(turn)
        else:
            self._queue.append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def _admit(self) -> None:
        while self._queue and self._has_room():
            turn = self._queue.popleft()
            if not turn.done():  # a cancelled request
                self.in_flight += 1
                turn.set_result(None)
