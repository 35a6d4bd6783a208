"""Evaluators by name: words joined with ``+``, judges and views with a model's name, and aggregates of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.composite import Composite
from sotopia_env.evaluators.rules.evaluator import RuleEvaluator
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.world.episode import Evaluator

if TYPE_CHECKING:
    from sotopia_env.naming.judges import ModelFactory

_MAKERS: Mapping[str, Callable[[], Evaluator]] = {"verified": VerifiedOutcome, "rules": RuleEvaluator}


EVALUATOR_NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The evaluators without a model that :func:`make` knows; joined with ``+`` they compose."""


def make_evaluator(spec: str | Evaluator, *, model_factory: ModelFactory | None = None) -> Evaluator:
    """Returns the evaluator that ``spec`` names; an evaluator is returned as it is.

    Args:
        spec: a name of :data:`EVALUATOR_NAMES`, a judge (``"judge:MODEL?per=agent&bands=true"``, see
            :func:`sotopia_env.naming.judges.make_judge`), goals by views (``"views:MODEL?interviewee=MODEL"``,
            see :func:`sotopia_env.naming.judges.make_views`), several joined with ``+`` (the first that scores
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
        from sotopia_env.naming.judges import make_judge

        return make_judge(name, model_factory)
    if name.startswith(_VIEWS):
        from sotopia_env.naming.judges import make_views

        return make_views(name, model_factory)
    if name not in _MAKERS:
        raise UnknownNameError(f"evaluator: {name_hint(name, [*EVALUATOR_NAMES, f'{_JUDGE}MODEL', f'{_VIEWS}MODEL'])}")
    return _MAKERS[name]()
