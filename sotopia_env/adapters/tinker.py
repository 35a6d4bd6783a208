"""tinker-cookbook's ``MessageEnv`` over a seat, or over each seat of one episode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from sotopia_env.adapters.seat import Answer, Messages, Seats, TextSeat
from sotopia_env.foundation.extras import extra
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType

with extra("tinker"):
    from tinker_cookbook.renderers import get_text_content
    from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
    from tinker_cookbook.rl.types import InitialObservationOverflow


class SharedSeats:
    """The seats of one episode, each played by a coroutine of its own; they wait for each other.

    Attributes:
        seats: the seats.
    """

    def __init__(self, seats: Seats) -> None:
        self.seats = seats
        self._answered = asyncio.Condition()
        self._waiting: dict[str, Answer] = {}  # answers that were taken, by agents that wait for their next turn

    async def begin(self, seat: TextSeat) -> Messages:
        """Waits until it is the turn of ``seat``, and returns the conversation so far.

        Raises:
            PolicyError: a partner produced no action.
            EvaluationError: the episode has ended and could not be scored.
        """
        async with self._answered:
            await self._wait(seat)
        return list(seat.table.observe(seat.agent).messages)

    async def say(self, seat: TextSeat, answer: Answer, finish_reason: str = "") -> tuple[Messages, bool]:
        """Takes an answer of ``seat``, and waits until it is its turn again or the episode has ended.

        Exceptions are those of :meth:`TextSeat.say`, also where another seat's answer came before the failure. The
        call can be repeated, as there.

        Returns:
            The messages that are new to the seat, and whether the episode has ended.
        """
        async with self._answered:
            if self._waiting.get(seat.agent) != answer:
                try:
                    await seat.say(answer, finish_reason)
                finally:  # after a failure too: it is everybody's
                    self._answered.notify_all()
                self._waiting[seat.agent] = answer
            await self._wait(seat)
            self._waiting.pop(seat.agent, None)
        return seat.news(), seat.done

    async def leave(self, seat: TextSeat) -> None:
        """Lets the others go on without a seat whose turn it is; does nothing after the end."""
        async with self._answered:
            if seat.agent in seat.table.acting:
                seat.take(Action(ActionType.LEAVE))
            await self.seats.play()
            self._answered.notify_all()

    async def _wait(self, seat: TextSeat) -> None:
        # Only an answer changes whose turn it is, so nobody else notifies.
        while (acting := await self.seats.play()) and seat not in acting:
            await self._answered.wait()


class SeatMessageEnv(MessageEnv):
    """One seat of an episode; wrap it in tinker-cookbook's ``EnvFromMessageEnv`` with a renderer.

    Args:
        seat: a seat before its ``begin``.
        by_turn: whether each step pays the change that it caused, of the kind that ``turns`` of the seat names
            (:mod:`sotopia_env.evaluators.turn_rewards`); by default the last step pays the reward of the episode.
        shared: all seats of the episode, if other environments play some of them; see :func:`seat_envs`.
    """

    def __init__(self, seat: TextSeat, by_turn: bool = False, shared: SharedSeats | None = None) -> None:
        self.seat = seat
        self._by_turn, self._shared = by_turn, shared or SharedSeats(seat.seats)
        self._messages: list[Any] = []

    async def initial_observation(self) -> list[Any]:
        """Returns the conversation before the seat's first turn."""
        self._messages = await self._shared.begin(self.seat)
        return self._messages

    async def step(self, message: Any) -> MessageStepResult:
        """Takes the model's message; returns the whole conversation, the reward and, at the end, the scores.

        Raises:
            PolicyError: a partner failed for good; ``rollout_error_tolerance`` of tinker-cookbook's configuration
                says what becomes of the group.
            EvaluationError: the evaluator did.
        """
        news, done = await self._shared.say(self.seat, get_text_content(message))
        if self._by_turn:
            await self.seat.seats.measure()
        self._messages = [*self._messages, message, *news]
        reward = self.seat.step_reward(by_turn=self._by_turn)
        return MessageStepResult(reward, done, self._messages, metrics=dict(self.seat.scores))

    async def leave(self) -> None:
        """Leaves the episode; does nothing after its end."""
        await self._shared.leave(self.seat)


class SharedEnv(EnvFromMessageEnv):
    """tinker-cookbook's environment of a seat that leaves the episode when one of its limits ends the rollout.

    Otherwise the other seats would wait for it forever.
    """

    message_env: SeatMessageEnv

    async def initial_observation(self) -> Any:
        """Implements tinker-cookbook's ``Env``."""
        result = await super().initial_observation()
        if isinstance(result, InitialObservationOverflow):
            await self.message_env.leave()
        return result

    async def step(self, action: Any, **options: Any) -> Any:
        """Implements tinker-cookbook's ``Env``."""
        result = await super().step(action, **options)
        if result.episode_done:
            await self.message_env.leave()
        return result


def seat_envs(seats: Seats, renderer: Any, by_turn: bool = False, **limits: Any) -> list[SharedEnv]:
    """Returns an environment for each seat of an episode; they must be played at the same time, as in one group.

    Args:
        seats: the seats of a new episode.
        renderer: tinker-cookbook's.
        by_turn: as in :class:`SeatMessageEnv`.
        limits: options of ``EnvFromMessageEnv``.
    """
    shared = SharedSeats(seats)
    return [SharedEnv(renderer, SeatMessageEnv(seat, by_turn, shared), **limits) for seat in seats.values()]


def role_baselines(trajectories: Sequence[Any], envs: Sequence[SharedEnv]) -> list[tuple[float, dict[str, float]]]:
    """Returns what ``compute_group_rewards`` adds, so that a reward is compared with those of its seat alone.

    tinker-cookbook subtracts the mean over the whole group, in which all seats of some episodes of one task are; this
    mean is 0 then.
    """
    totals: dict[str, list[float]] = {}
    for trajectory, env in zip(trajectories, envs, strict=True):
        total = sum(transition.reward for transition in trajectory.transitions)
        totals.setdefault(env.message_env.seat.agent, []).append(total)
    return [(-fmean(totals[env.message_env.seat.agent]), {}) for env in envs]
