"""The worker process, which leases jobs and carries out several at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sotopia_env.chat_model.outage import SILENCE
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import FATAL, InUseError, ModelCallError, PolicyError, SotopiaError
from sotopia_env.runs.play import attempt
from sotopia_env.world import Evaluator
from sotopia_env.world.play.policy import Policy
from sotopia_studio import assistance, live
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, jobs, runs
from sotopia_studio.store.engine import UNREACHABLE, Database, cancel
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.store.jobs import Job
from sotopia_studio.work import drafting, evaluating, names
from sotopia_studio.work.batch import play_run
from sotopia_studio.work.presence import Presence

logger = logging.getLogger(__name__)
IDLE = 0.1
"""Seconds between two queries for a job."""
ATTEMPTS = 4
"""The maximum number of attempts for a job whose model does not respond."""
LONGEST_PAUSE = 8.0
"""The maximum number of seconds between two attempts."""


class Worker:
    """Carries out jobs until it is stopped.

    Attributes:
        name: unique among the workers of a service.
        settings: the service's settings.
        database: the service's database.
        models: the language models of this process.
        handlers: the coroutine that carries out each kind of job.
    """

    def __init__(self, settings: ServiceSettings, database: Database) -> None:
        """Prepares a worker; it claims no job yet."""
        self._presence = Presence(settings.data / "workers")
        self.name = self._presence.name
        self.settings = settings
        self.database = database
        # A person who waits is told within seconds: calls fail soon, and the job is tried again for as long.
        self._patience = settings.models.retry_policy.patience
        retries = replace(settings.models.retries, retries=min(settings.models.retries.retries, 1))
        self.models = ModelPool(settings.models.model_copy(update={"patience": 0.0, "retries": retries}))
        self._stop = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self.handlers: Mapping[str, Callable[[Job, Stop], Awaitable[str | None]]] = {
            live.ADVANCE: self._advance,
            live.ADVISE: self._advise,
            runs.PLAY: partial(play_run, settings, database),
            evaluating.EVALUATE: partial(evaluating.evaluate, settings, database),
            drafting.DRAFT: partial(drafting.draft, settings, database),
        }

    def stop(self) -> None:
        """Ends :meth:`run` once the running jobs have reached a point from which they can be resumed."""
        self._stop.set()

    async def run(self) -> None:
        """Claims and carries out jobs until :meth:`stop`."""
        watches = [asyncio.create_task(watch) for watch in (self._watch_deadlines(), self._watch_workers())]
        try:
            while not self._stop.is_set():
                try:
                    begun, pause = await self._begin_one(), IDLE
                except UNREACHABLE as error:  # the database is down, locked or full: that passes
                    logger.warning("no job could be claimed: %s", error)
                    begun, pause = False, 1.0
                if not begun:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), pause)
        finally:
            # A task that is cancelled before it starts would not give its job back: let new ones start.
            await asyncio.sleep(0)
            await cancel(*watches, *self._running)
            await self.models.close()
            self._presence.close()

    async def _begin_one(self) -> bool:
        """Claims and starts a job; returns ``False`` if none is due or the worker is fully occupied."""
        if len(self._running) >= self.settings.concurrency:
            return False
        async with self.database.write() as connection:
            job = await jobs.claim(connection, self.name, tuple(self.handlers))
        if job is None:
            return False
        task = asyncio.create_task(self._carry_out(job))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return True

    async def _carry_out(self, job: Job) -> None:
        stop = Stop()
        lease = asyncio.create_task(self._keep_lease(job, stop))
        # Until an outcome is recorded, the job is to be tried again: recording it may fail, too.
        error, result = "", ""
        retry_after: float | None = 2.0
        try:
            outcome = await attempt(self.handlers[job.kind](job, stop), None)
            if isinstance(outcome, Exception):
                error, retry_after = await self._failed(job, outcome)
            else:
                result, retry_after = outcome or "", None
        except FATAL as problem:
            error, retry_after = await self._failed(job, problem)
        except asyncio.CancelledError:
            # This worker ends; another one may take the job over at once.
            retry_after = 0.0
        finally:
            await cancel(lease)
            async with self.database.write() as connection:
                await jobs.finish(connection, job, self.name, error=error, retry_after=retry_after, result=result)

    async def _failed(self, job: Job, problem: Exception) -> tuple[str, float | None]:
        """Returns the error of a failed job, and the seconds until the next attempt, ``None`` for none."""
        if isinstance(problem, (ConflictError, MissingError)):
            # Another process has changed or deleted the target: this request has become obsolete.
            return "", None
        reason = f"{type(problem).__name__}: {problem}"
        logger.warning("job %s, attempt %d: %s", job.id, job.attempts, reason)
        # 2, 4 and 8 seconds: an outage of a model is often over by then.
        if job.attempts < self._attempts(job, problem):
            return reason, min(2.0**job.attempts, LONGEST_PAUSE)
        if job.kind == live.ADVANCE:
            await live.end(self.database, job.target, "failed", reason)
        if job.kind == runs.PLAY:
            async with self.database.write() as connection:
                await runs.change(connection, job.target, status="failed", error=reason, finished=time.time())
        return reason, None

    def _attempts(self, job: Job, problem: Exception) -> int:
        """The maximum number of attempts: one if the problem will not pass by itself."""
        error = problem.__cause__ if isinstance(problem, PolicyError) else problem
        if job.kind == live.ADVANCE and isinstance(error, ModelCallError) and error.kind in SILENCE:
            # People wait for the model as long as the operator would let a run wait.
            return 2 + int(self._patience / LONGEST_PAUSE)
        passing = isinstance(problem, (ModelCallError, InUseError, *UNREACHABLE)) and not isinstance(problem, FATAL)
        return ATTEMPTS if passing else 1

    async def _keep_lease(self, job: Job, stop: Stop) -> None:
        while True:
            await asyncio.sleep(jobs.RENEWAL)
            try:
                async with self.database.write() as connection:
                    stopping = await jobs.renew(connection, job, self.name)
            except UNREACHABLE as error:
                logger.warning("job %s: its lease could not be renewed: %s", job.id, error)
                continue
            if stopping is None:
                stop.ask("another worker has taken the job over")
            elif stopping:
                stop.ask("a stop was requested")

    async def _watch_workers(self) -> None:
        """Gives the jobs of dead workers of this machine back, before their leases expire."""
        while True:
            if dead := await asyncio.to_thread(self._presence.dead):
                try:
                    async with self.database.write() as connection:
                        await jobs.give_back(connection, dead)
                except UNREACHABLE as error:
                    logger.warning("the jobs of dead workers could not be given back: %s", error)
                else:
                    for name in dead:
                        self._presence.forget(name)
            await asyncio.sleep(1.0)

    async def _watch_deadlines(self) -> None:
        """Times out people who do not answer within their limit."""
        while True:
            await asyncio.sleep(1.0)
            try:
                async with self.database.read() as connection:
                    late = await episodes.overdue(connection)
            except UNREACHABLE as error:
                logger.warning("no deadline could be looked up: %s", error)
                continue
            for episode in late:
                try:
                    await live.time_out(self.database, episode)
                except (ConflictError, MissingError):
                    pass  # the answer came meanwhile
                except (SotopiaError, *UNREACHABLE) as error:  # one episode must not stop the others' clocks
                    logger.warning("episode %s: %s", episode, error)

    async def _advance(self, job: Job, _: Stop) -> None:
        async with self.database.read() as connection:
            episode = await live.LiveEpisode.load(connection, job.target)
        if episode.status in live.CLOSED:
            return
        policies, evaluator = await names.built(partial(self._players, episode.spec))
        await live.advance(self.database, episode, policies, evaluator)

    async def _advise(self, job: Job, _: Stop) -> None:
        async with self.database.read() as connection:
            episode = await live.LiveEpisode.load(connection, job.target)
        if episode.advised:
            advisers = await names.built(partial(self._advisers, episode.spec))
            await assistance.advise(self.database, episode, advisers)

    def _advisers(self, spec: LiveSpec) -> dict[str, Policy]:
        chosen = [item.policy for item in spec.assistants.values()]
        advisers = names.policies(self.settings, self.models, chosen, spec.manner)
        return dict(zip(spec.assistants, advisers, strict=True))

    def _players(self, spec: LiveSpec) -> tuple[dict[str, Policy], Evaluator | None]:
        seats = {agent: name for agent, name in spec.policies.items() if agent not in spec.people}
        seated = names.policies(self.settings, self.models, seats.values(), spec.manner)
        evaluator = names.evaluator(self.settings, self.models, spec.evaluator, seated)
        return dict(zip(seats, seated, strict=True)), evaluator
