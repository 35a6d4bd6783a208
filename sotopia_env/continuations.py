"""Continuations: recorded episodes that are played on from one of their states.

A *state* is the record of an episode up to some turn (:meth:`sotopia_env.world.Episode.before`), maybe with an action
that nobody took (:meth:`sotopia_env.table.Table.fork`). Policies play it to its end, which is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.errors import InvalidValueError, Verbatim
from sotopia_env.policies.policy import Decision, Policy, turn_seed
from sotopia_env.table import Table
from sotopia_env.world.episode import Episode, Evaluator, PolicyInfo
from sotopia_env.world.observation import Observation


@dataclass(frozen=True, slots=True)
class _Redrawn:
    """A policy with the random draws of one continuation."""

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
        return await self.policy.act(observation, turn_seed(self.seed + seed, self.draw, 0))


class Continuations:
    """Plays on from states of recorded episodes.

    Attributes:
        evaluator: scores the continuations.
        seed: of the policies' random draws.
    """

    def __init__(self, policy_of: Callable[[PolicyInfo], Policy], evaluator: Evaluator, seed: int = 0) -> None:
        """Prepares; policies are made when they are needed.

        Args:
            policy_of: returns who plays on in a recorded policy's seat, such as that policy itself
                (:func:`sotopia_env.naming.policy_of`).
            evaluator: scores the continuations.
            seed: of the policies' random draws.
        """
        self.evaluator, self.seed = evaluator, seed
        self._policy_of = policy_of

    def seats(self, episode: Episode) -> dict[str, Policy]:
        """Returns who plays on from the states of an episode, by agent id.

        Raises:
            InvalidValueError: a seat has no recorded policy, or this cannot be made again.
        """
        recorded = {info.agent: info for info in episode.policies}
        for agent in episode.task.agents:
            if agent not in recorded:
                expected = f"one in every seat of {episode.key!r}"
                raise InvalidValueError(field="policies", expected=expected, got=Verbatim(f"none for {agent}"))
        return {agent: self._policy_of(info) for agent, info in recorded.items()}

    async def play(self, state: Episode, draw: int | None = None) -> Episode:
        """Returns one continuation of a state, evaluated.

        Continuation k draws alike in every state of an episode (equal seeds at equal turns), so that the difference of
        two states' scores is due to what was done and not to luck. The turn order remains that of the record.

        Args:
            state: to go on from.
            draw: number of the continuation, at least 0; ``None`` lets policies draw as in the episode itself.

        Raises:
            SotopiaError: a policy or the evaluator failed.
        """
        table, seats = Table.resume(state), self.seats(state)
        if draw is not None:
            seats = {agent: _Redrawn(policy, draw, self.seed) for agent, policy in seats.items()}
        await table.play(seats)
        await table.evaluate(self.evaluator)
        return table.episode()
