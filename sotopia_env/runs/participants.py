"""Runs with many human participants: each person plays one episode after another, and sessions may overlap in time.

The episode in progress is in a subdirectory of ``RUN/playing``, which its process locks; the run itself is locked only
while a session reads it and while a finished episode is moved into it. After a session was killed, the person's next
session continues its episode; an episode that had already ended is moved into the run by any session.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.foundation.errors import InUseError, Where
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import RunResult, open_run, run_episodes
from sotopia_env.storage.directory import RunDirectory, read_run
from sotopia_env.storage.manifest import RUN
from sotopia_env.world.episode import Evaluator

logger = logging.getLogger(__name__)
PLAYING = "playing"
_PATIENCE, _POLL = 30.0, 0.1  # seconds; a session locks the run for less than one second


@dataclass(frozen=True, slots=True)
class Session:
    """The episodes of one person in a run.

    Attributes:
        plans: all episodes of the person, in the order of play; every participant of the run has the same tasks.
        evaluator: the evaluator of the run, if any.
        run_dir: the run's directory.
    """

    plans: Sequence[EpisodePlan]
    evaluator: Evaluator | None
    run_dir: Path

    def todo(self) -> list[EpisodePlan]:
        """Moves finished episodes into the run, and returns the person's episodes that are still to be played.

        Raises:
            InUseError: another process locks the run for more than 30 seconds.
            InvalidValueError: the directory holds another run.
            DamagedRecordError: a record in it cannot be read.
        """
        with self._locked() as run:
            moved = _collect(run)
            todo = [plan for plan in self.plans if plan.key not in run.done]
            if moved:
                run.finish(complete=not todo)
        return todo

    async def play(self, plan: EpisodePlan, ledger: Ledger | None = None) -> RunResult:
        """Plays an episode, or continues it after an interruption; :meth:`todo` then moves it into the run.

        Raises:
            InUseError: the person is playing it in another process.
        """
        path = self.run_dir / PLAYING / plan.key
        return await run_episodes(
            [plan], evaluator=self.evaluator, run_dir=path, concurrency=1, progress=False, ledger=ledger
        )

    @contextmanager
    def _locked(self) -> Iterator[RunDirectory]:
        deadline = time.monotonic() + _PATIENCE
        with ExitStack() as stack:
            while True:
                try:
                    run = stack.enter_context(open_run(list(self.plans), self.evaluator, self.run_dir))
                    break
                except InUseError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL)
            yield run


def in_order_of(participant: str, plans: Sequence[EpisodePlan], seed: int) -> list[EpisodePlan]:
    """Returns the plans in an order drawn for the participant, the same one every time."""
    return random.Random(f"{seed} {participant}").sample(plans, len(plans))


def _collect(run: RunDirectory) -> int:
    """Moves finished episodes from directories that are not in use into the run; returns their number."""
    root, moved = run.path / PLAYING, 0
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        # Without a manifest, the session is just starting or was killed before it wrote anything.
        if not (path / RUN).exists():
            continue
        try:
            with RunDirectory(path):
                episodes = list(read_run(path))
        except InUseError:
            continue
        for episode in episodes:
            run.check(episode, Where(path))
            if episode.key not in run.done:
                run.append(episode)
                moved += 1
        # A directory without a finished episode holds turns that the person's next session continues from.
        if episodes:
            shutil.rmtree(path)
    return moved
