"""Plays a run: many independent episodes at once, recorded on disk as they finish, resumable.

Workers take plans from one iterator (:func:`~sotopia_env.concurrency.workers.work_through`), so memory grows with the
concurrency, not with the length of the run. :mod:`sotopia_env.runs.play` plays one episode;
:mod:`sotopia_env.storage.directory` describes the files of a run.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Dropped, Stop
from sotopia_env.concurrency.workers import check_limits, work_through
from sotopia_env.evaluators.probes.form import with_forms
from sotopia_env.foundation.errors import (
    FATAL,
    DamagedRecordError,
    InvalidValueError,
    ModelRefusedError,
    Where,
    check_members,
)
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.validation import invalid
from sotopia_env.naming.plugins import imported_code
from sotopia_env.policies.lengths import Measured, length_warnings
from sotopia_env.runs.admission import Admission
from sotopia_env.runs.evaluate import evaluate_directory
from sotopia_env.runs.parts import Part, check_division, merge_parts, take_over
from sotopia_env.runs.plan import EpisodePlan, planned_check, run_config
from sotopia_env.runs.play import TurnListener, Watcher, evaluate_episode, failure_record, play_episode
from sotopia_env.runs.series import BrokenSeriesError, Series
from sotopia_env.runs.usability import Usability
from sotopia_env.storage.directory import RunDirectory, is_unscored, read_run
from sotopia_env.storage.manifest import UNFINISHED, FailureRecord, UnfinishedPart, named
from sotopia_env.world.dynamics import initial_state
from sotopia_env.world.episode import Episode, EpisodeError, Evaluation, Evaluator, RecordedTurn
from sotopia_env.world.observation import Observation, observe
from sotopia_env.world.play.table import Table
from sotopia_env.world.turn_order import TurnOrder

logger = logging.getLogger(__name__)
_ALLOCATIONS = 50_000
"""Container objects allocated between two garbage collections during a run (CPython's default: 2,000 or less)."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Counts and failures of a run.

    Attributes:
        run_dir: the run's directory; ``None`` if the run was kept in memory only.
        planned: the number of episodes in the run.
        played: the number of episodes finished in this call.
        resumed: the number of episodes that had been recorded before this call.
        unscored: recorded episodes that the run's evaluator has not scored; the same call evaluates them again.
        failures: episodes that could not be finished, in the order of failing.
        repaired: one sentence for each incomplete line that was removed from a file of the run.
        stopped: why the run ended before it was done; empty if it was done.
        unfinished: the number of episodes that were started but did not end because the run was stopped. They do not
            count as failures. A resumed run continues them, in a run directory from the turn that was next.
        usability: the turns of this call whose text was not an action.
    """

    run_dir: Path | None
    planned: int
    played: int
    resumed: int
    unscored: int
    failures: tuple[FailureRecord, ...] = field(repr=False)
    repaired: tuple[str, ...]
    stopped: str = ""
    unfinished: int = 0
    usability: Usability = field(default_factory=Usability, repr=False)
    # Not in the repr: asyncio writes out the result of its main task when it restores the Ctrl-C handler.
    _episodes: tuple[Episode, ...] = field(default=(), repr=False)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """All recorded episodes: in plan order from memory, in the order of finishing from a run directory."""
        return self._episodes if self.run_dir is None else tuple(read_run(self.run_dir))


@dataclass(slots=True)
class _Run:
    """The shared state of the workers of one run."""

    evaluator: Evaluator | None
    timeout: float | None
    directory: RunDirectory | None
    progress: Progress
    stop: Stop
    watcher: Watcher | None
    admission: Admission
    series: Series
    episodes: dict[str, Episode] = field(default_factory=dict)
    failed: list[FailureRecord] = field(default_factory=list)
    started: int = 0
    played: int = 0
    unscored: int = 0
    usability: Usability = field(default_factory=Usability)

    @property
    def unfinished(self) -> int:
        """Episodes that were started, but neither recorded nor failed."""
        return self.started - self.played - len(self.failed)

    async def work(self, plan: EpisodePlan) -> bool:
        """Plays, evaluates and records an episode; returns whether it succeeded."""
        outcome: Episode | FailureRecord | None = None
        try:
            outcome = await self._outcome(await self.series.with_notes(plan))
        except BrokenSeriesError as error:
            self.stop.check()  # of a run that was stopped, the episode is left for the next time
            self.started += 1
            outcome = failure_record(plan, Table(plan.task, plan.rules, plan.episode_seed, key=plan.key), error)
        finally:
            # Also after an exception: the next episode of the series may be waiting for this one.
            self.series.end(plan.key, outcome if isinstance(outcome, Episode) else None)
        self._record(outcome)
        if self.watcher is not None:
            self.watcher.end(plan, *((outcome,) if isinstance(outcome, Episode) else (None, outcome.message)))
        return isinstance(outcome, Episode)

    async def _outcome(self, plan: EpisodePlan) -> Episode | FailureRecord:
        """Returns the episode, or the record of its failure, once it may begin."""
        parts = [] if self.directory is None else self.directory.unfinished.records(plan.key)
        with self.progress.waiting():
            await self.admission.enter(plan.key, parts)
        outcome: Episode | FailureRecord | None = None
        try:
            self.stop.check()
            self.started += 1
            outcome = await self._produce(plan, parts)
        finally:
            # Also after an exception: the admission of the next episode may be waiting for this one to end.
            self.admission.leave(plan.key, isinstance(outcome, Episode))
        return outcome

    async def _produce(self, plan: EpisodePlan, parts: list[UnfinishedPart]) -> Episode | FailureRecord:
        """Returns the episode with its evaluation, or the record of its failure."""
        try:
            outcome = await play_episode(
                plan,
                unfinished=_unfinished_episode(plan, parts) if parts else None,
                timeout=self.timeout,
                stop=self.stop,
                listeners=self._listeners(plan, bool(parts)),
            )
            if isinstance(outcome, Episode) and self.evaluator is not None:
                outcome = await with_forms(outcome, plan.policies, self.evaluator)
                return await evaluate_episode(outcome, self.evaluator, self.timeout, partial(self._keep, plan.key))
            return outcome
        except (*FATAL, Dropped) as error:
            if self.watcher is not None:
                self.watcher.end(plan, None, str(error))
            raise
        except DamagedRecordError as error:
            path = (self.directory.path if self.directory else Path()) / UNFINISHED
            raise DamagedRecordError.of(error, hint="remove the episode's lines to play it anew", where=path) from None

    def _keep(self, key: str, evaluation: Evaluation) -> None:
        """Records the evaluation of one judge of a panel at once, since the run may stop before the others answer."""
        if self.directory is not None:
            self.directory.unfinished.append(UnfinishedPart(key=key, evaluation=evaluation))

    def _listeners(self, plan: EpisodePlan, resumed: bool) -> list[TurnListener]:
        """Returns the listeners to an episode's turns.

        Only listeners with something to do are included, since each is called for every turn.
        """
        listeners: list[TurnListener] = []
        if self.directory is not None:
            listeners.append(_Safeguard(self.directory, plan.key, resumed).add)
        if self.admission.limited:
            listeners.append(lambda turn, _: self.admission.note(plan.key, turn))
        if self.watcher is not None:
            watcher = self.watcher
            listeners.append(lambda turn, _: watcher.turn(plan, turn))
        return listeners

    def _record(self, outcome: Episode | FailureRecord) -> None:
        if isinstance(outcome, FailureRecord):
            logger.warning("episode %s failed: %s: %s", outcome.key, outcome.kind, outcome.message)
            self.failed.append(outcome)
            if self.directory is not None:
                self.directory.append_failure(outcome)
            return
        self.played += 1
        self.usability.add(outcome)
        self.unscored += is_unscored(outcome)
        if self.directory is not None:
            self.directory.append(outcome)
        else:
            self.episodes[outcome.key] = outcome


class _Safeguard:
    """Writes the turns of an episode to the run directory while it is played.

    Writing starts with the first turn that a model or a person generated: a turn without a generation costs nothing,
    and playing it again gives the same turn.
    """

    def __init__(self, directory: RunDirectory, key: str, writing: bool) -> None:
        self._directory, self._key, self._writing = directory, key, writing
        self._free: list[UnfinishedPart] = []

    def add(self, turn: RecordedTurn, errors: tuple[EpisodeError, ...]) -> None:
        """Adds a turn."""
        self._free.append(UnfinishedPart(key=self._key, turn=turn, errors=errors))
        if self._writing or turn.generation is not None:
            for item in self._free:
                self._directory.unfinished.append(item)
            self._writing = True
            self._free.clear()


def _unfinished_episode(plan: EpisodePlan, parts: list[UnfinishedPart]) -> Episode:
    """Returns an episode as far as it was played and judged in earlier calls."""
    try:
        return Episode(
            key=plan.key,
            task=plan.task,
            rules=plan.rules,
            seed=plan.episode_seed,
            turns=tuple([part.turn for part in parts if part.turn is not None]),
            errors=tuple([error for part in parts for error in part.errors]),
            evaluations=tuple([part.evaluation for part in parts if part.evaluation is not None]),
        )
    except ValidationError as error:
        raise DamagedRecordError.of(invalid(error), where=Where(record=f"episode {plan.key!r}")) from None


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """Excludes tasks and plans from garbage collection, each run of which would delay every episode in flight.

    Collections are also made rare: almost none of a run's garbage is in reference cycles, and searching the records of
    hundreds of episodes in flight for cycles took a fifth of the time. A heap that is already frozen is not changed,
    since ``gc.unfreeze`` would unfreeze the caller's objects, too.
    """
    freezes, threshold = gc.get_freeze_count() == 0, gc.get_threshold()
    if freezes:
        gc.freeze()
        gc.set_threshold(max(threshold[0], _ALLOCATIONS), *threshold[1:])
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
            gc.set_threshold(*threshold)


async def run_episodes(
    plans: Iterable[EpisodePlan],
    *,
    evaluator: Evaluator | None = None,
    run_dir: str | Path | None = None,
    concurrency: int = 128,
    timeout: float | None = None,
    progress: bool | None = None,
    stop: Stop | None = None,
    ledger: Ledger | None = None,
    watcher: Watcher | None = None,
    spec: Settings | None = None,
    part: Part | None = None,
) -> RunResult:
    """Plays, evaluates and records episodes.

    No further turn starts once a model's budget is spent or ``stop`` is requested; see
    :mod:`sotopia_env.concurrency.stopping`. The result then gives the reason, and the same call continues the run.

    Args:
        plans: the episodes to play (:func:`sotopia_env.runs.plan.plan_episodes`).
        evaluator: scores each episode when it ends; ``None`` leaves that to :func:`evaluate_run`.
        run_dir: the directory to write to. If it holds the same run, that run is continued: unscored episodes are
            evaluated again, and those that were started or failed continue from their last turn. ``None`` keeps the
            episodes in memory.
        concurrency: the number of episodes in flight at once, at least 1.
        timeout: seconds for playing one episode, and again for evaluating it; ``None`` for no limit. It takes effect
            where a policy or an evaluator awaits something: one that computes without ever awaiting blocks every
            episode and cannot be stopped.
        progress: whether to show a progress bar on stderr; by default if stderr is a terminal.
        stop: ends the run early.
        ledger: the ledger of the models behind the policies and the evaluator; the progress bar shows its sums, and
            ``run.json`` records the models that answered.
        watcher: receives every turn and the end of every episode.
        spec: the specification that the plans were made from; recorded in ``run.json``.
        part: the share of the plans to play, in a subdirectory of ``run_dir`` (:mod:`sotopia_env.runs.parts`).

    Raises:
        InvalidValueError: an argument is invalid, two plans are equal, or ``run_dir`` is in use or holds another run.
        DamagedRecordError: ``run_dir`` holds a line that cannot be read.
        ModelRefusedError: a model refuses every request, for instance because it does not exist. Finished work is on
            disk, and no episode counts as failed because of the refusal.
    """
    plans, stop = _check(plans, concurrency, timeout), stop or Stop()
    if part is not None and run_dir is None:
        raise InvalidValueError(field="run_dir", expected="a directory, for a part of a run", got=None)
    if part is not None and any(plan.rules.carry for plan in plans):
        raise InvalidValueError("a run with notes is played whole, not in parts", field="carry")
    for warning in length_warnings(_first_turns(plans)):
        logger.warning(warning)
    if evaluator is not None:
        check_members("evaluator", "an evaluator or None", evaluator, Evaluator)
    with nullcontext() if run_dir is None else open_run(plans, evaluator, run_dir, spec, part) as directory:
        if directory is not None and directory.unscored and evaluator is not None:
            # Evaluations that failed in an earlier call come first: their episodes are already paid for.
            again = Progress(len(directory.done), 0, progress, "evaluations", ledger)
            await evaluate_directory(
                directory, evaluator, again, concurrency=concurrency, timeout=timeout, stop=stop, ledger=ledger
            )
        plans = plans if part is None else part.of(plans)
        present = directory.done | directory.elsewhere if directory else set()
        todo = [plan for plan in plans if plan.key not in present]
        bar = Progress(len(plans), len(plans) - len(todo), progress, "episodes", ledger)
        series = Series(plans, () if directory is None else read_run(directory.path))
        run = _Run(evaluator, timeout, directory, bar, stop, watcher, Admission(ledger), series)
        with _frozen_heap():
            await work_through(series.ordered(todo), run.work, stop, bar, concurrency)
        if directory is not None:
            directory.finish(complete=not stop.reason, answered=ledger.answered() if ledger else {})
    if isinstance(stop.failure, ModelRefusedError):
        raise stop.failure
    return RunResult(
        run_dir=directory.path if directory else None,
        planned=len(plans),
        played=run.played,
        resumed=len(plans) - len(todo),
        unscored=0 if evaluator is None else directory.unscored if directory else run.unscored,
        failures=tuple(run.failed),
        repaired=directory.repaired if directory else (),
        stopped=stop.reason,
        unfinished=run.unfinished,
        usability=run.usability,
        _episodes=tuple(run.episodes[plan.key] for plan in plans if plan.key in run.episodes),
    )


def _check(plans: Iterable[EpisodePlan], concurrency: int, timeout: float | None) -> list[EpisodePlan]:
    check_limits(concurrency, timeout)
    unique: dict[str, EpisodePlan] = {}
    for plan in plans:
        if plan.key in unique:
            raise InvalidValueError(field="plans", expected="every episode once", got=plan.key, hint="use `repeat`")
        unique[plan.key] = plan
    return list(unique.values())


def _first_turns(plans: Iterable[EpisodePlan]) -> Iterator[tuple[Measured, Observation]]:
    """Yields every policy with length limits and its first observation, once for each task and seat."""
    measured = (
        (plan, agent, policy)
        for plan in plans
        for agent, policy in zip(plan.task.agents, plan.policies, strict=True)
        if isinstance(policy, Measured)
    )
    unique = {(id(policy), plan.task.id, agent): (plan, agent, policy) for plan, agent, policy in measured}
    for plan, agent, policy in unique.values():
        # The seat is made the first to act, since only the observation of an acting seat asks for an action.
        first = plan.task.agents.index(agent)
        rules = replace(plan.rules, turn_order=TurnOrder.ROUND_ROBIN, first_seat=first)
        yield policy, observe(initial_state(plan.task, rules, plan.seed), agent)


@contextmanager
def open_run(
    plans: list[EpisodePlan],
    evaluator: Evaluator | None,
    run_dir: str | Path,
    spec: Settings | None = None,
    part: Part | None = None,
) -> Iterator[RunDirectory]:
    """Opens the directory of a run for writing, after merging its parts, or the directory of one part.

    Args:
        plans: all episodes of the run.
        evaluator: the evaluator of the run, if any.
        run_dir: the directory of the run.
        spec: the specification that the plans were made from.
        part: the part whose directory is opened; ``None`` for the directory of the run.

    Raises:
        InvalidValueError: the directory is in use, or holds another run.
        DamagedRecordError: the directory holds a line that cannot be read.
    """
    path, config = Path(run_dir), run_config(plans, None if evaluator is None else named(evaluator))
    if part is None:
        opened = RunDirectory(path, config, planned_check(plans))
    else:
        check_division(path, part, config)
        opened = RunDirectory(part.path(path), config, planned_check(plans), str(part))
    with opened as directory:
        directory.note_code(imported_code())
        if spec is not None:
            directory.note_spec(spec.model_dump(mode="json", exclude_defaults=True))
        if part is None:
            merge_parts(directory)
        else:
            take_over(directory, path, {plan.key for plan in part.of(plans)})
        yield directory
