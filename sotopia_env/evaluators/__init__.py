"""Evaluators, and how to name one.

Without a language model: ``verified`` reads the outcome of tasks that have one (GOAL and FIN, exact); ``rules`` scores
all seven dimensions by counting words; ``verified+rules`` takes the first where it applies and the second for the rest.
With one: ``judge:MODEL``, ensembles of judges, and goals as seen from three sides (``views:MODEL``). Importing
this package loads no word list and nothing that reaches a model; the first use does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sotopia_env.episode import Evaluator
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.composite import AGGREGATES, Composite
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.evaluators.rules import RULES, RuleEvaluator
from sotopia_env.evaluators.verified import VerifiedOutcome

if TYPE_CHECKING:
    from sotopia_env.evaluators.agreement import Agreement, agreement_table
    from sotopia_env.evaluators.dimensions_file import load_dimensions
    from sotopia_env.evaluators.ensemble import ENSEMBLE_AGGREGATES, Ensemble
    from sotopia_env.evaluators.goal_answer import GoalAnswer, View, answers_of
    from sotopia_env.evaluators.judge_spec import ModelFactory
    from sotopia_env.evaluators.llm_judge import LLMJudge
    from sotopia_env.evaluators.views import Views

_MAKERS: Mapping[str, Callable[[], Evaluator]] = {"verified": VerifiedOutcome, "rules": RuleEvaluator}
NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The evaluators without a model that :func:`make` knows; joined with ``+`` they compose."""

# Whoever needs no model shall not wait for what talks to one.
_LAZY: Mapping[str, str] = {
    "Agreement": "agreement",
    "agreement_table": "agreement",
    "load_dimensions": "dimensions_file",
    "ENSEMBLE_AGGREGATES": "ensemble",
    "Ensemble": "ensemble",
    "LLMJudge": "llm_judge",
    "GoalAnswer": "goal_answer",
    "View": "goal_answer",
    "Views": "views",
    "answers_of": "goal_answer",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def make(spec: str | Evaluator, *, model_factory: ModelFactory | None = None) -> Evaluator:
    """Returns the evaluator that ``spec`` names; an evaluator is returned as it is.

    Args:
        spec: a name of :data:`NAMES`, a judge (``"judge:MODEL?per=agent&bands=true"``, see
            :func:`sotopia_env.evaluators.judge_spec.make_judge`), goals by views (``"views:MODEL?interviewee=MODEL"``,
            see :func:`sotopia_env.evaluators.judge_spec.make_views`), several joined with ``+`` (the first that scores
            a dimension wins), or an aggregate of several: ``"mean(verified+rules)"``. An aggregate of judges alone is
            an :class:`~sotopia_env.evaluators.ensemble.Ensemble`, which also knows ``majority``.
        model_factory: makes a judge's model of its name; ``None`` takes :func:`sotopia_env.chat_model.make_model`.

    Raises:
        UnknownNameError: a name is not known; names the nearest.
        InvalidValueError: ``spec`` is neither a text nor an evaluator, or an option of a judge cannot be read.
    """
    if not isinstance(spec, str):
        if isinstance(spec, Evaluator) and not isinstance(spec, type):
            return spec
        raise InvalidValueError(f"evaluator: expected a name or an evaluator, got {spec!r}")
    text, aggregate = spec.strip(), "first"
    if text.endswith(")"):
        aggregate, _, text = text[:-1].partition("(")
    names = [name.strip() for name in text.split("+")]
    members = [_make_one(name, model_factory) for name in names]
    if len(members) == 1 and aggregate == "first":
        return members[0]
    if aggregate != "first" and all(name.startswith(_JUDGE) for name in names):
        from sotopia_env.evaluators.ensemble import Ensemble

        return Ensemble(members, aggregate.strip())
    return Composite(members, aggregate.strip())


_JUDGE = "judge:"
_VIEWS = "views:"


def _make_one(name: str, model_factory: ModelFactory | None) -> Evaluator:
    if name.startswith(_JUDGE):
        from sotopia_env.evaluators.judge_spec import make_judge

        return make_judge(name, model_factory)
    if name.startswith(_VIEWS):
        from sotopia_env.evaluators.judge_spec import make_views

        return make_views(name, model_factory)
    if name not in _MAKERS:
        raise UnknownNameError(f"evaluator: {name_hint(name, [*NAMES, f'{_JUDGE}MODEL', f'{_VIEWS}MODEL'])}")
    return _MAKERS[name]()


def default_evaluator() -> Evaluator:
    """Returns ``verified+rules``: the verified outcome where the task has one, rules for everything else."""
    return Composite([VerifiedOutcome(), RuleEvaluator()])


__all__ = [
    "AGGREGATES",
    "ENSEMBLE_AGGREGATES",
    "NAMES",
    "RULES",
    "Agreement",
    "Composite",
    "ComputedEvaluator",
    "Ensemble",
    "GoalAnswer",
    "LLMJudge",
    "RuleEvaluator",
    "VerifiedOutcome",
    "View",
    "Views",
    "agreement_table",
    "answers_of",
    "default_evaluator",
    "load_dimensions",
    "make",
]
