"""A Gymnasium environment for one focal seat; partner policies sit in the others and act inside ``step``.

``gymnasium.make("sotopia_env/Sotopia-v0", partner=..., focal_seat=...)``. With ``first_seat`` the focal agent or a
partner opens, so both speaking orders are possible whichever seat the focal agent has.
"""

from __future__ import annotations

import asyncio
import copy
import weakref
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, Unpack

import gymnasium

from sotopia_env.envs.base import EpisodeEnv, InfoDict, ObservationDict
from sotopia_env.envs.defaults import with_defaults
from sotopia_env.envs.options import EnvOptions, excerpt, read_seed
from sotopia_env.envs.pettingzoo_env import SotopiaEnv
from sotopia_env.errors import InvalidActionError, InvalidValueError
from sotopia_env.policies.policy import Decision, Policy, turn_seed
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import Observation

DEFAULT_PARTNER = "random"
"""The partner when none is given: it draws its actions uniformly."""

PartnerSpec = Policy | str
_ResultT = TypeVar("_ResultT")


class SotopiaSingleAgentEnv(gymnasium.Env[ObservationDict, Any]):
    """A Gymnasium environment for one focal agent, over :class:`~sotopia_env.envs.pettingzoo_env.SotopiaEnv`.

    Observations, actions and infos are those of the focal agent there; the reward is its scalar, and
    ``info["reward_vector"]`` holds the vector at the end. Partners never see more than their own observation.

    An episode may end before the focal agent ever acted (the partner that opens leaves at once). ``reset`` cannot say
    so: ``info["stop_reason"]`` is set then, and the first ``step`` pays the reward, whatever its action.

    Args:
        partner: a policy or its name (``"boulware"``), for all other seats; or a mapping from each other seat to one.
        focal_seat: the seat, from 0, whose agent is outside.
        options: see :class:`~sotopia_env.envs.options.EnvOptions`.

    Raises:
        InvalidValueError: an argument is unknown or has a value that cannot be meant.
    """

    metadata = EpisodeEnv.metadata

    def __init__(
        self,
        *,
        partner: PartnerSpec | Mapping[int, PartnerSpec] = DEFAULT_PARTNER,
        focal_seat: int = 0,
        **options: Unpack[EnvOptions],
    ) -> None:
        self._aec = SotopiaEnv(**with_defaults(options))
        seats = self._aec.options.seats
        if isinstance(focal_seat, bool) or not isinstance(focal_seat, int) or not 0 <= focal_seat < seats:
            raise InvalidValueError(f"focal_seat: expected 0 to {seats - 1}, got {excerpt(focal_seat)}")
        self.focal = self._aec.possible_agents[focal_seat]
        self._others = [seat for seat in range(seats) if seat != focal_seat]
        self._partners = self._episode_partners = _read_partners(partner, self._others)
        self._waiter = _Waiter()
        self._finished = True
        self.render_mode = self._aec.render_mode
        self.observation_space = self._aec.observation_space(self.focal)
        self.action_space = self._aec.action_space(self.focal)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ObservationDict, InfoDict]:
        """Starts an episode and lets the partners act until it is the focal agent's turn.

        Args:
            seed: as in Gymnasium; ``None`` goes on with the present generator.
            options: for this episode, ``{"partner": …}`` says who sits in the other seats, as in the constructor;
                ``task`` and ``evaluator`` as in :meth:`SotopiaEnv.reset`; other keys are ignored.

        Raises:
            InvalidValueError: the seed or an option cannot be meant.
            PolicyError: a partner produced no action.
            EvaluationError: the episode ended at once and could not be scored.
        """
        partner = options.get("partner") if isinstance(options, Mapping) else None
        partners = self._partners if partner is None else _read_partners(partner, self._others)
        super().reset(seed=read_seed(seed))
        self._aec.reset(seed=int(self.np_random.integers(2**31)), options=options)
        self._episode_partners = partners
        self._finished = True  # stays so when a partner or the evaluator fails
        self._play_partners()
        self._finished = False
        return self._aec.observe(self.focal), self._info()

    def step(self, action: Any) -> tuple[ObservationDict, float, bool, bool, InfoDict]:
        """Takes the focal agent's action and plays on until it is its turn again or the episode has ended.

        Raises:
            InvalidActionError: the action is none that the environment reads, or the episode is over.
            PolicyError: a partner produced no action.
            EvaluationError: the evaluator failed (``on_unscored="raise"``).
        """
        if self._finished:
            raise InvalidActionError("no episode is running; call reset() first")
        if self._aec.episode_state.stop is None:
            self._aec.step(action)
            self._finished = True
            self._play_partners()
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

    def _info(self) -> InfoDict:
        """A copy that shares nothing with others: what a caller does to it stays with the caller."""
        info = self._aec.infos[self.focal]
        return {key: copy.copy(value) for key, value in info.items()}

    def _play_partners(self) -> None:
        env = self._aec
        while (state := env.episode_state).stop is None and env.agent_selection != self.focal:
            agent = env.agent_selection
            seed = turn_seed(state.seed, len(state.turns), state.task.seat_of[agent])
            policy = self._episode_partners[agent]
            decision: Decision = self._waiter.wait(policy.act(env.observation(agent), seed))
            env.step(decision.action)


def _read_partners(partner: object, seats: list[int]) -> dict[str, Policy]:
    """Policies by agent, from one for all ``seats`` or a mapping of these."""
    policies = partner if isinstance(partner, Mapping) else dict.fromkeys(seats, partner)
    if set(policies) != set(seats):
        raise InvalidValueError(f"partner: expected a policy for each of the seats {seats}, got {list(policies)}")
    return {f"agent_{seat}": _read_policy(policies[seat]) for seat in seats}


def _read_policy(value: object) -> Policy:
    if isinstance(value, str):
        from sotopia_env.naming import make_policy

        return make_policy(value)
    if isinstance(value, Policy) and not isinstance(value, type):
        return value
    raise InvalidValueError(f"partner: expected a policy or the name of one, got {excerpt(value)}")


class _Waiter:
    """Waits for coroutines from synchronous code, in one event loop that lives as long as the environment.

    Inside a running loop (a notebook) the waiting is done in a thread, for loops do not nest.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def wait(self, coroutine: Coroutine[Any, Any, _ResultT]) -> _ResultT:
        """Returns the coroutine's result, or raises what it raised."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # Closing runs nothing in the loop, so it may happen whenever the garbage collector likes.
            weakref.finalize(self, self._loop.close)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(coroutine)
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(self._loop.run_until_complete, coroutine).result()

    def close(self) -> None:
        """Closes the loop; a later :meth:`wait` opens another."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __reduce__(self) -> tuple[type[_Waiter], tuple[()]]:
        return _Waiter, ()  # a copy in another process opens a loop of its own
