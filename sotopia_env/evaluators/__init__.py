"""Evaluators: who scores an episode.

Without a language model: ``verified`` computes the outcome of tasks that have one (GOAL and FIN, exact); ``rules``
scores all seven dimensions by counting words; :func:`default_evaluator` takes the first where it applies and the second
for the rest. With one: :class:`LLMJudge`, :class:`Ensemble` of judges, and goals as seen from three sides
(:class:`Views`). Importing this package loads no word list and nothing that reaches a model; the first use does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sotopia_env.evaluators.composite import AGGREGATES, Composite
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.evaluators.rules.evaluator import RULES, RuleEvaluator
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.world.episode import Evaluator

if TYPE_CHECKING:
    from sotopia_env.evaluators.ensemble import ENSEMBLE_AGGREGATES, Ensemble
    from sotopia_env.evaluators.judge.dimensions_file import load_dimensions
    from sotopia_env.evaluators.judge.goal_answer import GoalAnswer, View, answers_of
    from sotopia_env.evaluators.judge.llm_judge import LLMJudge
    from sotopia_env.evaluators.judge.views import Views

# Whoever needs no model shall not wait for what talks to one.
_LAZY: Mapping[str, str] = {
    "load_dimensions": "judge.dimensions_file",
    "ENSEMBLE_AGGREGATES": "ensemble",
    "Ensemble": "ensemble",
    "LLMJudge": "judge.llm_judge",
    "GoalAnswer": "judge.goal_answer",
    "View": "judge.goal_answer",
    "Views": "judge.views",
    "answers_of": "judge.goal_answer",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def default_evaluator() -> Evaluator:
    """Returns ``verified+rules``: the verified outcome where the task has one, rules for everything else."""
    return Composite([VerifiedOutcome(), RuleEvaluator()])


__all__ = [
    "AGGREGATES",
    "ENSEMBLE_AGGREGATES",
    "RULES",
    "Composite",
    "ComputedEvaluator",
    "Ensemble",
    "GoalAnswer",
    "LLMJudge",
    "RuleEvaluator",
    "VerifiedOutcome",
    "View",
    "Views",
    "answers_of",
    "default_evaluator",
    "load_dimensions",
]
