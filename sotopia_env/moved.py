"""Modules that have moved: importing an old name, or opening a pickle that holds one, names the new one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_GROUND = "errors quoting files json_text yaml_text records settings extras waiting prompts"
_LEARNER = "attribution collect commands data evaluation fitting grpo models pi prompts reward stage"
MOVED = {
    **{f"sotopia_env.{name}": f"sotopia_env.foundation.{name}" for name in _GROUND.split()},
    "sotopia_env.policies.policy": "sotopia_env.world.play.policy",
    "sotopia_env.policies.best_of_n": "sotopia_env.policies.combined.best_of_n",
    "sotopia_env.table": "sotopia_env.world.play.table",
    "sotopia_env.continuations": "sotopia_env.world.play.continuations",
    "sotopia_env.credit": "sotopia_env.evaluators.turn_rewards",
    "sotopia_env.runs.importing": "sotopia_env.importers.importing",
    "sotopia_env.runs.exporting": "sotopia_env.importers.exporting",
    "sotopia_env.service": "sotopia_studio",
    "training.harm": "studies.harm",
    "sotopia_training.attribution.credits": "sotopia_training.attribution.methods",
    "sotopia_training.attribution.credit_accuracy": "studies.attribution_accuracy.study",
    "sotopia_training.attribution.accuracy": "studies.attribution_accuracy.accuracy",
    "sotopia_training.attribution.probes": "studies.attribution_accuracy.probes",
    "sotopia_training.attribution.agreement": "studies.attributor_agreement",
    "sotopia_training.attribution.plot": "studies.reward_distributions",
    "sotopia_training.grpo.branches": "sotopia_training.grpo.turn_rewards",
    **{f"training.{name}": f"sotopia_training.{name}" for name in _LEARNER.split()},
}
"""New names of packages and modules by their old ones."""


def present_name(module: str) -> str | None:
    """Returns the present name of a module that has moved, or of a module inside a package that has; else ``None``."""
    old = next((name for name in MOVED if module == name or module.startswith(f"{name}.")), None)
    return None if old is None else MOVED[old] + module.removeprefix(old)


class _MovedModules(MetaPathFinder):
    """The last finder, which is asked for modules that no other finder has, and says where ours are now."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        present = present_name(name)
        if present is not None:
            raise ModuleNotFoundError(f"{name} is now {present}", name=name)


def name_moved_modules() -> None:
    """Makes imports of old names say the new ones, in this process."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
