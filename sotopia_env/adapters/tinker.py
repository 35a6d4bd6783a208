"""tinker-cookbook's ``MessageEnv`` over a seat."""

from __future__ import annotations

from typing import Any

from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.extras import extra

with extra("tinker"):
    from tinker_cookbook.renderers import get_text_content
    from tinker_cookbook.rl.message_env import MessageEnv, MessageStepResult


class SeatMessageEnv(MessageEnv):
    """One seat of an episode; wrap it in tinker-cookbook's ``EnvFromMessageEnv`` with a renderer.

    Args:
        seat: a seat before its ``begin``.
        by_turn: whether each step pays the change that it caused, of the kind that ``turns`` of the seat names
            (:mod:`sotopia_env.evaluators.turn_rewards`); by default the last step pays the reward of the episode.
    """

    def __init__(self, seat: TextSeat, by_turn: bool = False) -> None:
        self.seat = seat
        self._by_turn = by_turn
        self._messages: list[Any] = []

    async def initial_observation(self) -> list[Any]:
        """Returns the conversation before the seat's first turn."""
        self._messages = list(await self.seat.begin())
        return self._messages

    async def step(self, message: Any) -> MessageStepResult:
        """Takes the model's message; returns the whole conversation, the reward and, at the end, the scores.

        Raises:
            PolicyError: a partner failed for good; ``rollout_error_tolerance`` of tinker-cookbook's configuration
                says what becomes of the group.
            EvaluationError: the evaluator did.
        """
        news, done = await self.seat.say(get_text_content(message))
        if self._by_turn:
            await self.seat.seats.measure()
        self._messages = [*self._messages, message, *news]
        reward = self.seat.step_reward(by_turn=self._by_turn)
        return MessageStepResult(reward, done, self._messages, metrics=dict(self.seat.scores))
