"""Runs as Ray tasks, for those that one process cannot feed.

Every task is a process that plays its part of the plan into a shard of the run directory, which therefore must lie
where all machines of the cluster see it, under the same path. The model server is shared; requests in flight, requests
and tokens per minute, and what is left to spend, are divided among the processes in equal parts. Ray is imported on
first use.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.spending.ledger import LEDGER, Ledger
from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Stop, stop_on_signals
from sotopia_env.errors import InvalidValueError, ModelRefusedError, SotopiaError, check_whole
from sotopia_env.runs.forecast import check_prompts
from sotopia_env.runs.rollout import RunResult, open_run, run_episodes_async
from sotopia_env.runs.shards import hand_out, merge_shards, shard_path
from sotopia_env.runs.spec import RunSpec
from sotopia_env.storage.manifest import EPISODES, FailureRecord

_POLL = 0.5


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one process; picklable.

    Attributes:
        spec: the whole run.
        keys: the episodes of this part.
        directory: of the shard.
        grace: seconds for what is under way when the run is stopped.
    """

    spec: RunSpec
    keys: frozenset[str]
    directory: Path
    grace: float


@dataclass(frozen=True, slots=True)
class PartResult:
    """The end of one process; picklable.

    Attributes:
        stopped: why it ended before its part was done; empty when it did not.
        unfinished: episodes that were begun and not ended for that reason.
        refusal: of a model that refuses every spec, where that was the reason.
    """

    stopped: str = ""
    unfinished: int = 0
    refusal: ModelRefusedError | None = None


def play_part(part: Part) -> PartResult:
    """Plays one part to its end, in a process of its own."""
    stop = Stop(part.grace)
    with stop_on_signals(stop, lambda _: None):
        try:
            result = asyncio.run(_play(part, stop))
        except ModelRefusedError as error:
            return PartResult(str(error), refusal=error)
    return PartResult(result.stopped, result.unfinished)


async def _play(part: Part, stop: Stop) -> RunResult:
    models = ModelPool(part.spec.models)
    try:
        # The limits here are a part of the run's; these were checked where they were divided.
        run = part.spec.resolve(models, check_limits=False)
        plans = [plan for plan in run.plans() if plan.key in part.keys]
        if len(plans) < len(part.keys):
            raise InvalidValueError(
                f"a worker finds {len(plans)} of its {len(part.keys)} episodes",
                hint="all machines need the same versions and the same files",
            )
        await models.check()
        models.open(part.directory)
        return await run_episodes_async(
            plans,
            evaluator=run.evaluator,
            run_dir=part.directory,
            concurrency=part.spec.concurrency,
            timeout=part.spec.timeout,
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
        workers: processes.
        progress: whether to show a progress bar; by default if stderr is a terminal.
        stop: ends the run early.

    Raises:
        InvalidValueError: Ray is not installed, or the run cannot be meant.
        BudgetExceededError: there was nothing left to spend, or a prompt has more tokens than a process per minute.
        ModelRefusedError: a model refuses every spec; what was done until then is merged.
        SotopiaError: a process died; what it had written is merged, and the run can be resumed.
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
    with open_run(plans, run.evaluator, run_dir, spec) as directory:  # merges what a run that was cut short has left
        todo = [plan.key for plan in plans if plan.key not in directory.done]
        present, resumed = len(directory.done), len(plans) - len(todo)
        results: list[PartResult] = []
        failures: tuple[FailureRecord, ...] = ()
        try:
            if todo:
                parts = _parts(spec, todo, directory.path, workers, stop.grace)
                for part in parts:
                    hand_out(directory, part.directory, part.keys)
                cluster.play(parts, Progress(len(plans), resumed, progress, "episodes"), stop, results)
        finally:
            _, failures = merge_shards(directory)
        stopped = stop.reason or next((result.stopped for result in results if result.stopped), "")
        with _ledger(spec, directory.path) as ledger:
            directory.finish(complete=not stopped, answered=ledger.answered())
        refusal = next((result.refusal for result in results if result.refusal), None)
        if refusal is not None:
            raise refusal
    return RunResult(
        run_dir=directory.path,
        planned=len(plans),
        played=len(directory.done) - present,
        resumed=resumed,
        unscored=0 if run.evaluator is None else directory.unscored,
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


def _ledger(spec: RunSpec, run: Path) -> Ledger:
    directory = run if (run / LEDGER).exists() else None
    return Ledger(directory, spec.models.max_cost, spec.models.max_tokens)


def _parts(
    spec: RunSpec,
    keys: Sequence[str],
    run: Path,
    workers: int,
    grace: float,
) -> list[Part]:
    with _ledger(spec, run) as ledger:
        ledger.check()
        share = spec.model_copy(update={"models": spec.models.share(workers, ledger.totals())})
    return [
        Part(share, frozenset(keys[i::workers]), shard_path(run.absolute(), i), grace)
        for i in range(min(workers, len(keys)))
    ]


class _Cluster:
    """Parts as Ray tasks."""

    def __init__(self, ray: ModuleType, workers: int) -> None:
        self._ray = ray
        self._workers = workers

    def play(self, parts: Sequence[Part], progress: Progress, stop: Stop, results: list[PartResult]) -> None:
        """Plays all parts, and collects their results."""
        connects = not self._ray.is_initialized()
        if connects:
            self._connect()
        try:
            task = self._ray.remote(num_cpus=1, max_retries=0)(play_part)
            self._wait([task.remote(part) for part in parts], parts, progress, stop, results)
        finally:
            if connects:
                self._ray.shutdown()

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": self._workers, "include_dashboard": False}
        self._ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)

    def _wait(
        self, running: list[Any], parts: Sequence[Part], progress: Progress, stop: Stop, results: list[PartResult]
    ) -> None:
        done, deadline = 0, None
        while running:
            ended, running = self._ray.wait(running, num_returns=len(running), timeout=_POLL)
            for reference in ended:
                results.append(self._outcome(reference))
                if results[-1].refusal is not None:
                    stop.ask(results[-1].stopped)
            before, done = done, sum(_lines(part.directory / EPISODES) for part in parts)
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
                f"a process of the run died ({type(error).__name__}); the same command continues the run"
            ) from None
        return result


def _lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
