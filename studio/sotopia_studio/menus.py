"""The menus of the list of episodes: the values of its columns, counted at every click only while that is quick.

Counting reads every episode. In a large database, pages show the last count, and a new one is made beside them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from sotopia_studio.store import episode_lists
from sotopia_studio.store.engine import UNREACHABLE, Database, cancel

logger = logging.getLogger(__name__)
COLUMNS = ("status", "scenario", "task", "policy", "character", "tag", "run", "stop", "dimension", "evaluator")
"""The columns for which the list has a menu."""
_SCORES = ("dimension", "evaluator")
"""Columns of the scores, of which there are so many that their menus have no numbers."""
_QUICK = 0.05
"""Seconds that a page may wait for a count."""
_PATIENCE = 0.1
"""Seconds that a page waits for the first count; then it has fields to type into in place of menus."""
_REST = 10.0
"""How many times as long as a count nobody counts after it, so that counting takes a tenth of a processor at most."""
Menus = Mapping[str, Mapping[str, int]]


class EpisodeMenus:
    """The values of each column with their numbers of episodes, for all pages of a web process."""

    def __init__(self, database: Database) -> None:
        """Creates menus that are not counted yet."""
        self._database = database
        self._menus: Menus | None = None
        self._cost = self._counted = 0.0
        self._task: asyncio.Task[Menus] | None = None

    async def get(self) -> Menus:
        """Returns the menus: as they are now if they can be counted quickly, or else as they were a moment ago.

        Empty menus have not been counted yet; a number of 0 is unknown.
        """
        if self._menus is None or self._cost <= _QUICK:
            # A browser that leaves, or has waited enough, does not cancel what others wait for.
            done, _ = await asyncio.wait([self.begin()], timeout=_PATIENCE if self._menus is None else None)
            return done.pop().result() if done else {name: {} for name in COLUMNS}
        if time.monotonic() - self._counted > _REST * self._cost:
            self.begin()
        return self._menus

    def begin(self) -> asyncio.Task[Menus]:
        """Begins a count, unless one is being made."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._count())
            self._task.add_done_callback(_report)
        return self._task

    async def _count(self) -> Menus:
        start = time.monotonic()
        async with self._database.read() as connection:
            menus = {name: await episode_lists.values(connection, name) for name in COLUMNS if name not in _SCORES}
            menus |= {name: dict.fromkeys(await episode_lists.distinct(connection, name), 0) for name in _SCORES}
        self._menus, self._counted = menus, time.monotonic()
        self._cost = self._counted - start
        return menus

    async def close(self) -> None:
        """Ends a count that is being made."""
        if self._task is not None:
            await cancel(self._task)


def _report(task: asyncio.Task[Menus]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, UNREACHABLE):  # pages show the last count until the database answers again
        logger.warning("the menus could not be counted: %s", error)
