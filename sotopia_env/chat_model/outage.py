"""Outages: while a model does not answer, its calls wait together, and one at a time finds out whether it does again.

A call closes the gate of its model when its retries are used up and no request that was sent meanwhile was answered,
which would make the failure its own; and when the server asks to wait for longer than a retry may. While the gate is
closed, all calls of the model wait; they probe in turn, so that no single request can keep it closed, and the first
answer opens it. When the patience is over, the run ends, to be continued later.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.transports.attempt import FailedAttempt
from sotopia_env.errors import ModelFailure

logger = logging.getLogger(__name__)
_KINDS: frozenset[ModelFailure] = frozenset({"rate_limit", "server", "timeout", "connection"})


def is_silence(failure: FailedAttempt) -> bool:
    """Whether a failure may mean that the model answers nobody for the time being."""
    return failure.kind in _KINDS and failure.retryable


@dataclass(slots=True)
class Outage:
    """A time in which a model does not answer.

    Attributes:
        since: when the gate was closed, by its clock.
        due: when the next probe may be sent, likewise.
        probes: how many were sent in vain.
    """

    since: float
    due: float
    probes: int = 0


class Gate:
    """Holds back the calls of one model during an outage.

    Attributes:
        outage: the present one; ``None`` while the gate is open.
        clock: in seconds.
    """

    def __init__(
        self, name: str, policy: RetryPolicy, rng: random.Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins open.

        Args:
            name: of the model, for the log.
            policy: its waits between probes, and its patience.
            rng: source of the jitter.
            clock: in seconds.
        """
        self.outage: Outage | None = None
        self.clock = clock
        self._name, self._policy, self._rng = name, policy, rng
        self._answered = float("-inf")  # when the latest of the answered requests was sent
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_outage(self, failure: FailedAttempt, exhausted: bool, since: float) -> bool:
        """Whether a failure is no matter of the one call.

        Args:
            failure: of an attempt.
            exhausted: whether the call's retries are used up.
            since: time of the call's failure before, infinite for its first; an answer to a request that was sent later
                makes this failure the call's own.
        """
        if not is_silence(failure):
            return False
        is_long = self._policy.is_long(failure.wait)
        return is_long or self.outage is not None or (exhausted and self._answered < since)

    def note_answer(self, sent: float) -> None:
        """Opens the gate if a request that was sent since it was closed is answered, if only by a refusal.

        Requests that were under way may be answered by a server that takes no more.
        """
        self._answered = max(self._answered, sent)
        if self.outage is not None and sent >= self.outage.since:
            logger.warning("%s answers again after %.0f s", self._name, self.clock() - self.outage.since)
            self.open()

    def open(self) -> None:
        """Lets all calls pass."""
        self.outage = None
        if self._loop is asyncio.get_running_loop():
            self._opened.set()

    def close(self, failure: FailedAttempt, is_probe: bool) -> bool:
        """Closes the gate, or keeps it closed after a probe; returns whether there is patience left.

        Args:
            failure: of the attempt.
            is_probe: whether the attempt was a probe; others that were under way change nothing.
        """
        now, is_new = self.clock(), self.outage is None
        outage = self.outage = self.outage or Outage(now, now)
        if not (is_probe or is_new):
            return True
        patience = self._policy.patience
        left = outage.since + patience - now
        if left <= 0 or (failure.wait or 0.0) > left:
            return False
        if is_new:
            logger.warning("%s does not answer (%s); waiting for it up to %g s", self._name, failure, patience)
        outage.due = now + min(left, self._policy.delay(outage.probes, failure.wait, self._rng))
        outage.probes += 1
        return True

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[bool]:
        """Waits while the gate is closed; the value says whether the request to be sent is a probe."""
        if self.outage is not None:
            self._bind()
            async with self._turn:  # first come, first served; who probed in vain queues up again
                if await self._is_probe():
                    yield True
                    return
        yield False

    async def _is_probe(self) -> bool:
        """Waits until a probe is due, and returns whether the gate is still closed then."""
        if self.outage is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.outage.due - self.clock()):
                    await self._opened.wait()
        return self.outage is not None

    def _bind(self) -> None:
        """Makes lock and event for the running loop."""
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._turn, self._opened = asyncio.Lock(), asyncio.Event()
        if self.outage is not None:
            self._opened.clear()
