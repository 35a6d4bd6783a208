"""The PettingZoo API on top of the rules of :mod:`sotopia_env.world.dynamics`.

:class:`SotopiaEnv` lets agents act one at a time, :class:`SotopiaParallelEnv` takes a dictionary of actions; both are
thin wrappers of :class:`~sotopia_env.envs.base.EpisodeEnv`. Each pays a scalar reward or, with ``vector=True``, the
vector of the seven dimensions.

An agent that leaves an episode of three or more seats stays in ``agents``, so that the reward at the end reaches it,
but it is not selected again; ``infos[agent]["has_left"]`` says so. All agents end together: *terminated* when the
situation ended, *truncated* at a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo.utils.env import AECEnv, ParallelEnv  # type: ignore[import-untyped]
from pettingzoo.utils.wrappers import OrderEnforcingWrapper  # type: ignore[import-untyped]

from sotopia_env.envs.base import EpisodeEnv, InfoDict, ObservationDict, StepResult
from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.world.action import Action
from sotopia_env.world.dynamics import StopReason, check_recipients
from sotopia_env.world.play.policy import Policy


class SotopiaEnv(EpisodeEnv, AECEnv[str, ObservationDict, Any]):  # type: ignore[misc]
    """SOTOPIA as a PettingZoo AEC environment; arguments as in :class:`EpisodeEnv`.

    ``step`` takes an :class:`~sotopia_env.world.action.Action`, a mapping, or a model's text
    (:func:`~sotopia_env.envs.actions.read_action`); text that holds no action is a turn in which nothing is done, and
    ``infos[agent]["violation"]`` says why. The reward is paid once, at the end, to every agent.
    """

    agent_selection: str
    terminations: dict[str, bool]
    truncations: dict[str, bool]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Starts an episode.

        Args:
            seed: seeds the environment's generator anew; ``None`` continues with the current one.
            options: for this episode, ``{"task": …}`` pins the task (a Task, the id of one, or a name as in the
                constructor) and ``{"evaluator": …}`` sets the evaluator.

        Raises:
            InvalidValueError: the seed or an option is invalid or unknown; the running episode is not changed.
        """
        result = self._begin(seed, options)
        self._cumulative_rewards = self._no_rewards()
        self._skip_agent_selection = None
        self._publish(result, self.episode_state.actor)

    def step(self, action: object) -> None:
        """Takes the selected agent's action; ``None`` for an agent that has ended.

        Raises:
            InvalidActionError: the action is malformed, or all agents have ended; nothing changes.
            EvaluationError: the episode has ended and its evaluator failed (``on_unscored="raise"``); all agents
                are terminated or truncated then, with zero rewards and ``infos[agent]["unscored"]``.
        """
        if self.take(action) is not None:
            self._end(self._waiter.wait(self._pay()))

    def take(self, action: object) -> StopReason | None:
        """Takes the action as :meth:`step` does, without evaluating an episode that ends with it.

        Returns:
            Why the episode ended with the action; ``None`` if it did not.
        """
        if not self.agents:
            raise InvalidActionError("no agent is left to act", hint="call reset() first")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if action is not None:
                raise InvalidActionError(
                    field="action", expected="None, the episode has ended", hint="step(None) or reset()"
                )
            self._was_dead_step(None)
            return None
        self._answer(agent, self._read_action(agent, action))
        return self._after_turn()

    async def play(self, policies: Mapping[str, Policy]) -> None:
        """Lets policies act for their agents until another agent must, and evaluates the episode if it has ended.

        Raises:
            PolicyError: a policy produced no action; call ``play`` again, or ``reset``.
            EvaluationError: as in :meth:`step`.
        """
        count = len(self.episode_state.turns)
        try:
            await self.table.play(policies)
        finally:
            self._note_violations(count)
        if self._after_turn() is not None:
            self._end(await self._pay())

    def _after_turn(self) -> StopReason | None:
        state = self.episode_state
        # Rewards stay zero and no agent has ended, as after reset(): only infos and the selection change.
        if state.stop is None:
            self._select(state.waiting[0])
        return state.stop

    def _end(self, result: StepResult) -> None:
        self._publish(result, None)
        self._render_if_human()
        self._accumulate_rewards()
        self._raise_if_unscored()

    def _select(self, actor: str) -> None:
        self.infos = self._infos()
        self.agent_selection = actor
        self._render_if_human()

    def _publish(self, result: StepResult, actor: str | None) -> None:
        self.rewards, self.infos = result.rewards, result.infos
        self.terminations, self.truncations = result.terminations, result.truncations
        self.agent_selection = actor or self.agents[0]

    def _clear_rewards(self) -> None:
        self.rewards = self._no_rewards()

    def _accumulate_rewards(self) -> None:
        # Not in place, because a caller may still use the arrays of an earlier step.
        self._cumulative_rewards = {
            agent: total + self.rewards[agent] for agent, total in self._cumulative_rewards.items()
        }


