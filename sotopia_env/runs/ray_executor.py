"""Runs as Ray tasks: the parts of a run (:mod:`sotopia_env.runs.parts`), each in a process of its own, and merged.

The run directory must lie where all machines of the cluster see it, under the same path; nothing but the request of the
run and a word on its end goes through Ray. The model server is shared: requests in flight, requests and tokens per
minute, and what is left to spend, are divided among the parts. A part whose process dies is begun again on another one
and goes on from what is in its directory. Ray is imported on first use.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sotopia_env.chat_model import Ledger
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.spending.ledger import LEDGER
from sotopia_env.concurrency import Progress, Stop, stop_on_signals
from sotopia_env.errors import InvalidValueError, ModelRefusedError, SotopiaError, check_whole
from sotopia_env.runs.forecast import check_prompts
from sotopia_env.runs.parts import Part, merge_parts
from sotopia_env.runs.rollout import RunResult, open_run, run_episodes_async
from sotopia_env.runs.spec import RunSpec
from sotopia_env.storage.manifest import EPISODES

_POLL = 0.5
_RESTARTS = 3
"""How often a part whose process died is begun again."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """One part of a run as a task; picklable.

    Attributes:
        spec: the whole run.
        run_dir: its directory.
        part: which share to play.
        grace: seconds for what is in progress when the run is stopped.
    """

    spec: RunSpec
    run_dir: Path
    part: Part
    grace: float

    @property
    def recorded(self) -> int:
        """The number of episodes in the directory of the part."""
        with suppress(FileNotFoundError):
            return (self.part.path(self.run_dir) / EPISODES).read_bytes().count(b"\n")
        return 0


@dataclass(frozen=True, slots=True)
class PartResult:
    """The end of one part; picklable.

    Attributes:
        stopped: why it ended before its part was done; empty when it did not.
        unfinished: episodes that were begun and not ended for that reason.
        refusal: of a model that refuses every request, where that was the reason.
    """

    stopped: str = ""
    unfinished: int = 0
    refusal: ModelRefusedError | None = None


def play_part(task: PartTask) -> PartResult:
    """Plays one part to its end, in a process of its own."""
    stop = Stop(task.grace)
    with stop_on_signals(stop, lambda _: None):
        try:
            result = asyncio.run(_play(task, stop))
        except ModelRefusedError as error:
            return PartResult(str(error), refusal=error)
    return PartResult(result.stopped, result.unfinished)


async def _play(task: PartTask, stop: Stop) -> RunResult:
    models = ModelPool(task.part.limits(task.spec.models, task.run_dir))
    try:
        # The limits here are a share of the run's; these were checked where they were divided.
        run = task.spec.resolve(models, check_limits=False)
        plans = run.plans()
        await models.check()
        models.open(task.part.path(task.run_dir))
        return await run_episodes_async(
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
        InvalidValueError: it is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError:
        problem = "the Ray executor needs the package ray, which is not installed"
        raise InvalidValueError(problem, hint="pip install 'sotopia-env[ray]'") from None


def run_on_ray(
    spec: RunSpec,
    run_dir: Path,
    *,
    workers: int,
    progress: bool | None = None,
    stop: Stop | None = None,
) -> RunResult:
    """Plays a run as Ray tasks, and merges what they wrote.

    The cluster is the one this process is connected to, else the one at ``RAY_ADDRESS``, else a local one.

    Args:
        spec: what the run consists of.
        run_dir: where it lies; the same run is continued, whoever wrote it.
        workers: processes, and parts.
        progress: whether to show a progress bar; by default if stderr is a terminal.
        stop: ends the run early.

    Raises:
        InvalidValueError: Ray is not installed, or the run cannot be meant.
        BudgetExceededError: there was nothing left to spend, or a prompt has more tokens than a process per minute.
        ModelRefusedError: a model refuses every request; what was done until then is merged.
        SotopiaError: a process died again and again; what it had written is merged, and the run can be resumed.
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
    with open_run(plans, run.evaluator, run_dir, spec) as directory:  # merges what a run that was cut short has left
        present, resumed = len(directory.done), sum(plan.key in directory.done for plan in plans)
        parts = [Part(number, workers) for number in range(1, workers + 1)]
        tasks = [PartTask(spec, directory.path.absolute(), part, stop.grace) for part in parts]
        parts[0].limits(spec.models, directory.path)  # is there anything left to spend?
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
    )


async def _check(models: ModelPool) -> None:
    try:
        await models.check()
    finally:
        await models.close()


class _Cluster:
    """Parts as Ray tasks."""

    def __init__(self, ray: ModuleType, workers: int) -> None:
        self._ray = ray
        self._workers = workers

    def play(self, tasks: Sequence[PartTask], progress: Progress, stop: Stop, results: list[PartResult]) -> None:
        """Plays all parts, and collects their results."""
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
                    self._ray.cancel(reference, force=False)  # arrives there as Ctrl-C
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
