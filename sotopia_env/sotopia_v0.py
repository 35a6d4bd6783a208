"""The PettingZoo entry module: ``from sotopia_env import sotopia_v0; env = sotopia_v0.env()``.

All constructors take the same keyword arguments (:class:`~sotopia_env.envs.options.EnvOptions`, and ``max_cycles``,
PettingZoo's name of ``max_rounds``, with which its test suite limits an episode) and work without any:
a fresh two-seat task of the verified families at every ``reset``, round-robin order (simultaneous in the parallel
forms), 20 turns. The float is the verified GOAL in [0, 1]. A task without an outcome, as in the starter set, needs a
judge (docs/rewards.md).

========================= ============================ =======================================
constructor               rewards                      form
========================= ============================ =======================================
``env``, ``raw_env``      float                        agents act one at a time
``mo_env``                float32 vector, shape (7,)   agents act one at a time
``parallel_env``          float                        a dictionary of actions
``mo_parallel_env``       float32 vector, shape (7,)   a dictionary of actions
========================= ============================ =======================================
"""

from __future__ import annotations

from typing import Any, Unpack, cast

import gymnasium
import pettingzoo  # type: ignore[import-untyped]

from sotopia_env.envs.defaults import with_defaults
from sotopia_env.envs.options import EnvOptions
from sotopia_env.envs.pettingzoo_env import OrderEnforced, SotopiaEnv, SotopiaParallelEnv
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.world.turn_order import TurnOrder


class PettingZooOptions(EnvOptions, total=False):
    """The options of an environment, with PettingZoo's name of the limit on rounds."""

    max_cycles: int | None


def env(**options: Unpack[PettingZooOptions]) -> Any:
    """Returns the AEC environment with scalar rewards, wrapped so that calls in a wrong order raise a clear error."""
    return OrderEnforced(raw_env(**options))


def raw_env(**options: Unpack[PettingZooOptions]) -> SotopiaEnv:
    """Returns the bare AEC environment with scalar rewards."""
    return SotopiaEnv(**_read(options))


def mo_env(**options: Unpack[PettingZooOptions]) -> Any:
    """Returns the AEC environment with vector rewards (MOMAland's contract), order-enforced as :func:`env` is."""
    return OrderEnforced(SotopiaEnv(vector=True, **_read(options)))


def parallel_env(**options: Unpack[PettingZooOptions]) -> SotopiaParallelEnv:
    """Returns the parallel environment with scalar rewards; simultaneous order unless another is given."""
    return SotopiaParallelEnv(**_simultaneous(_read(options)))


def mo_parallel_env(**options: Unpack[PettingZooOptions]) -> SotopiaParallelEnv:
    """Returns the parallel environment with vector rewards; simultaneous order unless another is given."""
    return SotopiaParallelEnv(vector=True, **_simultaneous(_read(options)))


def _read(options: PettingZooOptions) -> EnvOptions:
    return with_defaults(cast(EnvOptions, with_rounds({**options})))


def with_rounds(own: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with ``max_cycles`` as ``max_rounds``; raises :class:`InvalidValueError` if both are set."""
    if (cycles := own.pop("max_cycles", None)) is not None:
        if own.get("max_rounds") is not None:
            raise InvalidValueError(field="max_cycles", expected="max_rounds or max_cycles, not both", got=cycles)
        own["max_rounds"] = cycles
    return own


def _simultaneous(options: EnvOptions) -> EnvOptions:
    return {"turn_order": TurnOrder.SIMULTANEOUS, **options}


def register_environments() -> None:
    """Registers ``sotopia_env/sotopia(_moves)_v0`` in PettingZoo and ``Sotopia(Moves)-v0`` in Gymnasium; idempotent."""
    # PettingZoo's ids take an underscore when they are registered, but are listed with a hyphen.
    forms = (
        ("aec", "sotopia", "sotopia_v0:env"),
        ("aec", "mo_sotopia", "sotopia_v0:mo_env"),
        ("aec", "sotopia_moves", "sotopia_moves_v0:env"),
        ("parallel", "sotopia", "sotopia_v0:parallel_env"),
        ("parallel", "mo_sotopia", "sotopia_v0:mo_parallel_env"),
        ("parallel", "sotopia_moves", "sotopia_moves_v0:parallel_env"),
    )
    for form, name, constructor in forms:
        registry = pettingzoo.aec_registry if form == "aec" else pettingzoo.parallel_registry
        if f"sotopia_env/{name}-v0" not in registry:
            pettingzoo.register(form, f"sotopia_env/{name}_v0", entry_point=f"sotopia_env.{constructor}")
    if "sotopia_env/Sotopia-v0" not in gymnasium.registry:
        gymnasium.register(
            id="sotopia_env/Sotopia-v0",
            entry_point="sotopia_env.envs.gymnasium_env:SotopiaSingleAgentEnv",
            vector_entry_point="sotopia_env.envs.vector_env:SotopiaVectorEnv",
        )
    if "sotopia_env/SotopiaMoves-v0" not in gymnasium.registry:
        gymnasium.register(id="sotopia_env/SotopiaMoves-v0", entry_point="sotopia_env.envs.moves_env:SotopiaMovesEnv")
