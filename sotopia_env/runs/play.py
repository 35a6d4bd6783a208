"""The play of one episode, from the first turn to the verdict, whatever its policies and its evaluator do.

The episode is driven over the pure core (:func:`~sotopia_env.world.dynamics.transition` and
:class:`~sotopia_env.world.observation.SeatView`), the same transition that the PettingZoo environment steps; the
environment's own state is for synchronous learners and would only cost time here.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeVar

from sotopia_env.errors import FATAL, PolicyError, SotopiaError
from sotopia_env.policies.policy import Decision, turn_seed
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.stopping import EpisodeDropped, Stop
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.dynamics import EpisodeState, TurnOrder, initial_state, transition
from sotopia_env.world.episode import (
    Episode,
    EpisodeError,
    Evaluation,
    Evaluator,
    PolicyInfo,
    RecordedTurn,
    Transcript,
)
from sotopia_env.world.observation import SeatView

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_TRACEBACK_LINES = 12


class Watcher(Protocol):
    """Observer of episodes while they are played."""

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """A turn was taken."""
        ...

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """An episode is done (and evaluated, where it is to be), or there is none, and why."""
        ...


class _EpisodeRun:
    """One episode being played; holds the turns so far when a policy fails half-way."""

    __slots__ = ("_errors", "_lines", "_stop", "_views", "_watcher", "plan", "started", "state", "turns")

    def __init__(self, plan: EpisodePlan, stop: Stop | None = None, watcher: Watcher | None = None) -> None:
        self.plan = plan
        self._stop = stop
        self._watcher = watcher
        self.state: EpisodeState = initial_state(plan.task, plan.rules, plan.episode_seed)
        self.turns: list[RecordedTurn] = []
        self._errors: list[EpisodeError] = []
        self._views: dict[str, SeatView] = {}
        self._lines: list[str] = []
        self.started = time.perf_counter()

    async def play(self) -> None:
        """Plays to the end."""
        if self.plan.rules.turn_order is TurnOrder.SIMULTANEOUS:
            while self.state.waiting:
                self._check_stop()
                await self._play_round()
            return
        while self.state.waiting:
            self._check_stop()
            self._take(await self._ask(self.state.waiting[0]))

    def _check_stop(self) -> None:
        if self._stop is not None and self._stop.reason:
            raise EpisodeDropped(self._stop.reason)

    async def _play_round(self) -> None:
        """Asks all seats of a simultaneous round at once; none of them can see the others' actions of the round."""
        requests = [asyncio.ensure_future(self._ask(agent)) for agent in self.state.waiting]
        try:
            decisions = await asyncio.gather(*requests)
        except BaseException:
            for task in requests:
                task.cancel()
            await asyncio.gather(*requests, return_exceptions=True)  # their cost is booked before the run ends
            raise
        for decision in decisions:
            self._take(decision)

    def _ask(self, agent: str) -> Coroutine[Any, Any, Decision]:
        plan, state = self.plan, self.state
        view = self._views.get(agent)
        if view is None:
            view = self._views[agent] = SeatView(plan.task, plan.rules, agent, self._lines)
        seat = plan.task.seat_of[agent]
        seed = turn_seed(plan.episode_seed, len(state.turns), seat)
        return plan.policies[seat].act(view.observe(state), seed)

    def _take(self, decision: Decision) -> None:
        if decision.__class__ is not Decision:
            raise PolicyError(f"expected a Decision from the policy, got {type(decision).__name__}")
        self.state = transition(self.state, decision.action)
        # Now and not at the end: episodes that began together end together, and their last steps would queue up.
        self.turns.append(RecordedTurn(turn=self.state.turns[-1], generation=decision.generation))
        if decision.errors:
            index = self.turns[-1].turn.index
            self._errors += [error.model_copy(update={"turn": index}) for error in decision.errors]
        if self._watcher is not None:
            self._watcher.turn(self.plan, self.turns[-1])

    def record(self) -> Episode:
        """The finished episode, not evaluated yet."""
        plan, state = self.plan, self.state
        seats = zip(plan.task.agents, plan.policies, strict=True)
        return Episode(
            key=plan.key,
            task=plan.task,
            rules=plan.rules,
            seed=plan.episode_seed,
            policies=tuple(PolicyInfo(agent=a, name=p.name, parameters=dict(p.parameters)) for a, p in seats),
            turns=tuple(self.turns),
            stop=state.stop,
            errors=tuple(self._errors),
            duration=time.perf_counter() - self.started,
        )

    def failure(self, error: Exception) -> FailureRecord:
        """The record of an episode that ``error`` ended."""
        trace = "".join(traceback.format_exception(error)).rstrip().split("\n")
        return FailureRecord(
            key=self.plan.key,
            task=self.plan.task.id,
            policies=tuple(policy.name for policy in self.plan.policies),
            kind=_kind(error),
            message=str(error),
            traceback="\n".join(trace[-_TRACEBACK_LINES:]),
            turns=tuple(self.turns),
            errors=tuple(self._errors),
        )


