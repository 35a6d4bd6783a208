"""Plays and evaluates one episode of a run, and records any failure of its policies or its evaluator."""

from __future__ import annotations

import asyncio
import itertools
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from sotopia_env.concurrency.stopping import Dropped, Stop
from sotopia_env.evaluators.evaluator import JudgePanel, MemberFailedError, MemberResult
from sotopia_env.foundation.errors import FATAL, SotopiaError
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.manifest import FailureRecord, named
from sotopia_env.world.episode import Episode, EpisodeError, Evaluation, Evaluator, RecordedTurn
from sotopia_env.world.play.notes import written_notes
from sotopia_env.world.play.policy import policy_identity
from sotopia_env.world.play.table import Table

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_TRACEBACK_LINES = 12
TurnListener = Callable[[RecordedTurn, tuple[EpisodeError, ...]], None]
"""Called after every turn, with the external errors that were recovered from while the turn was produced."""


class Watcher(Protocol):
    """Observer of episodes while they are played."""

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """A turn was taken."""
        ...

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """An episode has ended, evaluated if the run has an evaluator, or has failed for the reason ``why``."""
        ...


class _ListenerError(Exception):
    """Wraps the exception of a listener, which ends the run and not only the episode."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _OutOfTimeError(SotopiaError):
    """The time limit of one episode or of its evaluation was reached."""


def _kind(error: Exception) -> str:
    return "Timeout" if isinstance(error, _OutOfTimeError) else type(error).__name__


async def attempt(work: Awaitable[_T], timeout: float | None) -> _T | Exception:
    """Returns what ``work`` returns, or the exception that ended it.

    This is the package's only catch-all: a policy or an evaluator is foreign code, and an error in one episode or one
    job must be recorded with it without affecting the others. Cancellation and Ctrl-C are not ``Exception`` and
    propagate; so do the end of the budget or of the run, and a model that refuses every request, since these are not
    failures of this episode.
    """
    try:
        async with asyncio.timeout(timeout) as limit:
            return await work
    except (*FATAL, Dropped, _ListenerError):
        raise
    except Exception as error:  # noqa: BLE001
        # A TimeoutError may also come from within ``work``; only the limit of this call becomes a "Timeout" record.
        if isinstance(error, TimeoutError) and limit.expired():
            return _OutOfTimeError(f"not finished within {timeout:g} s")
        return error


def _ignore(_: Evaluation) -> None:
    """Ignores a judge's evaluation."""


async def evaluate_episode(
    episode: Episode,
    evaluator: Evaluator,
    timeout: float | None = None,
    on_judged: Callable[[Evaluation], None] = _ignore,
) -> Episode:
    """Returns the episode with this evaluator's verdict, which is *unscored* with a reason if the evaluator fails.

    The judges of a :class:`~sotopia_env.evaluators.evaluator.JudgePanel` are called concurrently. Their evaluations
    precede the panel's own, and a judge whose evaluation is already in the episode is not called again. The same holds
    for the evaluations that a composite leaves when one of its members fails.

    Args:
        episode: a finished episode.
        evaluator: scores the episode.
        timeout: seconds for the evaluation, or for that of each judge; ``None`` for no limit.
        on_judged: receives the evaluation of each judge of a panel as soon as it is available.

    Raises:
        BudgetExceededError: a model's ledger has reached its limit; no verdict is returned.
        ModelRefusedError: a model refuses every request; no verdict is returned.
    """
    if not isinstance(evaluator, JudgePanel):
        parts: list[Evaluation] = []
        verdict = await _evaluation(episode, evaluator, _keeping(evaluator.evaluate(episode), parts), timeout)
        for part in parts:
            earlier = episode.evaluation(part.evaluator)
            if part.unscored is not None and earlier is not None and earlier.unscored is None:
                continue  # a failure never replaces scores
            on_judged(part)
            episode = episode.with_evaluation(part)
        return episode.with_evaluation(verdict)
    results = await all_at_once(_judged(episode, judge, timeout, on_judged) for judge in evaluator.judges)
    for result in results:
        # Raised only after all judges have ended: their calls are paid for, so their evaluations must be recorded.
        if isinstance(result, Exception):
            raise result
    members = [result for result in results if isinstance(result, MemberResult)]
    for member in members:
        episode = episode if member.evaluation is None else episode.with_evaluation(member.evaluation)

    async def combined() -> Evaluation:
        return evaluator.combine(members)

    return episode.with_evaluation(await _evaluation(episode, evaluator, combined(), None))


async def _keeping(work: Awaitable[Evaluation], parts: list[Evaluation]) -> Evaluation:
    """Adds the evaluations of a failing composite's members to ``parts``."""
    try:
        return await work
    except MemberFailedError as error:
        parts += error.evaluations
        raise


