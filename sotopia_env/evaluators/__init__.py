"""Evaluators, which score episodes.

Without a language model: :class:`VerifiedOutcome`, the default, computes the exact outcome of tasks that have one (GOAL
and FIN); :class:`Diligence` scores from moves whether an agent worked for its result. With a language model:
:class:`LLMJudge`, :class:`Ensemble` of judges, and :class:`SpokenOutcome` for agreements in words alone. Importing this
package does not load the model client; the first use does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sotopia_env.evaluators.composite import Composite
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.evaluators.verified import VerifiedOutcome

if TYPE_CHECKING:
    from sotopia_env.evaluators.diligence import Diligence
    from sotopia_env.evaluators.ensemble import Ensemble
    from sotopia_env.evaluators.spoken_outcome import SpokenOutcome

# Imported on first use: environments need none of them, and some load the model client.
_LAZY: Mapping[str, tuple[str, ...]] = {
    "diligence": ("Diligence",),
    "ensemble": ("Ensemble",),
    "spoken_outcome": ("SpokenOutcome",),
}
_MODULE = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE[name]}"), name)


__all__ = [
    "Composite",
    "ComputedEvaluator",
    "Diligence",
    "Ensemble",
    "SpokenOutcome",
    "VerifiedOutcome",
]
