"""Execution of a run as Ray tasks, one for each part of the run (:mod:`sotopia_env.runs.parts`).

All machines of the cluster must see the run directory under the same path; only the specification of the run and a
short result go through Ray. The parts share the model server: requests in flight, requests and tokens per minute, and
the remaining budget are divided among them. A part whose process dies is restarted in another process and continues
from the records in its directory. Ray is imported on first use.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.spending.ledger import LEDGER, Ledger
from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Stop, stop_on_signals
from sotopia_env.foundation.errors import InvalidValueError, ModelRefusedError, SotopiaError, check_whole
from sotopia_env.foundation.extras import install_command
from sotopia_env.runs.forecast import check_prompts
from sotopia_env.runs.parts import Part, merge_parts
from sotopia_env.runs.rollout import RunResult, open_run, run_episodes
from sotopia_env.runs.spec import RunSpec
from sotopia_env.runs.usability import Usability
from sotopia_env.storage.manifest import EPISODES

_POLL = 0.5  # seconds
_RESTARTS = 3
"""How often a part is restarted after its process died."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """One part of a run as a task; picklable.

    Attributes:
        spec: the whole run.
        run_dir: the directory of the run.
        part: the share to play.
        grace: seconds that turns in progress may take after the run is stopped.
    """

    spec: RunSpec
    run_dir: Path
    part: Part
    grace: float

    @property
    def recorded(self) -> int:
        """The number of episodes in the directory of the part."""
        # Called twice a second for every part: one episode is one line, so lines are counted and not parsed.
        with suppress(FileNotFoundError):
            return (self.part.path(self.run_dir) / EPISODES).read_bytes().count(b"\n")
        return 0


@dataclass(frozen=True, slots=True)
class PartResult:
    """The end of one part; picklable.

    Attributes:
        stopped: why the part ended before it was done; empty if it was done.
        unfinished: the number of episodes that were started but did not end because the part was stopped.
        refusal: the error of a model that refuses every request, if that was the reason.
        usability: the turns whose text was not an action.
    """

    stopped: str = ""
    unfinished: int = 0
    refusal: ModelRefusedError | None = None
    usability: Usability = field(default_factory=Usability)


def play_part(task: PartTask) -> PartResult:
    """Plays one part to its end, in a worker process."""
    stop = Stop(task.grace)
    with stop_on_signals(stop, lambda _: None):
        try:
            result = asyncio.run(_play(task, stop))
        except ModelRefusedError as error:
            return PartResult(str(error), refusal=error)
    return PartResult(result.stopped, result.unfinished, usability=result.usability)


async def _play(task: PartTask, stop: Stop) -> RunResult:
    models = ModelPool(task.part.limits(task.spec.models, task.run_dir))
    try:
        # These limits are a share of the run's limits, which were checked before they were divided.
        run = task.spec.resolve(models, check_limits=False)
        plans = run.plans()
        await models.check()
        models.open(task.part.path(task.run_dir))
        return await run_episodes(
            plans,
            evaluator=run.evaluator,
            run_dir=task.run_dir,
            spec=task.spec,
            part=task.part,
            concurrency=task.spec.concurrency,
            timeout=task.spec.timeout,
            progress=False,
            stop=stop,
            ledger=models.ledger,
        )
    finally:
        await models.close()


def load_ray() -> ModuleType:
    """Imports Ray.

    Raises:
        InvalidValueError: Ray is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError:
        problem = "the Ray executor needs the package ray, which is not installed"
        raise InvalidValueError(problem, hint=install_command("ray")) from None


