"""SkyRL-gym's ``BaseTextEnv`` over a seat; SkyRL trains each turn on the reward of its own step."""

from __future__ import annotations

from typing import Any

from sotopia_env.adapters.rows import refuse_unknown
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.waiting import wait

with extra("skyrl"):
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput


class SeatTextEnv(BaseTextEnv):
    """One seat of an episode; its entry point in SkyRL is ``sotopia_env.adapters.skyrl:SeatTextEnv``.

    Args:
        env_config: ``rewards``: ``"turn"`` pays each step the exact change that it caused; the sum is the episode's
            reward minus the standing before the seat's first turn
            (:func:`sotopia_env.evaluators.turn_rewards.standing_rewards`), or with a column ``turns`` of ``belief`` the
            change of what the others believe; ``"episode"``, the default, pays the whole reward at the end.
        extras: a row of the data set, with the columns of :func:`sotopia_env.adapters.rows`.

    Raises:
        UnknownNameError: a name is misspelt.
        InvalidValueError: the row has no task, or a column is invalid.
    """

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.seat = TextSeat.of(extras or {})
        self.max_turns = self.seat.table.state.rules.turn_limit(self.seat.table.task) or 100
        config = {"rewards": "episode", **(env_config or {})}
        refuse_unknown("env_config", config, ["rewards"])
        refuse_unknown("env_config.rewards", [config["rewards"]], ["episode", "turn"])
        self._by_turn = config["rewards"] == "turn"

    def init(self, prompt: Any) -> tuple[list[Any], dict[str, Any]]:
        """Returns the conversation before the seat's first turn, in place of the row's prompt."""
        return wait(self.seat.begin()), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Takes the model's text; returns the messages that are new to it, and the reward.

        Raises:
            PolicyError: a partner failed for good; SkyRL has no step without a reward.
            EvaluationError: the evaluator did.
        """
        news, done = wait(self.seat.say(action))
        if self._by_turn:
            wait(self.seat.seats.measure())
        reward = self.seat.step_reward(by_turn=self._by_turn)
        metadata = {**self.seat.info, "scores": dict(self.seat.scores)}
        return BaseTextEnvStepOutput(observations=news, reward=reward, done=done, metadata=metadata)

    def get_metrics(self) -> dict[str, Any]:
        """The number of turns of the episode, and of the seat's texts that were not actions."""
        return {name: self.seat.info[name] for name in ("turns", "failed_turns")}
