"""A Gymnasium environment for one focal seat; partner policies take the other seats and act within ``step``.

``gymnasium.make("sotopia_env/Sotopia-v0", partner=..., focal_seat=...)``. With ``first_seat`` the focal agent or a
partner opens, so both speaking orders are possible whichever seat the focal agent has. ``step`` blocks while partners
think; several environments at once are :class:`~sotopia_env.envs.vector_env.SotopiaVectorEnv`, or coroutines that await
``begin`` and ``advance``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import gymnasium

from sotopia_env.envs.base import EpisodeEnv, InfoDict, ObservationDict
from sotopia_env.envs.defaults import with_defaults
from sotopia_env.envs.names import resolve
from sotopia_env.envs.options import RESET_OPTIONS, EnvOptions, check_reset_options, read_seed
from sotopia_env.envs.pettingzoo_env import SotopiaEnv
from sotopia_env.envs.spaces import ActionSpace, action_space
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, check_members, check_whole
from sotopia_env.foundation.waiting import Waiter
from sotopia_env.outcomes import Menu
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Policy
from sotopia_env.world.scenario import Task

DEFAULT_PARTNER = "random"
"""The default partner, which draws its actions uniformly."""

PartnerSpec = Policy | str
Partners = Policy | Mapping[int, Policy]
"""One policy for all other seats, or one for each."""


class SotopiaSingleAgentEnv(gymnasium.Env[ObservationDict, Any]):
    """A Gymnasium environment for one focal agent, over :class:`~sotopia_env.envs.pettingzoo_env.SotopiaEnv`.

    Observations, actions (a model's text among them) and infos are those of the focal agent there; the reward is its
    scalar, and ``info["reward_vector"]`` holds the vector at the end. Partners never see more than their own
    observation.

    An episode may end before the focal agent has acted (if the partner that opens leaves at once). ``reset`` cannot
    return that; instead, ``info["stop_reason"]`` is set, and the first ``step`` pays the reward, whatever its action.

    Args:
        partner: a policy or its name (``"boulware"``), for all other seats; or a mapping from each other seat to one.
        focal_seat: the seat, from 0, of the agent that the caller controls.
        options: see :class:`~sotopia_env.envs.options.EnvOptions`.

    Raises:
        InvalidValueError: an argument is unknown or has an invalid value.
    """

    metadata = EpisodeEnv.metadata
    focal: str
    action_space: ActionSpace

    def __init__(
        self,
        *,
        partner: PartnerSpec | Mapping[int, PartnerSpec] = DEFAULT_PARTNER,
        focal_seat: int = 0,
        **options: Unpack[EnvOptions],
    ) -> None:
        self._aec = SotopiaEnv(**with_defaults(options))
        self._focal_seat, self._partners = focal_seat, read_partners(partner)
        self.focal, self._seated = self._cast(self._focal_seat, self._partners)
        self._waiter = Waiter()
        self._finished = True
        self.metadata = self._aec.metadata
        self.render_mode = self._aec.render_mode
        self.observation_space = self._aec.observation_space(self.focal)
        self.action_space = action_space(self._aec.options.seats, self._menu, self._aec.options.rules.turn_order)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ObservationDict, InfoDict]:
        """Starts an episode and lets the partners act until it is the focal agent's turn.

        Args:
            seed: as in Gymnasium; ``None`` continues with the current generator.
            options: for this episode, ``partner`` and ``focal_seat`` as in the constructor, ``task`` and ``evaluator``
                as in :meth:`SotopiaEnv.reset`.

        Raises:
            InvalidValueError: the seed or an option is invalid or unknown.
            PolicyError: a partner produced no action.
            EvaluationError: the episode ended at once and could not be scored.
        """
        return self._waiter.wait(self.begin(seed=seed, options=options))

    async def begin(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ObservationDict, InfoDict]:
        """The coroutine that :meth:`reset` waits for."""
        changes = check_reset_options(options, (*RESET_OPTIONS, "partner", "focal_seat"))
        partner, seat = changes.get("partner"), changes.get("focal_seat")
        cast = self._cast(
            self._focal_seat if seat is None else seat, self._partners if partner is None else read_partners(partner)
        )
        super().reset(seed=read_seed(seed))
        # The inner seed is drawn from this generator, so ``seed=None`` continues one sequence of episodes.
        self._aec.reset(
            seed=int(self.np_random.integers(2**31)),
            options={name: changes[name] for name in RESET_OPTIONS if name in changes},
        )
        self.focal, self._seated = cast
        # Stays true if a partner or the evaluator fails, so that ``step`` asks for a reset.
        self._finished = True
        await self._aec.play(self._seated)
        self._finished = False
        return self._aec.observe(self.focal), self._info()

    def step(self, action: Any) -> tuple[ObservationDict, float, bool, bool, InfoDict]:
        """Takes the focal agent's action and plays on until it is its turn again or the episode has ended.

        Raises:
            InvalidActionError: the action is malformed, or the episode is over.
            PolicyError: a partner produced no action.
            EvaluationError: the evaluator failed (``on_unscored="raise"``).
        """
        return self._waiter.wait(self.advance(action))

    async def advance(self, action: Any) -> tuple[ObservationDict, float, bool, bool, InfoDict]:
        """The coroutine that :meth:`step` waits for."""
        if self._finished:
            raise InvalidActionError("no episode is running", hint="call reset() first")
        if self._aec.episode_state.stop is None:
            # Stays true if a partner or the evaluator fails, or the task is cancelled.
            self._finished = True
            try:
                self._aec.take(action)
            except InvalidActionError:
                self._finished = False
                raise
            await self._aec.play(self._seated)
        self._finished = self._aec.episode_state.stop is not None
        return (
            self._aec.observe(self.focal),
            float(self._aec.rewards[self.focal]),
            self._aec.terminations[self.focal],
            self._aec.truncations[self.focal],
            self._info(),
        )

    def render(self) -> str | None:
        """Shows the episode as :meth:`sotopia_env.envs.base.EpisodeEnv.render` does."""
        return self._aec.render()

    def close(self) -> None:
        """Closes the event loop in which partners were waited for."""
        self._waiter.close()

    def observation(self) -> Observation:
        """Returns the focal agent's typed observation."""
        return self._aec.observation(self.focal)

    def episode(self) -> Episode:
        """Returns the record of the episode so far."""
        return self._aec.episode()

    @property
    def samples(self) -> Sequence[Task]:
        """Representative tasks: all tasks of a set, or one of each kind if they are generated without end."""
        return self._aec.options.samples

    def _info(self) -> InfoDict:
        """A copy of the focal agent's info, so that changes by the caller do not reach the environment."""
        info = self._aec.infos[self.focal]
        return {key: copy.copy(value) for key, value in info.items()}

    def _menu(self) -> Menu | None:
        """The moves open to the focal agent now."""
        return None if self._finished else self.observation().moves

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.action_space.bind(self._menu)

    def _cast(self, focal_seat: int, partners: Partners) -> tuple[str, dict[str, Policy]]:
        """The focal agent, and the policy of each other agent."""
        agents = self._aec.possible_agents
        check_whole("focal_seat", focal_seat, 0, len(agents) - 1)
        others = [seat for seat in range(len(agents)) if seat != focal_seat]
        by_seat = partners if isinstance(partners, Mapping) else dict.fromkeys(others, partners)
        if set(by_seat) != set(others):
            raise InvalidValueError(
                field="partner", expected=f"a policy for each of the seats {others}", got=list(by_seat)
            )
        return agents[focal_seat], {agents[seat]: by_seat[seat] for seat in others}


def read_partners(partner: object) -> Partners:
    """Returns the policy that ``partner`` is or names, or one for each seat of a mapping."""
    if isinstance(partner, Mapping):
        return {seat: read_policy(policy) for seat, policy in partner.items()}
    return read_policy(partner)


def read_policy(value: object) -> Policy:
    """Returns the policy that ``value`` is or names."""
    policy = resolve("partner", value) if isinstance(value, str) else value
    check_members("partner", "a policy or the name of one", policy, Policy)
    return cast(Policy, policy)