def run_on_ray(
    spec: RunSpec,
    run_dir: Path,
    *,
    workers: int,
    progress: bool | None = None,
    stop: Stop | None = None,
) -> RunResult:
    """Plays a run as Ray tasks, and merges their records.

    The cluster is the one this process is connected to, else the one at ``RAY_ADDRESS``, else a local one.

    Args:
        spec: the specification of the run.
        run_dir: the directory of the run; if it holds the same run, that run is continued.
        workers: the number of processes and of parts.
        progress: whether to show a progress bar; by default if stderr is a terminal.
        stop: ends the run early.

    Raises:
        InvalidValueError: Ray is not installed, or the specification is invalid.
        BudgetExceededError: the budget is spent, or a prompt has more tokens than a process may use per minute.
        ModelRefusedError: a model refuses every request; the records until then are merged.
        SotopiaError: a process died repeatedly; its records are merged, and the run can be resumed.
    """
    check_whole("workers", workers, 1)
    models = ModelPool(spec.models)
    run = spec.resolve(models)
    plans = run.plans()
    if models.names:
        spec.models.check_divisible(workers, models.longest)
        check_prompts(spec, run_dir, workers)
    cluster, stop = _Cluster(load_ray(), workers), stop or Stop()
    asyncio.run(_check(models))
    results: list[PartResult] = []
    # Opening the run also merges the parts that an interrupted call left behind.
    with open_run(plans, run.evaluator, run_dir, spec) as directory:
        present, resumed = len(directory.done), sum(plan.key in directory.done for plan in plans)
        parts = [Part(number, workers) for number in range(1, workers + 1)]
        tasks = [PartTask(spec, directory.path.absolute(), part, stop.grace) for part in parts]
        # Raises BudgetExceededError here, before any process starts; all parts have equal limits.
        parts[0].limits(spec.models, directory.path)
        try:
            if resumed < len(plans):
                cluster.play(tasks, Progress(len(plans), resumed, progress, "episodes"), stop, results)
        finally:
            merge_parts(directory)
        stopped = stop.reason or next((result.stopped for result in results if result.stopped), "")
        with Ledger(directory.path if (directory.path / LEDGER).exists() else None) as ledger:
            directory.finish(complete=not stopped, answered=ledger.answered())
        failures = tuple(directory.failures.values())
        unscored = 0 if run.evaluator is None else directory.unscored
    refusal = next((result.refusal for result in results if result.refusal), None)
    if refusal is not None:
        raise refusal
    usability = Usability()
    for result in results:
        usability.update(result.usability)
    return RunResult(
        run_dir=directory.path,
        planned=len(plans),
        played=len(directory.done) - present,
        resumed=resumed,
        unscored=unscored,
        failures=failures,
        repaired=directory.repaired,
        stopped=stopped,
        unfinished=sum(result.unfinished for result in results),
        usability=usability,
    )


async def _check(models: ModelPool) -> None:
    try:
        await models.check()
    finally:
        await models.close()


class _Cluster:
    """A Ray cluster that plays parts as tasks."""

    def __init__(self, ray: ModuleType, workers: int) -> None:
        self._ray = ray
        self._workers = workers

    def play(self, tasks: Sequence[PartTask], progress: Progress, stop: Stop, results: list[PartResult]) -> None:
        """Plays all parts, and collects their results."""
        # A connection that the caller opened is used, and is not closed afterwards.
        connects = not self._ray.is_initialized()
        if connects:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": self._workers, "include_dashboard": False}
            self._ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
        try:
            remote = self._ray.remote(num_cpus=1, max_retries=_RESTARTS)(play_part)
            self._wait([remote.remote(task) for task in tasks], tasks, progress, stop, results)
        finally:
            if connects:
                self._ray.shutdown()

    def _wait(
        self, running: list[Any], tasks: Sequence[PartTask], progress: Progress, stop: Stop, results: list[PartResult]
    ) -> None:
        done, deadline = 0, None
        while running:
            ended, running = self._ray.wait(running, num_returns=len(running), timeout=_POLL)
            for reference in ended:
                results.append(self._outcome(reference))
                if results[-1].refusal is not None:
                    stop.ask(results[-1].stopped)
            before, done = done, sum(task.recorded for task in tasks)
            progress.advance(done - before)
            if stop.reason and deadline is None:
                deadline = time.monotonic() + stop.grace + _POLL
                for reference in running:
                    # Without ``force``, Ray raises KeyboardInterrupt in the worker, which then stops as on Ctrl-C.
                    self._ray.cancel(reference, force=False)
            if deadline is not None and time.monotonic() > deadline:
                return

    def _outcome(self, reference: Any) -> PartResult:
        try:
            result: PartResult = self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            return PartResult()
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SotopiaError):
                raise error.cause from None
            raise
        except self._ray.exceptions.RayError as error:
            raise SotopiaError(
                f"a process of the run died {_RESTARTS + 1} times ({type(error).__name__}); "
                "the same command continues the run"
            ) from None
        return result
