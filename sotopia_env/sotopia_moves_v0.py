"""The PettingZoo entry module of agreements in numbers: ``from sotopia_env import sotopia_moves_v0``.

All agents observe worths and offers and act by index; see :class:`~sotopia_env.envs.moves_env.NumericEpisodeEnv`, whose
keyword arguments all constructors take, and ``max_cycles`` as in :mod:`sotopia_env.sotopia_v0`. By default a fresh
bargaining task is played at every ``reset``, in round-robin order (simultaneous in the parallel form).
"""

from __future__ import annotations

from typing import Any, Unpack

from sotopia_env.envs.moves_env import SotopiaMovesAECEnv, SotopiaMovesParallelEnv
from sotopia_env.envs.pettingzoo_env import OrderEnforced
from sotopia_env.sotopia_v0 import PettingZooOptions, with_rounds
from sotopia_env.world.turn_order import TurnOrder


class NumericOptions(PettingZooOptions, total=False):
    """The options of a numeric environment: those with texts, the number of offers, where masks are, vector rewards."""

    offers: int
    action_masks: str
    vector: bool


def env(**options: Unpack[NumericOptions]) -> Any:
    """Returns the AEC environment, wrapped so that calls in a wrong order raise a clear error."""
    return OrderEnforced(raw_env(**options))


def raw_env(**options: Unpack[NumericOptions]) -> SotopiaMovesAECEnv:
    """Returns the bare AEC environment."""
    return SotopiaMovesAECEnv(**with_rounds({**options}))


def parallel_env(**options: Unpack[NumericOptions]) -> SotopiaMovesParallelEnv:
    """Returns the parallel environment; simultaneous order unless another is given."""
    return SotopiaMovesParallelEnv(**{"turn_order": TurnOrder.SIMULTANEOUS, **with_rounds({**options})})
