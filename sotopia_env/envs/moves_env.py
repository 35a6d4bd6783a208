"""Numeric forms of the environment, for learners that read no text: worths and offers in a box, moves by index.

``gymnasium.make("sotopia_env/SotopiaMoves-v0", task="bargaining", partner="boulware")`` for one seat;
``sotopia_moves_v0.env()`` and ``parallel_env()`` for all of them. Rules, partners, records and rewards are those of the
environments with texts; only observations and actions are numbers (:class:`~sotopia_env.envs.moves.NumericForm`), and
each move comes with scripted words.

In reactive order the time of an agent's next turn is left to the order. A move that is not open is a turn in which
nothing is done. The turn limit *terminates*: it is part of the game, and the turns left are in the observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sotopia_env.envs.base import EpisodeEnv, InfoDict, StepResult
from sotopia_env.envs.episode_reward import EpisodeReward, Payment
from sotopia_env.envs.fact_moves import NumericFacts, numeric_form
from sotopia_env.envs.gymnasium_env import PartnerSpec, SotopiaSingleAgentEnv
from sotopia_env.envs.moves import DEFAULT_OFFERS, DEFAULT_TASK, NumericForm
from sotopia_env.envs.options import EnvOptions, choice
from sotopia_env.envs.pettingzoo_env import SotopiaEnv, SotopiaParallelEnv
from sotopia_env.foundation.errors import check_whole
from sotopia_env.world.action import Action
from sotopia_env.world.episode import Episode, Evaluator
from sotopia_env.world.scenario import Task

DEFAULT_PARTNER = "boulware"


class SotopiaMovesEnv(gymnasium.Env[NDArray[np.float32], int]):
    """An agreement, a ballot or a task with facts, in numbers, played by one focal agent.

    Observation and actions are those of :class:`~sotopia_env.envs.moves.NumericForm`; in ballots those of
    :class:`~sotopia_env.envs.fact_moves.NumericBallot`, in tasks with facts those of
    :class:`~sotopia_env.envs.fact_moves.NumericFacts`.

    ``info["action_mask"]`` (int8) says which actions are open; :meth:`action_masks` returns the mask as truth values,
    as sb3-contrib's MaskablePPO expects.

    Args:
        task: as in :class:`~sotopia_env.envs.options.EnvOptions`; all agreements, all ballots, all games, or
            all with facts.
        partner: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.
        focal_seat: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.
        offers: the number of offers to choose from.
        options: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.

    Raises:
        InvalidValueError: an argument has an invalid value, or a task does not fit the form of the others.
    """

    metadata = EpisodeEnv.metadata

    def __init__(
        self,
        *,
        partner: PartnerSpec | Mapping[int, PartnerSpec] = DEFAULT_PARTNER,
        focal_seat: int = 0,
        offers: int = DEFAULT_OFFERS,
        **options: Unpack[EnvOptions],
    ) -> None:
        options.setdefault("task", DEFAULT_TASK)
        self.game = SotopiaSingleAgentEnv(partner=partner, focal_seat=focal_seat, **options)
        self.form = numeric_form(self.game.samples, offers)
        self.metadata, self.render_mode = self.game.metadata, self.game.render_mode
        self.observation_space = self.form.observation_space()
        self.action_space: spaces.Space[Any] = self.form.action_space()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], InfoDict]:
        """Starts an episode; arguments and exceptions are those of :meth:`SotopiaSingleAgentEnv.reset`."""
        super().reset(seed=seed)
        _, info = self.game.reset(seed=seed, options=options)
        self.form.check(self.game.episode().task)
        return self._observe(), self._with_mask(info)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, InfoDict]:
        """Takes an action by its index and plays on until it is the focal agent's turn again.

        Raises:
            InvalidActionError: ``action`` is out of range, or no episode is running.
        """
        _, reward, terminated, truncated, info = self.game.step(self.form.action(self.game.observation(), action))
        # A learner that bootstraps at truncations would value a missed deal as one that may still be reached.
        return self._observe(), reward, terminated or truncated, False, self._with_mask(info)

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns which actions are open now; bool, shape (actions,)."""
        return self.form.mask(self.game.observation())

    def render(self) -> str | None:
        """Shows the episode as :meth:`sotopia_env.envs.base.EpisodeEnv.render` does."""
        return self.game.render()

    def close(self) -> None:
        """Closes the event loop in which partners were waited for."""
        self.game.close()

    def episode(self) -> Episode:
        """Returns the record of the episode so far."""
        return self.game.episode()

    def _with_mask(self, info: InfoDict) -> InfoDict:
        return {**info, "action_mask": self.action_masks().astype(np.int8)}

    def _observe(self) -> NDArray[np.float32]:
        return self.form.numbers(self.game.observation())


