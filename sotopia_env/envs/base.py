"""The episode behind an environment: its state, each seat's view of it, its evaluation, and PettingZoo's returns.

This module holds what all forms of the environment share; :mod:`sotopia_env.envs.pettingzoo_env` adds PettingZoo's
calling conventions, one agent at a time or all in parallel.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding

from sotopia_env.envs.actions import read_action
from sotopia_env.envs.episode_reward import EpisodeReward, Payment, outcome_on
from sotopia_env.envs.options import RENDER_MODES, CheckedOptions, EnvOptions, read_seed
from sotopia_env.envs.spaces import ActionSpace, action_space, observation_space, state_space
from sotopia_env.foundation.errors import FATAL, EvaluationError, InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.quoting import escape, escape_line
from sotopia_env.foundation.waiting import Waiter
from sotopia_env.outcomes import Menu
from sotopia_env.world.action import ACTION_TYPES, NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, StopReason
from sotopia_env.world.episode import Episode, Evaluator, Generation
from sotopia_env.world.observation import Observation
from sotopia_env.world.perception.rendering import extend_lines, render_turn
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import HIGH, LOW, zero_vector
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

ObservationDict = dict[str, Any]
"""One agent's observation as PettingZoo's tools see it; :meth:`EpisodeEnv.observation` gives the typed one.

Keys: ``text`` (everything as one prompt), ``history`` (the turns this agent witnessed, one line each), ``table`` (the
offers, votes or claims it may know of), ``moves`` (the moves open to it now, one line each with its JSON), ``turn``
(number of the coming turn, from 1; int64, shape ()) and ``available_action_types`` (int8, shape (5,), in the order of
:data:`~sotopia_env.world.action.ACTION_TYPES`; only ``none`` when it is not the agent's turn). ``table`` is empty in a
task without a protocol, ``moves`` also when it is not the agent's turn.
"""

InfoDict = dict[str, Any]
"""``acting``: whether it is the agent's turn. ``has_left``. ``reward``: the one in force, as three texts: the name of
the ``evaluator``, the ``scalarisation`` (``vector`` where seven numbers are paid), and its ``basis``, the kind of its
weakest part: ``verified`` or ``judged``. ``violation``: only if the agent's last
action, or the move in it, was not allowed, or its text held no action: the reason.

At the end: ``stop_reason``, and either ``unscored`` with the reason, or ``reward_vector`` (float32, shape (7,)) with
``measured`` (bool, shape (7,)): whether the dimension was measured; if not, the vector holds 0. In a task with a
protocol, also ``outcome``, numbers for logs as plain JSON: ``agreed``, the agent's own ``payoff`` and ``share``,
``efficiency`` and ``fairness`` (``None`` where the space is too large for exact reference
points). The terms are in :meth:`EpisodeEnv.episode`, because not every agent may know them.

With ``infos="flags"`` every info holds only ``acting``, ``has_left``, ``violation`` and ``unscored``, each as a NumPy
bool."""


class StepResult(NamedTuple):
    """The values that PettingZoo's API returns after a step, by agent."""

    rewards: dict[str, Any]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, InfoDict]


