"""The hub: notices changes of the database once for all watchers of a web process.

Whatever process appends an event, the hub sees that the database has changed, and reads the new events of an episode
once for all its watchers. Events are numbered without gaps, so a watcher that reconnects with the number of its last
event gets every event exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sotopia_studio.live import CLOSED
from sotopia_studio.store import events
from sotopia_studio.store.engine import UNREACHABLE, Database, cancel
from sotopia_studio.store.events import Event

logger = logging.getLogger(__name__)
T = TypeVar("T")
POLL = 0.02
"""Seconds between two looks at the version of the database while there are watchers."""
_RETRY = 0.5
"""Seconds until the next attempt to reach a database that does not answer."""
RENDERINGS = 256
"""Results of :attr:`Hub.once` that are kept."""


@dataclass(slots=True)
class _Channel:
    """The events of a watched episode, and the signal that new events have arrived."""

    log: list[Event] = field(default_factory=list)
    closed: bool = False
    watchers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Once:
    """Results that are computed once for all who ask for the same; the ones that were not asked for longest go."""

    def __init__(self, most: int) -> None:
        """Keeps at most so many results."""
        self._most = most
        self._results: OrderedDict[Hashable, asyncio.Future[Any]] = OrderedDict()

    async def __call__(self, key: Hashable, compute: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of ``compute``, which is called for the first who asks for ``key``, or after an error."""
        task = self._results.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._results[key] = asyncio.ensure_future(compute())
        self._results.move_to_end(key)
        if len(self._results) > self._most:
            self._results.popitem(last=False)
        # Shielded: somebody who leaves does not cancel what the others wait for.
        result: T = await asyncio.shield(task)
        return result


class Hub:
    """Distributes the events of episodes to their watchers.

    Attributes:
        once: what watchers see, rendered once for all of them.
    """

    def __init__(self, database: Database) -> None:
        """Creates a hub without watchers."""
        self._database = database
        self._channels: dict[str, _Channel] = {}
        self._poll: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.once = Once(RENDERINGS)

    async def follow(self, episode: str, after: int = 0) -> AsyncIterator[Event]:
        """Yields the events of an episode with numbers greater than ``after``, until it ends or the hub closes.

        Raises:
            MissingError: the episode does not exist.
        """
        async with aclosing(self.batches(episode, after)) as stream:
            async for batch in stream:
                for event in batch:
                    yield event

    async def batches(
        self, episode: str, after: int = 0, pause: float | None = None
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Yields as :meth:`follow` the events that have arrived together; none after ``pause`` seconds of silence."""
        async with self._database.read() as connection:
            # With a number that no event has yet, the loop below would have nothing to send and nothing to wait for.
            after = max(0, min(after, (await events.row_of(connection, episode)).events))
        channel = self._channels.setdefault(episode, _Channel())
        channel.watchers += 1
        try:
            if channel.watchers == 1:  # for all further ones, the channel is up to date
                await self._refresh([episode])
            if self._poll is None:
                self._poll = asyncio.create_task(self._poll_forever())
            while not self._closing.is_set():
                # Taken before the log is read: an event that arrives meanwhile sets this signal, and the wait returns
                # at once.
                changed = channel.changed
                # Events are numbered from 1 without gaps, so `after` is also an index of the log.
                if batch := channel.log[after:]:
                    yield batch
                    after = batch[-1].number
                if len(channel.log) <= after:
                    if channel.closed:
                        return
                    try:
                        await asyncio.wait_for(changed.wait(), pause)
                    except TimeoutError:
                        yield ()
        finally:
            channel.watchers -= 1
            if not channel.watchers:
                self._channels.pop(episode, None)

    @property
    def closing(self) -> bool:
        """Whether streams must end because the server is shutting down."""
        return self._closing.is_set()

    @property
    def watchers(self) -> int:
        """Number of open streams."""
        return sum(channel.watchers for channel in self._channels.values())

    async def notify(self, episode: str) -> None:
        """Reads the events of an episode at once, after this process has changed it."""
        if episode in self._channels:
            await self._refresh([episode])

    async def changes(self, key: str, render: Callable[[], Awaitable[str]], period: float) -> AsyncGenerator[str]:
        """Yields the result of ``render`` now and whenever it is another one, until the hub closes.

        For what has no events of its own, such as a study, which changes with its people and with all its
        conversations. One look in ``period`` seconds serves all who watch the same ``key``.
        """
        latest = ""
        while not self._closing.is_set():
            now = time.time()
            try:
                text = await self.once((key, int(now / period)), render)
            except UNREACHABLE as error:  # those who watch wait until the database answers again
                logger.warning("the database does not answer: %s", error)
            else:
                if text != latest:
                    yield text
                latest = text
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), period - now % period)

    async def close(self) -> None:
        """Ends all streams."""
        self._closing.set()
        for channel in self._channels.values():
            channel.changed.set()
        if self._poll is not None:
            await cancel(self._poll)

    async def _poll_forever(self) -> None:
        while True:
            try:
                async with self._database.watched() as version:
                    await self._poll_while_reachable(version)
            except UNREACHABLE as error:  # those who watch wait until the database answers again
                logger.warning("the database does not answer: %s", error)
            await asyncio.sleep(_RETRY)

    async def _poll_while_reachable(self, version: Callable[[], Awaitable[object]]) -> None:
        before: object = None
        while True:
            # Taken before the events are read: what is committed meanwhile makes a version of its own.
            if self._channels and (now := await version()) != before:
                await self._refresh(list(self._channels))
                before = now
            await asyncio.sleep(POLL)

    async def _refresh(self, episodes: list[str]) -> None:
        async with self._database.read() as connection:
            counts = await events.counts(connection, episodes)
            for episode, (count, status) in counts.items():
                channel = self._channels.get(episode)
                if channel is None or (count <= len(channel.log) and channel.closed == (status in CLOSED)):
                    continue
                new = await events.read(connection, episode, len(channel.log))
                # Two refreshes may overlap: what the other one has added is not added again.
                channel.log += [event for event in new if event.number > len(channel.log)]
                channel.closed = status in CLOSED
                channel.changed.set()
                # A new signal for the next change; the watchers of the old one have been woken.
                channel.changed = asyncio.Event()
