"""Plans × policies -> episodes: many at once, each on its own, on disk as they finish, resumable.

A fixed number of workers takes plans from one iterator, so memory grows with the concurrency, not with the length of
the run. How one episode is played is :mod:`sotopia_env.episode_player`; what a run leaves on disk is
:mod:`sotopia_env.run_directory`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from sotopia_env.episode import Episode, Evaluator
from sotopia_env.episode_player import evaluate_episode, play_episode
from sotopia_env.errors import InvalidValueError
from sotopia_env.plan import EpisodePlan, all_matchups, plan_episodes
from sotopia_env.run_directory import FailureRecord, RunConfig, RunDirectory, is_unscored, named, read_run
from sotopia_env.run_evaluation import EvaluationResult, evaluate_run, evaluate_run_async
from sotopia_env.workers import ProgressBar, all_or_first_error, check_limits, run_to_end

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_dir: where it lies; ``None`` when it was kept in memory only.
        planned: episodes the run consists of.
        played: episodes finished in this call.
        resumed: episodes that were already there.
        unscored: recorded episodes whose evaluation failed.
        failures: episodes that could not be finished, in the order of failing.
        repaired: sentences about lines that had been cut short and were removed.
    """

    run_dir: Path | None
    planned: int
    played: int
    resumed: int
    unscored: int
    failures: tuple[FailureRecord, ...] = field(repr=False)
    repaired: tuple[str, ...]
    # Not in the repr: asyncio writes out the result of its main task when it restores the Ctrl-C handler.
    _kept: tuple[Episode, ...] = field(default=(), repr=False)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """All recorded episodes: in plan order from memory, in the order of finishing from a run directory."""
        return self._kept if self.run_dir is None else tuple(read_run(self.run_dir))


@dataclass(slots=True)
class _Run:
    """The shared state of the workers of one run."""

    evaluator: Evaluator | None
    timeout: float | None
    directory: RunDirectory | None
    advance: Callable[[], object]
    kept: dict[str, Episode]
    failed: list[FailureRecord]
    played: int = 0
    unscored: int = 0

    async def work(self, plans: Iterator[EpisodePlan]) -> None:
        """Takes plans from the shared iterator until it is empty."""
        for plan in plans:
            outcome = await play_episode(plan, timeout=self.timeout)
            if isinstance(outcome, Episode) and self.evaluator is not None:
                outcome = await evaluate_episode(outcome, self.evaluator, self.timeout)
            self._record(outcome)
            self.advance()
            await asyncio.sleep(0)  # policies that never wait would otherwise keep the others from their turn

    def _record(self, outcome: Episode | FailureRecord) -> None:
        if isinstance(outcome, FailureRecord):
            logger.warning("episode %s failed: %s: %s", outcome.key, outcome.kind, outcome.message)
            self.failed.append(outcome)
            if self.directory is not None:
                self.directory.append_failure(outcome)
            return
        self.played += 1
        self.unscored += is_unscored(outcome)
        if self.directory is not None:
            self.directory.append(outcome)
        else:
            self.kept[outcome.key] = outcome


@contextmanager
def _settled_heap() -> Iterator[None]:
    """Keeps tasks and plans out of the run's garbage collections, each of which would hold up every episode in flight.

    Whoever has frozen the heap already is left alone, since only everything can be unfrozen.
    """
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()


async def run_episodes_async(
    plans: Iterable[EpisodePlan],
    *,
    evaluator: Evaluator | None = None,
    run_dir: str | Path | None = None,
    concurrency: int = 128,
    timeout: float | None = None,
    progress: bool | None = None,
) -> RunResult:
    """Plays, evaluates and records episodes.

    Args:
        plans: what to play (:func:`sotopia_env.plan.plan_episodes`).
        evaluator: scores each episode when it ends; ``None`` leaves that to :func:`evaluate_run`.
        run_dir: where to write; a directory with the same run in it is continued, and episodes that failed before
            are tried again. ``None`` keeps the episodes in memory.
        concurrency: episodes in flight at once, at least 1.
        timeout: seconds for playing one episode, and again for evaluating it; ``None`` waits for ever. It takes effect
            where a policy or an evaluator awaits something: one that computes without ever awaiting holds up every
            episode and cannot be stopped.
        progress: whether to show a progress bar on stderr; by default if that is a terminal.

    Raises:
        InvalidValueError: a wrong argument, two equal plans, or a ``run_dir`` that is in use or holds another run.
        DamagedRecordError: ``run_dir`` holds a line that cannot be read.
    """
    planned = _check(plans, concurrency, timeout)
    with _directory(planned, evaluator, run_dir) as directory:
        todo = [plan for plan in planned if directory is None or plan.key not in directory.done]
        bar = ProgressBar(len(planned), len(planned) - len(todo), progress, "episodes")
        with bar as advance, _settled_heap():
            run = _Run(evaluator, timeout, directory, advance, {}, [])
            shared = iter(todo)
            await all_or_first_error([run.work(shared) for _ in range(min(concurrency, len(todo)))])
        if directory is not None:
            directory.finish()
    return RunResult(
        run_dir=directory.path if directory else None,
        planned=len(planned),
        played=run.played,
        resumed=len(planned) - len(todo),
        unscored=directory.unscored if directory else run.unscored,
        failures=tuple(run.failed),
        repaired=directory.repaired if directory else (),
        _kept=tuple(run.kept[plan.key] for plan in planned if plan.key in run.kept),
    )


def run_episodes(
    plans: Iterable[EpisodePlan],
    *,
    evaluator: Evaluator | None = None,
    run_dir: str | Path | None = None,
    concurrency: int = 128,
    timeout: float | None = None,
    progress: bool | None = None,
) -> RunResult:
    """As :func:`run_episodes_async`, for callers without an event loop."""
    return run_to_end(
        "run_episodes",
        lambda: run_episodes_async(
            plans,
            evaluator=evaluator,
            run_dir=run_dir,
            concurrency=concurrency,
            timeout=timeout,
            progress=progress,
        ),
    )


def _check(plans: Iterable[EpisodePlan], concurrency: int, timeout: float | None) -> list[EpisodePlan]:
    check_limits(concurrency, timeout)
    planned = list(plans)
    seen: set[str] = set()
    for plan in planned:
        if plan.key in seen:
            raise InvalidValueError(f"plans: expected every episode once, got {plan.key!r} twice; use `repeat`")
        seen.add(plan.key)
    return planned


def _directory(
    plans: list[EpisodePlan], evaluator: Evaluator | None, run_dir: str | Path | None
) -> AbstractContextManager[RunDirectory | None]:
    if run_dir is None:
        return nullcontext()
    return RunDirectory(run_dir, RunConfig.of(plans, None if evaluator is None else named(evaluator)))


__all__ = [
    "EpisodePlan",
    "EvaluationResult",
    "FailureRecord",
    "RunResult",
    "all_matchups",
    "evaluate_episode",
    "evaluate_run",
    "evaluate_run_async",
    "plan_episodes",
    "play_episode",
    "read_run",
    "run_episodes",
    "run_episodes_async",
]
