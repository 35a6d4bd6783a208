"""Plans × policies -> episodes: many at once, each on its own, on disk as they finish, resumable.

A fixed number of workers takes plans from one iterator, so memory grows with the concurrency, not with the length of
the run. How one episode is played is :mod:`sotopia_env.episode_player`; what a run leaves on disk is
:mod:`sotopia_env.run_directory`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sotopia_env.episode import Episode, Evaluator, to_line
from sotopia_env.episode_player import evaluate_episode, play_episode
from sotopia_env.errors import InvalidValueError
from sotopia_env.plan import EpisodePlan, all_matchups, plan_episodes
from sotopia_env.run_directory import (
    EPISODES,
    FailureRecord,
    Named,
    RunConfig,
    RunDirectory,
    is_unscored,
    read_run,
)

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


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


async def _all_or_first_error(workers: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all; the first error (a full disk, Ctrl-C) cancels the rest and leaves as itself."""
    tasks = [asyncio.create_task(worker) for worker in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
        timeout: seconds for playing one episode, and again for evaluating it; ``None`` waits for ever.
        progress: whether to show a progress bar on stderr; by default if that is a terminal.

    Raises:
        InvalidValueError: a wrong argument, two equal plans, or a ``run_dir`` that is in use or holds another run.
        DamagedRecordError: ``run_dir`` holds a line that cannot be read.
    """
    planned = _check(plans, concurrency, timeout)
    with _directory(planned, evaluator, run_dir) as directory:
        todo = [plan for plan in planned if directory is None or plan.key not in directory.done]
        bar = _ProgressBar(len(planned), len(planned) - len(todo), progress, "episodes")
        with bar as advance, _settled_heap():
            run = _Run(evaluator, timeout, directory, advance, {}, [])
            shared = iter(todo)
            await _all_or_first_error([run.work(shared) for _ in range(min(concurrency, len(todo)))])
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
    return _run_to_end(
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


def _run_to_end(name: str, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    raise InvalidValueError(f"{name}() was called where an event loop is running; await {name}_async() there")


def _check(plans: Iterable[EpisodePlan], concurrency: int, timeout: float | None) -> list[EpisodePlan]:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidValueError(f"concurrency: expected a whole number of at least 1, got {concurrency!r}")
    if timeout is not None and not timeout > 0:
        raise InvalidValueError(f"timeout: expected seconds above 0 or None, got {timeout!r}")
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
    named = None if evaluator is None else Named(name=evaluator.name, parameters=dict(evaluator.parameters))
    return RunDirectory(run_dir, RunConfig.of(plans, named))


class _ProgressBar(AbstractContextManager["Callable[[], object]"]):
    """A progress bar where somebody can see it, nothing otherwise."""

    def __init__(self, total: int, initial: int, wanted: bool | None, unit: str) -> None:
        self._bar: Any = None
        if sys.stderr.isatty() if wanted is None else wanted:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=initial, unit=f" {unit}", file=sys.stderr, dynamic_ncols=True)

    def __enter__(self) -> Callable[[], object]:
        return self._bar.update if self._bar is not None else lambda: None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


async def evaluate_run_async(
    run_dir: str | Path,
    evaluator: Evaluator,
    *,
    concurrency: int = 128,
    timeout: float | None = None,
    progress: bool | None = None,
) -> int:
    """Adds an evaluation to every episode of a run, beside those it has; one by the same name is replaced.

    Turns, keys and the order of the episodes stay as they are. The file is exchanged at once when all are evaluated:
    whoever interrupts this finds the run as it was.

    Returns:
        How many episodes are unscored by this evaluator.

    Raises:
        InvalidValueError: no run is there, or another process is writing to it.
    """
    _check((), concurrency, timeout)
    with RunDirectory(run_dir) as directory:
        temporary = directory.path / f".{EPISODES}.tmp"
        try:
            with _ProgressBar(len(directory.done), 0, progress, "evaluations") as advance:
                work = (functools.partial(evaluate_episode, e, evaluator, timeout) for e in read_run(directory.path))
                unscored = await _write_all(_in_order(work, concurrency), temporary, advance)
            directory.replace_episodes(temporary, unscored)
        finally:
            temporary.unlink(missing_ok=True)
    return unscored


async def _write_all(episodes: AsyncIterator[Episode], file: Path, advance: Callable[[], object]) -> int:
    unscored = 0
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        async for episode in episodes:
            unscored += is_unscored(episode)
            stream.write(to_line(episode))
            advance()
    return unscored


async def _in_order(work: Iterable[Callable[[], Coroutine[Any, Any, _T]]], concurrency: int) -> AsyncIterator[_T]:
    """Yields the results in the order of ``work``, with at most ``concurrency`` of them under way or waiting."""
    pending: deque[asyncio.Task[_T]] = deque()
    try:
        for start in work:
            pending.append(asyncio.create_task(start()))
            if len(pending) >= concurrency:
                yield await pending.popleft()
        while pending:
            yield await pending.popleft()
    finally:
        for task in pending:
            task.cancel()


def evaluate_run(
    run_dir: str | Path,
    evaluator: Evaluator,
    *,
    concurrency: int = 128,
    timeout: float | None = None,
    progress: bool | None = None,
) -> int:
    """As :func:`evaluate_run_async`, for callers without an event loop."""
    return _run_to_end(
        "evaluate_run",
        lambda: evaluate_run_async(run_dir, evaluator, concurrency=concurrency, timeout=timeout, progress=progress),
    )


__all__ = [
    "EpisodePlan",
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
