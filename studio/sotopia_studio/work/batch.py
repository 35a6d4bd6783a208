"""Batch runs, played in a thread of a worker and indexed in the database meanwhile.

The run directory is authoritative. :func:`index` reads its new lines, so a run that was killed, or played by another
command, is indexed in the same way.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import Where
from sotopia_env.foundation.records import read_record
from sotopia_env.runs import RunSpec, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import RunResult
from sotopia_env.storage.directory import check_run, is_unscored, read_failures
from sotopia_env.storage.manifest import EPISODES, read_manifest
from sotopia_env.world.episode import Episode, RecordedTurn, read_episode
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, jobs, runs
from sotopia_studio.store.engine import Database
from sotopia_studio.store.jobs import Job
from sotopia_studio.work import names

_LOOK = 0.5
"""Seconds between two readings of the run directory."""
_BATCH = 64
"""Episodes that are indexed in one transaction."""


class _Count:
    """A watcher that counts the episodes that could not be played; called from the thread of the run."""

    def __init__(self) -> None:
        self.failed = 0

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """Creates a watcher with a count of 0."""

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """Counts an episode without a record."""
        self.failed += episode is None and not why.startswith("stopped")


async def play_run(settings: ServiceSettings, database: Database, job: Job, stop: Stop) -> None:
    """Plays or resumes a run until it ends or a stop is requested."""
    async with database.write() as connection:
        row = await runs.one(connection, job.target)
        # Stopped while it was queued.
        if row.status == "stopped":
            return
        spec = read_record(RunSpec, await runs.spec_of(connection, job.target), f"run {job.target}")
        await runs.change(connection, job.target, status="running", started=time.time(), finished=None, error="")
    models, count = ModelPool(spec.models), _Count()
    with names.meaning(settings):
        resolved = await names.built(lambda: spec.resolve(models))
        plans = await names.built(resolved.plans)

    async def play() -> RunResult:
        directory = Path(row.directory)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            await models.check()
            models.open(directory)
            return await run_episodes(
                plans,
                evaluator=resolved.evaluator,
                run_dir=directory,
                concurrency=spec.concurrency,
                timeout=spec.timeout,
                progress=False,
                stop=stop,
                ledger=models.ledger,
                watcher=count,
                spec=spec,
            )
        finally:
            await models.close()

    # In a thread with a loop of its own: scripted policies compute without a pause, and live episodes would wait.
    playing = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(play())))
    reader = _Reader(job.target, Path(row.directory))
    try:
        while not playing.done():
            await asyncio.wait([playing], timeout=_LOOK)
            await reader.read(database)
            totals = models.ledger.totals()
            spent = {"tokens": totals.tokens, "cost": None if totals.has_unknown_cost else totals.cost}
            async with database.write() as connection:
                await runs.change(connection, job.target, planned=len(plans), failed=count.failed, **spent)
                # The lease is renewed every few seconds only; a user who stops a run should not wait for that.
                if await jobs.is_asked_to_stop(connection, job):  # sooner than the lease is renewed
                    stop.ask("a stop was requested")
    except asyncio.CancelledError:
        # A thread cannot be cancelled: the run is asked to stop, and its directory can be resumed.
        stop.ask("the worker ends")
        await asyncio.wait([playing])
        raise
    result = playing.result()
    await _conclude(database, job.target, result)


async def _conclude(database: Database, run: str, result: RunResult) -> None:
    assert result.run_dir is not None
    # Resuming evaluates unscored episodes again, so lines that were read before may have changed.
    if result.resumed:
        await index(database, run, result.run_dir)
    stopped = {"status": "stopped", "error": result.stopped} if result.stopped else {"status": "done"}
    counts = {"failed": len(result.failures), "unscored": result.unscored}
    async with database.write() as connection:
        await runs.change(connection, run, finished=time.time(), **counts, **stopped)


class _Reader:
    """Reads the new lines of a run directory into the database."""

    def __init__(self, run: str, directory: Path) -> None:
        self.run, self.path, self.offset = run, directory / EPISODES, 0
        self.counts: Counter[str] = Counter()

    async def read(self, database: Database) -> None:
        """Adds the episodes of all complete lines that it has not read yet."""
        while lines := await asyncio.to_thread(self._lines):
            read = await asyncio.to_thread(self._episodes, lines)
            self.counts["played"] += len(read)
            self.counts["unscored"] += sum(map(is_unscored, read))
            async with database.write() as connection:
                entries = list(zip(read, lines, strict=True))
                await episodes.add_recorded(connection, self.run, entries, time.time())
                await runs.change(connection, self.run, played=self.counts["played"], unscored=self.counts["unscored"])

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        lines: list[str] = []
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            # A line without its end is still being written; it is read next time.
            while len(lines) < _BATCH and (line := stream.readline()).endswith(b"\n"):
                lines.append(line.decode())
                self.offset += len(line)
        return lines

    def _episodes(self, lines: list[str]) -> list[Episode]:
        where = Where(self.path, record=f"before byte {self.offset}")
        return [read_episode(line, where) for line in lines]


async def index(database: Database, run: str, directory: Path) -> int:
    """Reads all episodes of a run directory into the database and returns their number.

    Raises:
        DamagedRecordError: a line cannot be read.
    """
    reader = _Reader(run, directory)
    await reader.read(database)
    return reader.counts["played"]


async def import_run(database: Database, directory: Path) -> tuple[str, int]:
    """Adds or updates a run directory in the database; returns the run's id and its number of episodes.

    Raises:
        InvalidValueError: ``directory`` is not a run directory.
        DamagedRecordError: a record cannot be read.
    """
    directory = directory.resolve()
    check_run(directory)
    manifest = read_manifest(directory)
    spec = RunSpec.model_validate(dict(manifest.specs[0])).model_dump_json() if manifest.specs else ""
    planned = sum(config.episodes for config in manifest.configs)
    async with database.write() as connection:
        run = await runs.by_directory(connection, str(directory))
        if run is None:
            run = await runs.add(
                connection,
                spec,
                name=directory.name,
                directory=str(directory),
                planned=planned,
                status="done" if manifest.finished else "stopped",
            )
    count = await index(database, run, directory)
    failed = (
        len({failure.key for failure in read_failures(directory)}) if (directory / "failures.jsonl").exists() else 0
    )
    async with database.write() as connection:
        await runs.change(connection, run, planned=max(planned, count), failed=failed, finished=time.time())
    return run, count
