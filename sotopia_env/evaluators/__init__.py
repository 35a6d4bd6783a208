"""Evaluators without a language model, and how to name one.

``verified`` reads the outcome of tasks that have one (GOAL and FIN, exact); ``rules`` scores all seven dimensions by
counting words; ``verified+rules`` takes the first where it applies and the second for the rest. Importing this package
loads no word list; the first evaluation does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sotopia_env.episode import Evaluator
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.composite import AGGREGATES, Composite
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.evaluators.rules import RULES, RuleEvaluator
from sotopia_env.evaluators.verified import VerifiedOutcome

_MAKERS: Mapping[str, Callable[[], Evaluator]] = {"verified": VerifiedOutcome, "rules": RuleEvaluator}
NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The evaluators that :func:`make` knows; joined with ``+`` they compose."""


def make(spec: str | Evaluator) -> Evaluator:
    """Returns the evaluator that ``spec`` names; an evaluator is returned as it is.

    Args:
        spec: a name of :data:`NAMES`, several joined with ``+`` (the first that scores a dimension wins), or an
            aggregate of several: ``"mean(verified+rules)"``.

    Raises:
        UnknownNameError: a name is not known; names the nearest.
        InvalidValueError: ``spec`` is neither a text nor an evaluator.
    """
    if not isinstance(spec, str):
        if isinstance(spec, Evaluator) and not isinstance(spec, type):
            return spec
        raise InvalidValueError(f"evaluator: expected a name or an evaluator, got {spec!r}")
    text, aggregate = spec.strip(), "first"
    if text.endswith(")"):
        aggregate, _, text = text[:-1].partition("(")
    names = [name.strip() for name in text.split("+")]
    for name in names:
        if name not in _MAKERS:
            raise UnknownNameError(f"evaluator: {name_hint(name, NAMES)}")
    members = [_MAKERS[name]() for name in names]
    if len(members) == 1 and aggregate == "first":
        return members[0]
    return Composite(members, aggregate.strip())


def default_evaluator() -> Evaluator:
    """Returns ``verified+rules``: the verified outcome where the task has one, rules for everything else."""
    return Composite([VerifiedOutcome(), RuleEvaluator()])


__all__ = [
    "AGGREGATES",
    "NAMES",
    "RULES",
    "Composite",
    "ComputedEvaluator",
    "RuleEvaluator",
    "VerifiedOutcome",
    "default_evaluator",
    "make",
]