class _OutOfTimeError(SotopiaError):
    """The time limit of one episode or of its evaluation was reached."""


def _kind(error: Exception) -> str:
    return "Timeout" if isinstance(error, _OutOfTimeError) else type(error).__name__


async def _attempt(work: Awaitable[_T], timeout: float | None) -> _T | Exception:
    """Returns what ``work`` returns, or the exception that ended it.

    This is the package's one catch-all: a policy or an evaluator is foreign code, and whatever goes wrong in one
    episode must be recorded with it and leave its siblings alone. Cancellation and Ctrl-C are not ``Exception`` and
    pass; so do the end of the budget and of the run, and a model that refuses every request, which are no failure of
    this episode.
    """
    try:
        async with asyncio.timeout(timeout) as limit:
            return await work
    except (*FATAL, EpisodeDropped):
        raise
    except Exception as error:  # noqa: BLE001
        if isinstance(error, TimeoutError) and limit.expired():
            return _OutOfTimeError(f"not finished within {timeout:g} s")
        return error


async def evaluate_episode(episode: Episode, evaluator: Evaluator, timeout: float | None = None) -> Episode:
    """Returns the episode with this evaluator's verdict; a failure of the evaluator makes it *unscored*, with why.

    Raises:
        BudgetExceededError: a model's ledger has reached its limit; the episode is as it was.
        ModelRefusedError: a model refuses every request; likewise.
    """
    verdict = await _attempt(evaluator.evaluate_async(Transcript.of_episode(episode)), timeout)
    if isinstance(verdict, Evaluation):
        return episode.with_evaluation(verdict)
    if not isinstance(verdict, Exception):
        verdict = SotopiaError(f"expected an Evaluation from the evaluator, got {type(verdict).__name__}")
    reason = f"{_kind(verdict)}: {verdict}"
    logger.warning("episode %s is unscored by %s: %s", episode.key, evaluator.name, reason)
    evaluation = Evaluation(evaluator=evaluator.name, parameters=dict(evaluator.parameters), unscored=reason)
    return episode.with_evaluation(evaluation)


async def play_episode(
    plan: EpisodePlan, *, timeout: float | None = None, stop: Stop | None = None, watcher: Watcher | None = None
) -> Episode | FailureRecord:
    """Plays one planned episode to its end, without evaluating it.

    Args:
        plan: what to play.
        timeout: seconds after which it counts as failed; ``None`` waits for ever. It takes effect where a policy
            awaits something; one that never does cannot be stopped.
        stop: ends the episode before its next turn.
        watcher: gets every turn.

    Returns:
        The episode, or the record of its failure. No other exception of a policy leaves this function.

    Raises:
        BudgetExceededError: a model's ledger has reached its limit.
        ModelRefusedError: a model refuses every request.
        EpisodeDropped: ``stop`` was asked for before the last turn.
    """
    episode = _EpisodeRun(plan, stop, watcher)
    error = await _attempt(episode.play(), timeout)
    return episode.failure(error) if isinstance(error, Exception) else episode.record()
