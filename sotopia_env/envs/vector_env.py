"""Many single-agent environments in one, whose partners and evaluators are awaited together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack, cast

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_empty_array, iterate

from sotopia_env.envs.defaults import with_defaults
from sotopia_env.envs.gymnasium_env import (
    DEFAULT_PARTNER,
    PartnerSpec,
    SotopiaSingleAgentEnv,
    read_partners,
)
from sotopia_env.envs.options import CheckedOptions, EnvOptions, read_seed
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, UnknownNameError, check_whole
from sotopia_env.foundation.waiting import Waiter

_MASK = "reset_mask"


class SotopiaVectorEnv(SyncVectorEnv):
    """``num_envs`` environments that step together; :func:`gymnasium.make_vec` makes it by default.

    It differs from Gymnasium's :class:`~gymnasium.vector.SyncVectorEnv` only in that the partners of all environments
    are awaited concurrently, in one event loop, and so are the evaluators. Tasks, evaluator and partners are made
    once and shared.

    When a partner or an evaluator fails, the step of the other environments is lost as well: ``reset`` all of them.

    Args:
        num_envs: the number of environments.
        autoreset_mode: when an environment whose episode has ended is reset (:class:`gymnasium.vector.AutoresetMode`).
        partner: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.
        focal_seat: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.
        options: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.

    Raises:
        InvalidValueError: an argument is unknown or has an invalid value.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        partner: PartnerSpec | Mapping[int, PartnerSpec] = DEFAULT_PARTNER,
        focal_seat: int = 0,
        **options: Unpack[EnvOptions],
    ) -> None:
        # First, because Gymnasium also closes partly constructed environments.
        self._waiter = Waiter()
        check_whole("num_envs", num_envs, 1)
        checked = CheckedOptions.read(with_defaults(options))
        # Names are resolved once, not once per member.
        options["task"] = checked.tasks
        if checked.evaluator is not None:
            options["evaluator"] = checked.evaluator
        member = partial(_Member, partner=read_partners(partner), focal_seat=focal_seat, **options)
        super().__init__([member] * num_envs, autoreset_mode=_read_mode(autoreset_mode))
        self._members = cast(list[_Member], self.envs)
        self._over = np.zeros(num_envs, dtype=np.bool_)
        self._no_actions = create_empty_array(self.action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: one seed for each environment, or the seed of the first one; the others get the next integers.
            options: as in :meth:`SotopiaSingleAgentEnv.reset`, for all.

        Raises:
            InvalidValueError: a seed or an option is invalid.
            PolicyError: a partner produced no action.
            EvaluationError: an episode ended at once and could not be scored.
        """
        seeds, mask = self._read_seeds(seed), self._read_mask(options)
        rest = {name: options[name] for name in options if name != _MASK} if isinstance(options, Mapping) else options
        members = [(env, seed) for env, seed, selected in zip(self._members, seeds, mask, strict=True) if selected]
        self._wait(env.prepare_reset(seed, rest) for env, seed in members)
        self._over[mask] = False
        return super().reset(seed=seeds, options={_MASK: mask})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes the focal agents' actions and plays on, in all environments at once, until it is their turn again.

        Args:
            actions: an element of the batched action space, or a list with one action, such as a text, per environment.

        Raises:
            InvalidActionError: an action is malformed, or an episode is over.
            PolicyError: a partner produced no action.
            EvaluationError: the evaluator failed (``on_unscored="raise"``).
        """
        if isinstance(actions, list) and len(actions) != self.num_envs:
            raise InvalidActionError(field="actions", expected=f"{self.num_envs}, one for each", got=len(actions))
        each = actions if isinstance(actions, list) else iterate(self.action_space, actions)
        rows = zip(self._members, each, self._over, strict=True)
        self._wait(env.prepare_step(action, bool(over), self.autoreset_mode) for env, action, over in rows)
        # The members have acted already, so a list of texts needs no batched form.
        results = super().step(self._no_actions if isinstance(actions, list) else actions)
        self._over = results[2] | results[3]
        return results

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments and the event loop."""
        super().close_extras(**kwargs)
        self._waiter.close()

    def _wait(self, coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
        self._waiter.wait(_all(coroutines))

    def _read_seeds(self, seed: object) -> list[int | None]:
        if isinstance(seed, Sequence) and not isinstance(seed, str):
            if len(seed) != self.num_envs:
                raise InvalidValueError(
                    field="seed", expected=f"one for each of the {self.num_envs} environments", got=len(seed)
                )
            return [read_seed(item) for item in seed]
        first = read_seed(seed)
        return [None if first is None else first + number for number in range(self.num_envs)]

    def _read_mask(self, options: object) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if not isinstance(options, Mapping) or _MASK not in options:
            return np.ones(self.num_envs, dtype=np.bool_)
        mask = options[_MASK]
        shape = getattr(mask, "shape", None), getattr(mask, "dtype", None)
        if not isinstance(mask, np.ndarray) or shape != ((self.num_envs,), np.bool_) or not mask.any():
            raise InvalidValueError(
                field=f"options[{_MASK!r}]",
                expected=f"an array of {self.num_envs} truth values, one of them true",
                got=mask,
            )
        return mask


class _Member(SotopiaSingleAgentEnv):
    """One environment of a vector: ``reset`` and ``step`` return results that were awaited beforehand."""

    _start: Any = None
    _step: Any = None

    async def prepare_reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Awaits the result that :meth:`reset` will return."""
        self._start = await self.begin(seed=seed, options=options)

    async def prepare_step(self, action: Any, over: bool, mode: AutoresetMode) -> None:
        """Awaits the results that the vector's next step will need: a step, a reset if one is due, or both."""
        if over and mode is AutoresetMode.NEXT_STEP:
            await self.prepare_reset()
            return
        self._step = await self.advance(action)
        if mode is AutoresetMode.SAME_STEP and (self._step[2] or self._step[3]):
            await self.prepare_reset()

    def reset(self, **_: Any) -> Any:
        return self._start

    def step(self, action: Any) -> Any:
        return self._step


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Awaits all coroutines, even if one fails, and then raises the first failure."""
    for result in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _read_mode(value: object) -> AutoresetMode:
    names = [mode.value for mode in AutoresetMode]
    if isinstance(value, AutoresetMode):
        return value
    if value not in names:
        raise UnknownNameError(field="autoreset_mode", got=value, valid=names)
    return AutoresetMode(value)
