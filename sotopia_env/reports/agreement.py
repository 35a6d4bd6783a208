"""Coefficients of agreement: correlations of scores, and Cohen's kappa of yes and no; names of evaluators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.world.episode import Episode


def evaluator_names(episodes: Iterable[Episode], choice: Iterable[str] | None, label: str) -> tuple[str, ...]:
    """Returns the evaluators in ``choice``, or all evaluators of the episodes, without repetitions and in order.

    Args:
        episodes: evaluated episodes.
        choice: the names of evaluators; ``None`` for all.
        label: the field in the error message.

    Raises:
        UnknownNameError: no episode has an evaluation by an evaluator in ``choice``.
    """
    names = list(dict.fromkeys(e.evaluator for episode in episodes for e in episode.evaluations))
    for name in choice or ():
        if name not in names:
            raise UnknownNameError(field=label, got=name, valid=names)
    return tuple(dict.fromkeys(names if choice is None else choice))


def cohens_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    r"""Returns Cohen's :math:`\kappa = (p_o - p_e) / (1 - p_e)`, the agreement of two raters beyond chance.

    The result is ``None`` without pairs, or if both raters always give the same answer.
    """
    if not pairs:
        return None
    # Expected agreement of independent raters with the same shares of yes.
    observed = sum(first == second for first, second in pairs) / len(pairs)
    first, second = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    expected = first * second + (1 - first) * (1 - second)
    return None if expected == 1 else (observed - expected) / (1 - expected)


@dataclass(frozen=True, slots=True)
class Correlation:
    """A coefficient in [-1, 1] with its two-sided p-value, which assumes independent values."""

    value: float
    p: float


def varies(values: Sequence[float]) -> bool:
    """Whether values differ by more than rounding errors."""
    return len(values) > 1 and max(values) - min(values) >= 1e-9


def pearson(xs: Sequence[float], ys: Sequence[float]) -> Correlation | None:
    """Returns Pearson's r; ``None`` if a side does not vary. Requires the extra ``analysis``."""
    return _correlation("pearsonr", xs, ys)


def spearman(xs: Sequence[float], ys: Sequence[float]) -> Correlation | None:
    """Returns Spearman's rho, with mean ranks for ties; ``None`` if a side does not vary. Requires ``analysis``."""
    return _correlation("spearmanr", xs, ys)


def _correlation(name: str, xs: Sequence[float], ys: Sequence[float]) -> Correlation | None:
    if not (varies(xs) and varies(ys)):
        return None
    from scipy import stats

    result = getattr(stats, name)(xs, ys)
    return Correlation(float(result.statistic), float(result.pvalue))
