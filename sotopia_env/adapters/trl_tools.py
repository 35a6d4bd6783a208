"""TRL's ``environment_factory``: a seat whose actions are tools that a model calls.

TRL makes one environment for each generation, calls ``reset`` with a row of the data set, offers the public methods as
tools, and reads ``get_reward`` at the end. Three limits are TRL's: a tool cannot end a conversation, an exception in a
tool is a text that the model reads, and only one seat is trained. The ``rollout_func`` of
:mod:`sotopia_training.grpo.seats` has neither tools nor the first two limits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sotopia_env.adapters.failures import is_failure
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.foundation.waiting import wait

_OVER = "The conversation is over."


class SeatTools:
    """One seat of an episode as tools; the class itself is the ``environment_factory``."""

    _seat: TextSeat
    _error: Exception | None = None

    def reset(self, **row: Any) -> str:
        """Starts the episode of a row (:func:`sotopia_env.adapters.rows`).

        Returns:
            What the seat reads before its first turn, which TRL appends to the row's prompt.
        """
        self._seat, self._error = TextSeat.of(row), None
        wait(self._seat.begin())
        observation = self._seat.table.observe(self._seat.agent)
        return f"\n\n{observation.briefing.head}\n{observation.messages[-1]['content']}"

    def speak(self, text: str, move: dict | None = None) -> str:  # type: ignore[type-arg]
        """Says something, optionally with a binding move.

        Args:
            text: Your words.
            move: One of the moves open to you; omit it to make no commitment.

        Returns:
            What the others did then.
        """
        return self._act({"action_type": "speak", "argument": text, **({"move": move} if move else {})})

    def do(self, action: str) -> str:
        """Does something other than speaking.

        Args:
            action: What you do, in a few words.

        Returns:
            What the others did then.
        """
        return self._act({"action_type": "action", "argument": action})

    def leave(self) -> str:
        """Leaves the conversation for good.

        Returns:
            A note that the conversation is over.
        """
        return self._act({"action_type": "leave"})

    def get_reward(self) -> float | None:
        """Returns the reward; for a conversation that has not ended, the worth of its moves so far.

        ``None``, which TRL leaves out of the group's baseline, after a failure of a partner or the evaluator. An error
        that is not of this episode alone is raised here, because TRL does not let a tool raise it.
        """
        if self._error is not None and not is_failure(self._error):
            raise self._error
        with suppress(EvaluationError):  # the result says why there is no reward
            wait(self._seat.end())
        return self._seat.result.value

    def _act(self, action: dict[str, Any]) -> str:
        if self._seat.done or self._error is not None:
            return _OVER
        try:
            news, done = wait(self._seat.say(action))
        except Exception as error:
            self._error = error
            if is_failure(error):
                return _OVER  # and not the error, which the model could learn to bring about
            raise  # TRL shows it to the model, and get_reward raises it again
        return _OVER if done else str(news[-1]["content"])