class EpisodeEnv:
    """The episode being played: its state, each seat's view of it, and its evaluation.

    Args:
        vector: whether rewards are vectors (float32, shape (7,)) instead of their scalarisation.
        options: see :class:`~sotopia_env.envs.options.EnvOptions`; ``task`` is needed here, and has a default in
            :mod:`sotopia_env.sotopia_v0`.

    Raises:
        InvalidValueError: an option is unknown or has an invalid value, or the reward needs a dimension that is not
            measured in one of the tasks.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - tools read it from the class too, and some write into it
        "name": "sotopia_v0",
        "render_modes": list(RENDER_MODES),
        "is_parallelizable": False,
        "render_fps": 1,
    }

    def __init__(self, *, vector: bool = False, **options: Unpack[EnvOptions]) -> None:
        self.options = CheckedOptions.read(options)
        self.vector = vector
        self.metadata = {**self.metadata, "is_parallelizable": _steps_in_cycles(self.options)}
        self.render_mode = self.options.render_mode
        self.possible_agents = [f"agent_{seat}" for seat in range(self.options.seats)]
        self.agents: list[str] = []
        self._np_random: np.random.Generator | None = None
        self._available = {kinds: _mask(kinds) for kinds in (self.options.rules.action_types, (ActionType.NONE,))}
        self._table: Table | None = None
        self._violations: dict[str, str] = {}
        # By agent: why its text was not an action, until the table takes its turn.
        self._unreadable: dict[str, str] = {}
        self._reward_info: dict[str, str] = {}
        # Every task is checked now, so that no episode is played for a reward that cannot be computed.
        self._reward, *_ = [self._reward_in(task, self.options.evaluator) for task in self.options.samples]
        self._failure: EvaluationError | None = None
        self._waiter = Waiter()
        # The number of turns already written in mode "human".
        self._output: int | None = None

    # Spaces are built when they are first asked for: a rollout that reads typed observations never asks.
    @cached_property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        """The space of :data:`ObservationDict`, one object per agent."""
        return {agent: observation_space() for agent in self.possible_agents}

    @cached_property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        """The space of actions (see :func:`~sotopia_env.envs.actions.read_action`), one object per agent."""
        seats, order = self.options.seats, self.options.rules.turn_order
        return {agent: action_space(seats, partial(self._menu, agent), order) for agent in self.possible_agents}

    @cached_property
    def reward_spaces(self) -> dict[str, spaces.Space[Any]]:
        """The space of reward vectors: the native ranges, in the order of the dimensions."""
        return {agent: spaces.Box(LOW, HIGH, dtype=np.float32) for agent in self.possible_agents}

    @cached_property
    def state_space(self) -> spaces.Space[Any]:
        """The space of :meth:`state`."""
        return state_space()

    def _menu(self, agent: str) -> Menu | None:
        """The moves open to ``agent`` now."""
        return None if self._table is None else self.observation(agent).moves

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A copied space has no menu (see MoveSpace.__getstate__).
        for agent, space in state.get("action_spaces", {}).items():
            if isinstance(space, ActionSpace):
                space.bind(partial(self._menu, agent))

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Returns the agent's observation space: the same object at every call."""
        return self.observation_spaces[self._checked(agent)]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Returns the agent's action space: the same object at every call."""
        return self.action_spaces[self._checked(agent)]

    def reward_space(self, agent: str) -> spaces.Space[Any]:
        """Returns the space of the agent's reward vector: the same object at every call."""
        return self.reward_spaces[self._checked(agent)]

    def observe(self, agent: str) -> ObservationDict:
        """Returns the agent's observation as a fresh dictionary."""
        observation = self.observation(agent)
        return {
            "text": observation.text,
            "history": observation.history,
            "table": observation.table_text,
            "moves": observation.moves_text,
            "turn": np.array(observation.turn, dtype=np.int64),
            "available_action_types": self._available[observation.available].copy(),
        }

    def observation(self, agent: str) -> Observation:
        """Returns the agent's typed observation, from which policies act."""
        return self.table.observe(self._checked(agent))

    @property
    def table(self) -> Table:
        """The table of the running or finished episode.

        Raises:
            InvalidValueError: ``reset`` has not been called yet.
        """
        if self._table is None:
            raise InvalidValueError("no episode has started", hint="call reset() first")
        return self._table

    @property
    def episode_state(self) -> EpisodeState:
        """The state of the running or finished episode; raises an error before ``reset``."""
        return self.table.state

    @property
    def task(self) -> Task:
        """The task being played."""
        return self.episode_state.task

    def episode(self) -> Episode:
        """Returns the record of the episode so far, with its evaluation when it has ended; without its duration."""
        # Equal seeds and actions give equal records, so the time that the caller took is left out.
        return self.table.episode().model_copy(update={"duration": 0.0})

    def state(self) -> dict[str, Any]:
        """Returns the complete state, for centralised critics; never show it to an agent.

        Keys: ``task`` (the whole task with all secrets and goals, as canonical JSON), ``history`` (all turns, one line
        each, private ones and secret votes included), ``table`` (all of it; empty without a protocol) and
        ``turn`` (number of the coming turn; int64, shape ()).
        """
        state = self.episode_state
        # Serialised once per task: it is the same in every state of every episode.
        if "json" not in state.task.memo:
            state.task.memo["json"] = canonical_json(state.task.model_dump(mode="json"))
        protocol = state.task.protocol
        return {
            "task": state.task.memo["json"],
            "history": self._history(),
            "table": "" if protocol is None else escape(protocol.table(state.table, None).text),
            "turn": np.array(len(state.turns) + 1, dtype=np.int64),
        }

    def render(self) -> str | None:
        """Shows the episode, private turns and secret votes included.

        Returns:
            In mode ``ansi``, the whole transcript. In mode ``human``, ``None``; the turns since the last call are
            written to standard output (``step`` and ``reset`` do this on their own).
        """
        if self.render_mode is None:
            gymnasium.logger.warn(f"render() needs a render_mode, one of {', '.join(RENDER_MODES)}; none was given")
            return None
        if self.render_mode == "ansi":
            return self._heading() + self._history() + self._ending()
        news = (self._heading() if self._output is None else "") + self._history(self._output or 0)
        self._output = len(self.episode_state.turns)
        if news:
            sys.stdout.write(news + self._ending())
            sys.stdout.flush()
        return None

    def close(self) -> None:
        """Closes the event loop in which evaluators were waited for."""
        self._waiter.close()

    def _checked(self, agent: str) -> str:
        if not isinstance(agent, str) or agent not in self.possible_agents:
            raise UnknownNameError(field="agent", got=agent, valid=self.possible_agents)
        return agent

    def _begin(self, seed: int | None, options: Mapping[str, Any] | None) -> StepResult:
        """Starts an episode; task and episode seed are drawn from the environment's own generator."""
        changes, seed = self.options.of_reset(options), read_seed(seed)
        if seed is not None or self._np_random is None:
            self._np_random, _ = seeding.np_random(seed)
        index = int(self._np_random.integers(len(self.options.tasks)))
        # Both are drawn even when a task is pinned, so that pinning does not shift the seeds that follow.
        episode_seed = int(self._np_random.integers(2**31))
        task = self.options.tasks[index] if changes.tasks is None else changes.tasks[episode_seed % len(changes.tasks)]
        self._reward = self._reward_in(task, changes.evaluator)
        self._reward_info = self._reward.info
        self._table = Table(task, self.options.rules, episode_seed)
        self._violations, self._unreadable, self._output, self._failure = {}, {}, None, None
        self.agents = list(self.possible_agents)
        self._render_if_human()
        return self._running_result()

    def _reward_in(self, task: Task, evaluator: Evaluator | None) -> EpisodeReward:
        return EpisodeReward.of(task, evaluator, self.options.scalarisation, self.vector)

    def _read_action(self, agent: str, action: object) -> Action | str:
        """Reads an agent's argument of ``step``."""
        return read_action(action, agent, self.task)

    def _answer(self, agent: str, action: Action | str) -> None:
        """Takes an agent's action, and notes whether it was allowed; text without an action counts as silence."""
        count = len(self.table.state.turns)
        failure = self.table.answer(agent, action)
        if failure is not None:
            self._unreadable[agent] = failure.reason
            # Half of a surrogate pair cannot be written to a record.
            text = str(action).encode("utf-8", "replace").decode()
            self.table.answer(agent, NO_ACTION, Generation(text=text, parse_failure=failure.reason))
        self._note_violations(count)

    def _note_violations(self, start: int) -> None:
        """Notes which agents' latest actions were not allowed, from the turn at index ``start`` on."""
        for turn in self.table.state.turns[start:]:
            reason = turn.violation or self._unreadable.pop(turn.actor, None)
            if reason is not None:
                self._violations[turn.actor] = reason
            elif self._violations:
                self._violations.pop(turn.actor, None)

    def _result(self) -> StepResult:
        """Returns the values for the current state; evaluates an episode that has ended."""
        stop = self.episode_state.stop
        return self._running_result() if stop is None else self._waiter.wait(self._pay())

    def _render_if_human(self) -> None:
        if self.render_mode == "human":
            self.render()

    def _running_result(self) -> StepResult:
        agents = self.possible_agents
        return StepResult(self._no_rewards(), dict.fromkeys(agents, False), dict.fromkeys(agents, False), self._infos())

    async def _pay(self) -> StepResult:
        """Evaluates the ended episode; if that fails, pays zeros or raises the error, as ``on_unscored`` says."""
        payments: Mapping[str, Payment] = {}
        try:
            payments = await self._reward.pay(self.table)
        except EvaluationError as error:
            self._failure = error
        except FATAL as error:
            self._failure = EvaluationError(f"{self._reward.evaluator.name}: {type(error).__name__}: {error}")
        return self._final_result(payments)

    def _final_result(self, payments: Mapping[str, Payment]) -> StepResult:
        stop = self.episode_state.stop
        assert stop is not None
        agents, infos = self.possible_agents, self._infos()
        if self.options.infos == "full":
            self._add_results(infos, payments, stop)
        rewards = {agent: payment.reward for agent, payment in payments.items()} or self._no_rewards()
        terminations, truncations = dict.fromkeys(agents, not stop.truncated), dict.fromkeys(agents, stop.truncated)
        return StepResult(rewards, terminations, truncations, infos)

    def _add_results(self, infos: dict[str, InfoDict], payments: Mapping[str, Payment], stop: StopReason) -> None:
        for agent, outcome in zip(infos, self._outcomes(), strict=False):
            infos[agent]["outcome"] = outcome
        for agent, info in infos.items():
            info["stop_reason"] = stop.value
            if self._failure is not None:
                info["unscored"] = str(self._failure)
            else:
                info["reward_vector"] = payments[agent].vector.copy()
                info["measured"] = payments[agent].measured

    def _infos(self) -> dict[str, InfoDict]:
        state = self.episode_state
        acting, left = frozenset(self.table.acting), state.left
        if self.options.infos == "flags":
            unscored = self._failure is not None
            return {
                agent: _flags(agent in acting, agent in left, agent in self._violations, unscored)
                for agent in self.possible_agents
            }
        infos: dict[str, InfoDict] = {
            agent: {"acting": agent in acting, "has_left": agent in left, "reward": self._reward_info.copy()}
            for agent in self.possible_agents
        }
        for agent, reason in self._violations.items():
            infos[agent]["violation"] = reason
        return infos

    def _outcomes(self) -> list[dict[str, Any]]:
        """The outcome in numbers, for every agent; empty in a task without a protocol."""
        state, protocol = self.episode_state, self.task.protocol
        if protocol is None or self.task.scenario.outcome is None:
            return []
        try:
            result = outcome_on(self.table)
        # More outcomes than can be counted: payoffs are known, but no reference points.
        except InvalidTaskError:
            turns = len(state.turns) if state.settled_after is None else state.settled_after
            agreed, payoffs = protocol.outcome(state.table).decided, protocol.payoffs(state.table, turns)
            unknown = {"share": None, "efficiency": None, "fairness": None}
            return [{"agreed": agreed, "payoff": payoff, **unknown} for payoff in payoffs]
        joint = {"efficiency": result.efficiency, "fairness": result.fairness}
        rows = zip(result.payoffs, result.shares, strict=True)
        return [{"agreed": result.agreed, "payoff": payoff, "share": share, **joint} for payoff, share in rows]

    def _no_rewards(self) -> dict[str, Any]:
        """Zero rewards; each vector is an array of its own."""
        if self.vector:
            return {agent: zero_vector() for agent in self.agents}
        return dict.fromkeys(self.agents, 0.0)

    def _raise_if_unscored(self) -> None:
        if self._failure is not None and self.options.on_unscored == "raise":
            raise self._failure

    def _heading(self) -> str:
        situation = escape("\n  ".join(self.task.scenario.context.splitlines()))
        return f"Situation: {situation}\nParticipants: {', '.join(self.task.names.values())}\n"

    def _history(self, start: int = 0) -> str:
        """All turns from ``start`` on, as lines."""
        state, lines = self.episode_state, self.table.lines
        names, by_round = state.task.names, state.rules.turn_order.veiled or state.task.phased
        extend_lines(lines, state.turns, names, by_round)
        # The lines are what other agents see; here secret votes are shown, too.
        return "".join(
            line if turn.hidden is None else render_turn(turn, names, by_round)
            for turn, line in zip(state.turns[start:], lines[start:], strict=True)
        )

    def _ending(self) -> str:
        state = self.episode_state
        if state.stop is None:
            return ""
        protocol = state.task.protocol
        outcome = "" if protocol is None else f"{escape_line(protocol.outcome(state.table).reason)}\n"
        return f"The episode ended: {state.stop.value}.\n{outcome}"


def _steps_in_cycles(options: CheckedOptions) -> bool:
    """Whether every agent acts in every round, which PettingZoo's ``aec_to_parallel`` needs."""
    rules = options.rules
    if rules.turn_order is TurnOrder.SIMULTANEOUS and any(task.phased for task in options.samples):
        return False
    stays = options.seats == 2 or ActionType.LEAVE not in rules.action_types
    return stays and rules.turn_order is TurnOrder.SIMULTANEOUS


def _flags(acting: bool, has_left: bool, violation: bool, unscored: bool) -> InfoDict:
    flags = {"acting": acting, "has_left": has_left, "violation": violation, "unscored": unscored}
    return {name: np.bool_(value) for name, value in flags.items()}


def _mask(kinds: tuple[ActionType, ...]) -> np.ndarray[Any, np.dtype[np.int8]]:
    return np.array([kind in kinds for kind in ACTION_TYPES], dtype=np.int8)
