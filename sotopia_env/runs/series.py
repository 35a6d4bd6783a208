"""Series: episodes of the same people, in which the notes of every seat go from one episode to the next.

Under rules with ``carry``, episodes with the same characters, each played by the same policy, are a series, in the
order of the plan; repeats of a task are one, too. After an episode each seat writes notes from its own last observation
(:class:`~sotopia_env.world.play.notes.TakesNotes`). They are recorded with the episode, and are part of the next one's
task, where the same person reads them, whichever seat it has. So every record is self-contained, and a series continues
where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.notes import following
from sotopia_env.world.play.policy import policy_identity


class BrokenSeriesError(SotopiaError):
    """An episode cannot be played, because the one before it in its series failed."""


class Series:
    """The series of a run: which episode follows which, and the notes that are there already."""

    def __init__(self, plans: Sequence[EpisodePlan], recorded: Iterable[Episode] = ()) -> None:
        """Finds the series of the plans.

        Args:
            plans: all episodes of the run, in order.
            recorded: episodes of an earlier call; read only if there are series.
        """
        self._before: dict[str, str] = {}
        self._place: dict[str, int] = {}
        latest: dict[frozenset[tuple[str, str]], str] = {}
        for plan in plans:
            if plan.rules.carry:
                people = _people(plan)
                if people in latest:
                    self._before[plan.key] = latest[people]
                self._place[plan.key] = self._place.get(latest.get(people, ""), -1) + 1
                latest[people] = plan.key
        self._followed = frozenset(self._before.values())
        self._ends: dict[str, asyncio.Future[Episode | None]] = {}
        for episode in recorded if self._before else ():
            self.end(episode.key, episode)

    def ordered(self, plans: Iterable[EpisodePlan]) -> list[EpisodePlan]:
        """Returns the plans with the first episodes of all series first, so that no worker waits in vain."""
        return sorted(plans, key=lambda plan: self._place.get(plan.key, 0))

    async def with_notes(self, plan: EpisodePlan) -> EpisodePlan:
        """Returns the plan with the notes of the episode before it in its series, for which it waits.

        Raises:
            BrokenSeriesError: the episode before it was not finished.
        """
        key = self._before.get(plan.key)
        if key is None:
            return plan
        before = await self._end(key)
        del self._ends[key]  # one episode follows it: nothing else needs the record
        if before is None:
            raise BrokenSeriesError(f"the episode before it in its series was not finished: {key}")
        return replace(plan, task=following(plan.task, before))

    def end(self, key: str, episode: Episode | None) -> None:
        """Notes the end of an episode: its record, or ``None`` if it was not finished."""
        # Records of other episodes are not held: a run may have more than fit into memory.
        if key in self._followed and not (end := self._end(key)).done():
            end.set_result(episode)

    def _end(self, key: str) -> asyncio.Future[Episode | None]:
        return self._ends.setdefault(key, asyncio.get_running_loop().create_future())


def _people(plan: EpisodePlan) -> frozenset[tuple[str, str]]:
    identities = map(policy_identity, plan.policies)
    return frozenset(zip((one.model_dump_json() for one in plan.task.characters), identities, strict=True))