class SotopiaParallelEnv(EpisodeEnv, ParallelEnv[str, ObservationDict, Any]):  # type: ignore[misc]
    """SOTOPIA as a PettingZoo parallel environment; arguments as in :class:`EpisodeEnv`.

    In simultaneous order a step is a round: every agent that has not left acts. In reactive order a step is a tick of
    the clock: only agents with ``infos[agent]["acting"]`` act, and the actions of others are not read. In the remaining
    orders a step is one turn of one agent.
    """

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, ObservationDict], dict[str, InfoDict]]:
        """Starts an episode (see :meth:`SotopiaEnv.reset`) and returns observations and infos."""
        result = self._begin(seed, options)
        return self._observations(), result.infos

    def step(
        self, actions: Mapping[str, object]
    ) -> tuple[dict[str, ObservationDict], dict[str, Any], dict[str, bool], dict[str, bool], dict[str, InfoDict]]:
        """Takes the acting agents' actions; those of others are not read.

        Returns:
            Observations, rewards, terminations, truncations and infos by agent; all empty when no agent is left.

        Raises:
            InvalidActionError: an action is missing or malformed; nothing changes.
            EvaluationError: as in :meth:`SotopiaEnv.step`; ``agents`` is empty then.
        """
        table = self.table
        if not isinstance(actions, Mapping):
            raise InvalidActionError(field="actions", expected="a mapping of agents to actions", got=type(actions))
        for agent in actions:
            self._checked(agent)
        if not self.agents:
            return {}, {}, {}, {}, {}
        for agent, action in self._read(actions).items():
            self._answer(agent, action)
        result = self._result()
        self._render_if_human()
        if table.stop is not None:
            self.agents = []
            self._raise_if_unscored()
        return self._observations(), result.rewards, result.terminations, result.truncations, result.infos

    def _read(self, actions: Mapping[str, object]) -> dict[str, Action | str]:
        """Reads the actions of all acting agents before any of them is taken."""
        acting = self.table.acting
        for agent in acting:
            if agent not in actions:
                raise InvalidActionError(
                    field="actions", expected=f"one for {agent}, whose turn it is", got=list(actions)
                )
        parsed = {agent: self._read_action(agent, actions[agent]) for agent in acting}
        # Also checked before the first action is taken, so that an error leaves the episode as it was.
        for action in parsed.values():
            if isinstance(action, Action):
                check_recipients(self.task, action)
        return parsed

    def _observations(self) -> dict[str, ObservationDict]:
        return {agent: self.observe(agent) for agent in self.possible_agents}


class OrderEnforced(OrderEnforcingWrapper):  # type: ignore[misc]
    """PettingZoo's order-enforcing wrapper, with direct access to the attributes that a loop reads on every turn.

    The inherited class finds each attribute by failing to find it on itself first, several times a turn, which costs
    more than rendering an observation.
    """

    @property
    def agents(self) -> list[str]:
        """The agents of the running episode; raises an error before ``reset``."""
        return self._ordered().agents

    @property
    def agent_selection(self) -> str:
        """The agent whose turn it is; raises an error before ``reset``."""
        return self._ordered().agent_selection

    def last(self, observe: bool = True) -> tuple[ObservationDict | None, Any, bool, bool, InfoDict]:
        """Returns observation, cumulative reward, termination, truncation and info of the selected agent."""
        return self._ordered().last(observe)  # type: ignore[no-any-return]

    def _ordered(self) -> SotopiaEnv:
        if not self._has_reset:
            raise AttributeError("no episode has started; call reset() first")
        env: SotopiaEnv = self.env
        return env
