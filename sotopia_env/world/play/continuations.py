"""Continuations of recorded episodes from one of their states.

A *state* is the record of an episode up to some turn (:meth:`sotopia_env.world.episode.Episode.before`), possibly with
another action than the recorded one (:meth:`sotopia_env.world.play.table.Table.fork`). Policies play it to its end,
which is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.world.episode import Episode, Evaluator, PolicyInfo
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision, Policy, turn_seed
from sotopia_env.world.play.table import Table


@dataclass(frozen=True, slots=True)
class _Redrawn:
    """A policy with the random seed of one continuation."""

    policy: Policy
    draw: int
    seed: int

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.policy.parameters

    async def act(self, observation: Observation, seed: int) -> Decision:
        # ``seed`` already depends on the episode, the turn and the seat.
        return await self.policy.act(observation, turn_seed(self.seed + seed, self.draw, 0))


class Continuations:
    """Plays continuations of recorded episodes.

    Attributes:
        evaluator: scores the continuations.
        seed: the seed of the policies' random draws.
    """

    def __init__(self, policy_of: Callable[[PolicyInfo], Policy], evaluator: Evaluator, seed: int = 0) -> None:
        """Stores the arguments; policies are made when they are needed.

        Args:
            policy_of: returns the policy that continues in the seat of a recorded policy, such as the recorded policy
                itself (:func:`sotopia_env.naming.recorded.policy_of`).
            evaluator: scores the continuations.
            seed: the seed of the policies' random draws.
        """
        self.evaluator, self.seed = evaluator, seed
        self._policy_of = policy_of

    def seats(self, episode: Episode) -> dict[str, Policy]:
        """Returns the policies that continue the states of an episode, by agent id.

        Raises:
            InvalidValueError: a seat has no recorded policy, or the recorded policy cannot be made again.
        """
        recorded = {info.agent: info for info in episode.policies}
        for agent in episode.task.agents:
            if agent not in recorded:
                expected = f"one in every seat of {episode.key!r}"
                raise InvalidValueError(field="policies", expected=expected, got=Verbatim(f"none for {agent}"))
        return {agent: self._policy_of(info) for agent, info in recorded.items()}

    async def play(self, state: Episode, draw: int | None = None) -> Episode:
        """Returns one continuation of a state, evaluated.

        Continuation k uses the same random draws in every state of an episode (equal seeds at equal turns), so that two
        states' scores differ because of the actions and not by chance. The turn order is that of the record.

        Args:
            state: the state to continue from.
            draw: the number of the continuation, at least 0; ``None`` uses the draws of the recorded episode.

        Raises:
            SotopiaError: a policy or the evaluator failed.
        """
        table, seats = Table.resume(state), self.seats(state)
        if draw is not None:
            seats = {agent: _Redrawn(policy, draw, self.seed) for agent, policy in seats.items()}
        await table.play(seats)
        await table.evaluate(self.evaluator)
        return table.episode()

    async def samples(self, state: Episode, count: int) -> list[Episode]:
        """Returns ``count`` continuations of a state, or one if the episode has ended there.

        Raises:
            SotopiaError: a policy or the evaluator failed.
        """
        # After the end nothing is left to play, so all samples would be equal.
        draws = range(count if state.stop is None else 1)
        return await all_at_once(self.play(state, draw) for draw in draws)
