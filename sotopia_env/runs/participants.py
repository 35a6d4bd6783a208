"""Runs that many people fill: each person's session plays one episode after another, and sessions may overlap.

The episode that is being played lies in a directory of its own under ``RUN/playing``, which its process holds; the run
itself is held only while a session looks at it and while an ended episode is moved into it. What a killed session has
left is played on by the person's next session, or moved into the run by anybody's.
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

from sotopia_env.chat_model import Ledger
from sotopia_env.errors import InUseError, Where
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import RunResult, open_run, run_episodes_async
from sotopia_env.storage.directory import RunDirectory, read_run
from sotopia_env.storage.manifest import RUN
from sotopia_env.world.episode import Evaluator

logger = logging.getLogger(__name__)
PLAYING = "playing"
_PATIENCE, _POLL = 30.0, 0.1  # seconds; a session holds the run for less than one


@dataclass(frozen=True, slots=True)
class Session:
    """The episodes of one person in a run.

    Attributes:
        plans: all of them, in the order of play; every participant of the run has the same tasks.
        evaluator: of the run.
        run_dir: the run's directory.
    """

    plans: Sequence[EpisodePlan]
    evaluator: Evaluator | None
    run_dir: Path

    def todo(self) -> list[EpisodePlan]:
        """Moves ended episodes into the run, and returns those of the person that are still to be played.

        Raises:
            InUseError: another process holds the run for long.
            InvalidValueError: the directory holds another run.
            DamagedRecordError: a record in it cannot be read.
        """
        with self._held() as run:
            moved = _collect(run)
            todo = [plan for plan in self.plans if plan.key not in run.done]
            if moved:
                run.finish(complete=not todo)
        return todo

    async def play(self, plan: EpisodePlan, ledger: Ledger | None = None) -> RunResult:
        """Plays an episode, or plays on where it was left; :meth:`todo` then moves it into the run.

        Raises:
            InUseError: the person is playing it in another process.
        """
        place = self.run_dir / PLAYING / plan.key
        return await run_episodes_async(
            [plan], evaluator=self.evaluator, run_dir=place, concurrency=1, progress=False, ledger=ledger
        )

    @contextmanager
    def _held(self) -> Iterator[RunDirectory]:
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
    """Moves ended episodes that nobody is playing any more into the run; returns their number."""
    root, moved = run.path / PLAYING, 0
    for place in sorted(root.iterdir()) if root.is_dir() else ():
        if not (place / RUN).exists():  # killed before it had written anything, or about to begin
            continue
        try:
            with RunDirectory(place):
                episodes = list(read_run(place))
        except InUseError:
            continue
        for episode in episodes:
            run.check(episode, Where(place))
            if episode.key not in run.done:
                run.append(episode)
                moved += 1
        if episodes:
            shutil.rmtree(place)
    return moved