async def _judged(
    episode: Episode, judge: Evaluator, timeout: float | None, on_judged: Callable[[Evaluation], None]
) -> MemberResult | Exception:
    """Returns the judge's scores, recorded or new, or the exception if it ends the run."""
    recorded = episode.evaluation(judge.name)
    if recorded is not None and recorded.unscored is None and recorded.parameters == named(judge).parameters:
        return MemberResult(judge.name, recorded)
    try:
        work = judge.evaluate(episode)
        evaluation = await _evaluation(episode, judge, work, timeout)
    except FATAL as error:
        return error
    if evaluation.unscored is None:
        on_judged(evaluation)
    return MemberResult.of(judge.name, evaluation)


async def _evaluation(
    episode: Episode, evaluator: Evaluator, work: Awaitable[Evaluation], timeout: float | None
) -> Evaluation:
    """Returns the result of ``work``, or an unscored evaluation with the reason if it fails."""
    verdict = await attempt(work, timeout)
    if isinstance(verdict, Evaluation):
        return verdict
    if not isinstance(verdict, Exception):
        verdict = SotopiaError(f"expected an Evaluation from the evaluator, got {type(verdict).__name__}")
    reason = f"{_kind(verdict)}: {verdict}"
    logger.warning("episode %s is unscored by %s: %s", episode.key, evaluator.name, reason)
    return Evaluation(evaluator=evaluator.name, parameters=dict(evaluator.parameters), unscored=reason)


async def play_episode(
    plan: EpisodePlan,
    *,
    unfinished: Episode | None = None,
    timeout: float | None = None,
    stop: Stop | None = None,
    listeners: Sequence[TurnListener] = (),
) -> Episode | FailureRecord:
    """Plays one planned episode to its end, without evaluating it.

    Args:
        plan: the episode to play.
        unfinished: the same episode as far as it was played before. Play continues from its last turn; its turns are
            not generated again and not passed to ``listeners``.
        timeout: seconds after which the episode counts as failed; ``None`` for no limit. It takes effect where a
            policy awaits something; one that never awaits cannot be stopped.
        stop: ends the episode before its next turn.
        listeners: receive every turn that is taken.

    Returns:
        The episode, or the record of its failure. Other exceptions of a policy are not raised.

    Raises:
        BudgetExceededError: a model's ledger has reached its limit.
        DamagedRecordError: ``unfinished`` contradicts the rules.
        ModelRefusedError: a model refuses every request.
        Dropped: ``stop`` was requested before the last turn.
        Exception: any exception of a listener.
    """
    fresh = Table(plan.task, plan.rules, plan.episode_seed, key=plan.key)
    table = fresh if unfinished is None else Table.resume(unfinished)
    try:
        error = await attempt(_play(plan, table, stop, listeners), timeout)
    except _ListenerError as failure:
        raise failure.error from None
    return failure_record(plan, table, error) if isinstance(error, Exception) else table.episode()


async def _play(plan: EpisodePlan, table: Table, stop: Stop | None, listeners: Sequence[TurnListener]) -> None:
    policies = table.seat(dict(zip(plan.task.agents, plan.policies, strict=True)))
    while table.acting:
        if stop is not None:
            stop.check()
        count = len(table.turns)
        await table.step(policies)
        if listeners:
            _notify(table, count, listeners)
    if plan.rules.carry:
        table.notes = await written_notes(table, policies, plan.rules.carry)


def _notify(table: Table, count: int, listeners: Sequence[TurnListener]) -> None:
    """Hands the turns after the first ``count`` to the listeners."""
    try:
        for turn, listener in itertools.product(table.turns[count:], listeners):
            listener(turn, tuple([error for error in table.errors if error.turn == turn.turn.index]))
    except Exception as error:  # noqa: BLE001 - for example a full disk: not a failure of this episode
        raise _ListenerError(error) from None


def failure_record(plan: EpisodePlan, table: Table, error: Exception) -> FailureRecord:
    """Returns the record of an episode that ``error`` ended."""
    trace = "".join(traceback.format_exception(error)).rstrip().split("\n")
    episode = table.episode()
    return FailureRecord(
        key=plan.key,
        task=plan.task.id,
        policies=tuple(policy.name for policy in plan.policies),
        kind=_kind(error),
        message=str(error),
        traceback="\n".join(trace[-_TRACEBACK_LINES:]),
        turns=episode.turns,
        errors=episode.errors,
        culprits=tuple(policy_identity(plan.policies[plan.task.seat_of[agent]]) for agent in table.acting),
    )
