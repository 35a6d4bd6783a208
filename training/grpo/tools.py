"""The environment as tools, for those who train through TRL's ``environment_factory``.

Each action type is a tool, the partners' answers are what tools return, and TRL masks them. Two limits come with that
interface (TRL 1.16): the environment cannot end a conversation, so a model that goes on after the end is told that it
is over until its tokens are used up; and only one seat can be trained. :mod:`training.grpo.multi_turn` has neither.

A partner or an evaluator that fails leaves the episode without a reward, and TRL leaves it out of its group.

::

    factory = functools.partial(SocialEnvironment, situations, RewardSettings(scalarisation="goal"))
    GRPOTrainer(model, train_dataset=Dataset.from_list(tool_rows(situations)), environment_factory=factory, ...)
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

from sotopia_env.errors import FATAL, InvalidValueError, SotopiaError
from sotopia_env.naming import make_evaluator
from sotopia_env.quoting import quote
from sotopia_env.table import Table
from sotopia_env.world import (
    Action,
    ActionType,
    Observation,
    ParseFailure,
    Scalarisation,
    parse_possible,
    render_action,
)
from training.grpo.settings import RewardSettings
from training.grpo.situations import Situation

logger = logging.getLogger(__name__)
_REWARD = RewardSettings()
_OVER = "The conversation is over."
_TASK = "Act in this situation with the tools you have, one call at a time, until your goals are reached."


def tool_rows(situations: Sequence[Situation]) -> list[dict[str, Any]]:
    """Returns the data set's rows: one per situation; ``reset`` completes the prompt."""
    return [
        {"prompt": [{"role": "user", "content": _TASK}], "situation": number, "task": item.task.id, "seat": item.seat}
        for number, item in enumerate(situations)
    ]


class SocialEnvironment:
    """One seat's view of an episode; every public method but ``reset`` and ``get_reward`` is a tool."""

    def __init__(self, situations: Sequence[Situation], reward: RewardSettings = _REWARD) -> None:
        """Prepares; an instance plays one episode after the other.

        Args:
            situations: what the rows' numbers mean.
            reward: what an episode is worth.

        Raises:
            InvalidValueError: the reward is a reward model's, or the turns are to have rewards of their own.
        """
        if reward.model is not None or reward.credit != "episode":
            raise InvalidValueError("reward: expected an evaluator's, of whole episodes; model and credit are not read")
        self._situations = situations
        self._evaluator = make_evaluator(reward.evaluator)
        self._scalar = Scalarisation.of(reward.scalarisation)
        self._penalty = reward.invalid
        self._calls = self._refused = 0

    def reset(self, situation: int = 0, **row: Any) -> str:
        """Begins an episode and returns what the seat is told.

        Args:
            situation: its number.
            row: further columns; not read.
        """
        self._situation = self._situations[int(situation)]
        self._table = Table(self._situation.task, self._situation.rules, self._situation.seed)
        self._calls = self._refused = self._turns_read = 0
        self._error: SotopiaError | None = None
        self._let_partners_act()
        observation = self._table.observe(self._situation.seat)
        form = observation.briefing.offer_form
        return f"\n\n{observation.briefing.head}\n{self._news()}{form and chr(10)}{form}"

    def speak(self, text: str, to: list[str] | None = None, move: dict[str, Any] | None = None) -> str:
        """Says something, and may commit you by a move.

        Args:
            text: Your words.
            to: Names of those who may hear it; leave it out to speak to everybody.
            move: One of the moves open to you, as it stands in the situation; leave it out to bind yourself to nothing.

        Returns:
            What the others did then, and what is on the table.
        """
        return self._act(ActionType.SPEAK, text, to, move)

    def gesture(self, description: str) -> str:
        """Communicates without words.

        Args:
            description: The gesture or facial expression, in a few words.

        Returns:
            What the others did then.
        """
        return self._act(ActionType.NON_VERBAL, description, None)

    def do(self, description: str) -> str:
        """Does something physical.

        Args:
            description: The deed, in a few words.

        Returns:
            What the others did then.
        """
        return self._act(ActionType.ACTION, description, None)

    def leave(self) -> str:
        """Leaves the conversation for good.

        Returns:
            That it is over.
        """
        return self._act(ActionType.LEAVE, "", None)

    def get_reward(self) -> float | None:
        """Returns what the episode is worth; a conversation that was broken off counts as it stands.

        ``None`` where it has no scores, because a partner or the evaluator failed.

        Raises:
            ModelRefusedError: a partner's or an evaluator's model refuses all calls.
            BudgetExceededError: no more may be spent.
        """
        value = 0.0
        if self._error is None:
            try:
                verdict = self._evaluator.evaluate(self._table.transcript)
                value = self._scalar(verdict.vector(self._situation.seat))
            except SotopiaError as error:
                self._error = error
        if isinstance(self._error, FATAL):
            raise self._error  # out of a tool TRL would not let it
        if self._error is not None:
            logger.warning("an episode without a reward: %s", self._error)
            return None
        return value + self._penalty * self._refused / max(1, self._calls)

    # --- not tools --------------------------------------------------------------------------------------------

    def _act(self, kind: ActionType, text: str, to: list[str] | None, move: dict[str, Any] | str | None = None) -> str:
        if self._over:
            return _OVER
        self._calls += 1
        observation = self._table.observe(self._situation.seat)
        action = _read(kind, text, to, move, observation)
        problem = action.reason if isinstance(action, ParseFailure) else observation.move_problem(action)
        if isinstance(action, ParseFailure) or problem is not None:
            self._refused += 1
            return f"That is not possible: {quote(str(problem))}"
        self._table.answer(self._situation.seat, action)
        self._let_partners_act()
        return self._news()

    @property
    def _over(self) -> bool:
        return self._table.stop is not None or self._error is not None

    def _news(self) -> str:
        seat = self._situation.seat
        observation = self._table.observe(seat)
        turns, names = observation.turns, self._situation.task.names
        new = [
            render_action(turn.actor, turn.action, names, turn.effect)
            for turn in turns[self._turns_read :]
            if turn.actor != seat
        ]
        self._turns_read = len(turns)
        stands = [observation.table_text, observation.moves_text] if observation.moves and not self._over else []
        return "\n".join([*(new or ["Nobody did anything."]), *stands, *([_OVER] if self._over else [])])

    def _let_partners_act(self) -> None:
        situation = self._situation
        others = {agent: situation.partner for agent in situation.task.agents if agent != situation.seat}
        try:
            asyncio.run(self._table.play(others))
        except SotopiaError as error:
            self._error = error


def _read(
    kind: ActionType, text: str, to: list[str] | None, move: object, observation: Observation
) -> Action | ParseFailure:
    """The action a call means, read by the same rules as any model's text."""
    answer = json.dumps({"action_type": kind.value, "argument": text, "to": to or [], "move": move})
    return parse_possible(answer, observation.available, observation.briefing.recipients)
