"""Agreement of several judges on the same episodes: correlations of scores, and Cohen's kappa of yes and no."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import Dimension


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """The agreement of two judges on one dimension, over the seats that both scored.

    Attributes:
        first: the name of one evaluation.
        second: the name of the other evaluation.
        dimension: one of the seven dimensions, or the name of a custom one.
        n: the number of seats that both scored.
        missing: the number of seats that were not scored by both.
        pearson: the correlation of the scores, in [-1, 1]; ``None`` for fewer than two seats or a constant judge.
        spearman: the rank correlation of the scores, in [-1, 1]; ``None`` as for ``pearson``.
        mean_difference: the mean of the absolute differences, in the unit of the dimension.
    """

    first: str
    second: str
    dimension: Dimension | str
    n: int
    missing: int
    pearson: float | None
    spearman: float | None
    mean_difference: float


def judge_agreement(episodes: Iterable[Episode], names: Sequence[str] | None = None) -> tuple[JudgeAgreement, ...]:
    """Returns the agreement of every pair of evaluators on every dimension.

    Args:
        episodes: evaluated episodes.
        names: the evaluations to compare, by name; ``None`` compares all.

    Raises:
        InvalidValueError: there are fewer than two evaluations to compare.
        UnknownNameError: no episode has an evaluation of that name.
    """
    rated = list(episodes)
    choice = evaluator_names(rated, names, "evaluation")
    if len(choice) < 2:
        raise InvalidValueError(field="evaluations", expected="at least two to compare", got=list(choice))
    return tuple(row for first, second in itertools.combinations(choice, 2) for row in _rows(rated, first, second))


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


def _rows(episodes: Sequence[Episode], first: str, second: str) -> list[JudgeAgreement]:
    pairs: dict[Dimension | str, list[tuple[float, float]]] = {}
    seats = 0
    for episode in episodes:
        one, other = episode.evaluation(first), episode.evaluation(second)
        for agent in episode.task.agents:
            seats += 1
            for dimension, values in _common_scores(one, other, agent).items():
                pairs.setdefault(dimension, []).append(values)
    return [_row(first, second, dimension, scores, seats - len(scores)) for dimension, scores in pairs.items()]


def _common_scores(
    one: Evaluation | None, other: Evaluation | None, agent: str
) -> dict[Dimension | str, tuple[float, float]]:
    if one is None or other is None:
        return {}
    left, right = one.by_agent.get(agent, {}), other.by_agent.get(agent, {})
    return {d: (left[d].value, right[d].value) for d in left if d in right}


def _row(
    first: str, second: str, dimension: Dimension | str, pairs: Sequence[tuple[float, float]], missing: int
) -> JudgeAgreement:
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    r, rho = pearson(xs, ys), spearman(xs, ys)
    difference = math.fsum(abs(x - y) for x, y in pairs) / len(pairs)
    return JudgeAgreement(
        first=first,
        second=second,
        dimension=dimension,
        n=len(pairs),
        missing=missing,
        pearson=None if r is None else r.value,
        spearman=None if rho is None else rho.value,
        mean_difference=difference,
    )


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