class NumericEpisodeEnv(EpisodeEnv):
    """What the multi-agent numeric environments share: the spaces of all agents, and the reading of their actions.

    Each agent observes ``{"observation": …, "action_mask": …}``: the numbers of the form that :class:`SotopiaMovesEnv`
    names, and int8, shape (actions,), which actions are open to it now; only waiting is open to an agent that is not to
    act.

    Args:
        offers: the number of offers to choose from.
        action_masks: where the mask is: in each ``"observation"``; or in each ``"info"`` under ``action_mask``, so that
            an observation is the array alone, as wrappers such as SuperSuit's need it.
        options: see :class:`~sotopia_env.envs.options.EnvOptions`; all agreements, all ballots, all games, or
            all with facts.

    Raises:
        InvalidValueError: an argument has an invalid value, or a task does not fit the form of the others.
    """

    metadata = {**EpisodeEnv.metadata, "name": "sotopia_moves_v0"}  # noqa: RUF012 - as in the class above

    def __init__(
        self, *, offers: int = DEFAULT_OFFERS, action_masks: str = "observation", **options: Unpack[EnvOptions]
    ) -> None:
        check_whole("offers", offers, 2)
        self._offers = offers
        self.masks_in_infos = choice("action_masks", action_masks, ("observation", "info")) == "info"
        options.setdefault("task", DEFAULT_TASK)
        super().__init__(**options)

    @cached_property
    def form(self) -> NumericForm | NumericFacts:
        """The numbers of observations and actions, by the tasks that the environment plays."""
        return numeric_form(self.options.samples, self._offers)

    @cached_property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        """The space of observations, one object per agent."""
        return {agent: self._observation_space() for agent in self.possible_agents}

    @cached_property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        """The space of actions, one object per agent."""
        return {agent: self.form.action_space() for agent in self.possible_agents}

    @cached_property
    def state_space(self) -> spaces.Space[Any]:
        """The space of :meth:`state`."""
        return spaces.Box(-1.0, 1.0, (len(self.possible_agents) * self.form.size,), np.float32)

    def observe(self, agent: str) -> Any:
        """Returns the agent's observation: a new dictionary, or the array alone where masks are in the infos."""
        observation = self.observation(agent)
        numbers = self.form.numbers(observation)
        if self.masks_in_infos:
            return numbers
        return {"observation": numbers, "action_mask": self.form.mask(observation).astype(np.int8)}

    def state(self) -> NDArray[np.float32]:  # type: ignore[override]
        """Returns the numbers of all agents, one after another, for centralised critics."""
        return np.concatenate([self.form.numbers(self.observation(agent)) for agent in self.possible_agents])

    def _observation_space(self) -> spaces.Space[Any]:
        if self.masks_in_infos:
            return self.form.observation_space()
        mask = spaces.Box(0, 1, (self.form.actions,), np.int8)
        return spaces.Dict({"observation": self.form.observation_space(), "action_mask": mask})

    def _read_action(self, agent: str, action: object) -> Action:
        return self.form.action(self.observation(agent), action)

    def _infos(self) -> dict[str, InfoDict]:
        infos = super()._infos()
        if self.masks_in_infos:
            for agent, info in infos.items():
                info["action_mask"] = self.form.mask(self.observation(agent)).astype(np.int8)
        return infos

    def _final_result(self, payments: Mapping[str, Payment]) -> StepResult:
        result, agents = super()._final_result(payments), self.possible_agents
        # A learner that bootstraps at truncations would value a missed deal as one that may still be reached.
        return result._replace(terminations=dict.fromkeys(agents, True), truncations=dict.fromkeys(agents, False))

    def _reward_in(self, task: Task, evaluator: Evaluator | None) -> EpisodeReward:
        # Called for every task before it is played.
        self.form.check(task)
        return super()._reward_in(task, evaluator)


class SotopiaMovesAECEnv(NumericEpisodeEnv, SotopiaEnv):
    """An agreement in numbers as a PettingZoo AEC environment; arguments as in :class:`NumericEpisodeEnv`."""


class SotopiaMovesParallelEnv(NumericEpisodeEnv, SotopiaParallelEnv):
    """An agreement in numbers as a PettingZoo parallel environment; arguments as in :class:`NumericEpisodeEnv`."""
