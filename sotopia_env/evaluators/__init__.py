"""Evaluators, which score episodes.

Without a language model: :class:`VerifiedOutcome` computes the exact outcome of tasks that have one (GOAL and FIN);
:class:`RuleEvaluator` scores all seven dimensions by counting words; :func:`default_evaluator` combines the two;
:class:`Diligence` scores from moves whether an agent worked for its result. With a language model: :class:`LLMJudge`,
:class:`Ensemble` of judges, and :class:`SpokenOutcome` for agreements in words alone. Importing this package loads
neither word lists nor the model client; the first use does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sotopia_env.evaluators.composite import Composite
from sotopia_env.evaluators.diligence import Diligence
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.evaluators.rules.evaluator import RuleEvaluator
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.world.episode import Evaluator

if TYPE_CHECKING:
    from sotopia_env.evaluators.ensemble import Ensemble
    from sotopia_env.evaluators.spoken_outcome import SpokenOutcome

# Imported on first use: these modules load the model client, which evaluators without a model do not need.
_LAZY: Mapping[str, tuple[str, ...]] = {
    "ensemble": ("Ensemble",),
    "spoken_outcome": ("SpokenOutcome",),
}
_MODULE = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE[name]}"), name)


def default_evaluator() -> Evaluator:
    """Returns ``verified+rules``: the verified outcome if the task has one, and rules for all other dimensions."""
    return Composite([VerifiedOutcome(), RuleEvaluator()])


__all__ = [
    "Composite",
    "ComputedEvaluator",
    "Diligence",
    "Ensemble",
    "SpokenOutcome",
    "VerifiedOutcome",
    "default_evaluator",
]
