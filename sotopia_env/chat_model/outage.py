"""Outages: while a model is unresponsive, all its calls wait, and one call at a time probes whether it responds again.

A call closes the model's gate in two cases: its retries are used up and the model has not answered any request sent
since its previous failure (an answer would show that the failure concerns this call only), or the server asks for a
longer wait than a retry may have. While the gate is closed, all calls of the model wait. They probe in turn, so that no
single bad request can keep the gate closed, and the first answer opens it. When the patience is used up, the run ends
and can be continued later.
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
from sotopia_env.foundation.errors import ModelFailure

logger = logging.getLogger(__name__)
SILENCE: frozenset[ModelFailure] = frozenset({"rate_limit", "server", "timeout", "connection"})
"""The kinds of failure that may mean that a model is temporarily unresponsive."""


def is_silence(failure: FailedAttempt) -> bool:
    """Whether a failure may mean that the model is temporarily unresponsive."""
    return failure.kind in SILENCE and failure.retryable


def is_queued(failure: FailedAttempt) -> bool:
    """Whether a failure means that the provider has more requests than it takes, and that this one has to wait."""
    return failure.kind == "rate_limit" and failure.retryable


@dataclass(slots=True)
class Outage:
    """A period in which a model does not answer.

    Attributes:
        since: the time when the gate was closed, by the gate's clock.
        due: the time when the next probe may be sent, by the gate's clock.
        probes: the number of probes that failed.
    """

    since: float
    due: float
    probes: int = 0


class Gate:
    """Delays the calls of one model during an outage.

    Attributes:
        outage: the current outage; ``None`` while the gate is open.
        clock: returns the time in seconds.
    """

    def __init__(
        self, name: str, policy: RetryPolicy, rng: random.Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates an open gate.

        Args:
            name: the name of the model, for the log.
            policy: the policy for the wait between probes, and for the patience.
            rng: the source of random jitter.
            clock: returns the time in seconds.
        """
        self.outage: Outage | None = None
        self.clock = clock
        self._name, self._policy, self._rng = name, policy, rng
        self._answered = float("-inf")  # the time of sending of the latest request that was answered
        self._answer_time = float("-inf")  # the time of the latest answer, no matter when its request was sent
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_outage(self, failure: FailedAttempt, exhausted: bool, since: float) -> bool:
        """Whether a failure affects the model as a whole and not only this call.

        Args:
            failure: the failure of an attempt.
            exhausted: whether the call's retries are used up.
            since: the time of the call's previous failure, infinite for its first one. If a request sent after that
                time was answered, the failure concerns this call only. After a rejection for its rate, an answer to an
                earlier request counts, too.
        """
        if not is_silence(failure):
            return False
        # A long wait is requested of all clients, so it closes the gate at once and does not use up retries.
        is_long = self._policy.is_long(failure.wait)
        return is_long or self.outage is not None or (exhausted and not self.has_answered(failure, since))

    def has_answered(self, failure: FailedAttempt, since: float) -> bool:
        """Whether an answer after a time shows that a later failure concerns its own call only."""
        # A provider that rejects one request while it answers an earlier one is busy and not unresponsive. A server
        # that is failing, however, may complete earlier requests.
        return (self._answer_time if is_queued(failure) else self._answered) >= since

    def note_answer(self, sent: float) -> None:
        """Opens the gate if a request sent after the gate was closed is answered, even by a refusal.

        Answers to earlier requests do not count: a server may complete those without accepting new ones.
        """
        self._answered, self._answer_time = max(self._answered, sent), self.clock()
        if self.outage is not None and sent >= self.outage.since:
            logger.warning("%s answers again after %.0f s", self._name, self.clock() - self.outage.since)
            self.open()

    def open(self) -> None:
        """Opens the gate, so that all waiting calls proceed."""
        self.outage = None
        if self._loop is asyncio.get_running_loop():
            self._opened.set()

    def close(self, failure: FailedAttempt, is_probe: bool) -> bool:
        """Closes the gate, or keeps it closed after a probe; returns ``False`` when the patience is used up.

        Args:
            failure: the failure of the attempt.
            is_probe: whether the attempt was a probe; other attempts do not prolong an outage.
        """
        now, is_new = self.clock(), self.outage is None
        outage = self.outage = self.outage or Outage(now, now)
        # Only a probe may prolong the outage. Hundreds of requests sent before the gate closed may still fail, and
        # each would otherwise count as a probe and double the delay until the next one.
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
        """Waits while the gate is closed; the value is whether the request to be sent is a probe."""
        if self.outage is not None:
            self._bind()
            # asyncio locks are fair: a call whose probe failed goes to the end of the queue.
            async with self._turn:
                if await self._is_probe():
                    yield True
                    return
        yield False

    async def _is_probe(self) -> bool:
        """Waits until a probe is due, and returns whether the gate is still closed at that time."""
        if self.outage is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.outage.due - self.clock()):
                    await self._opened.wait()
        return self.outage is not None

    def _bind(self) -> None:
        """Creates the lock and the event for the running event loop."""
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._turn, self._opened = asyncio.Lock(), asyncio.Event()
        if self.outage is not None:
            self._opened.clear()
