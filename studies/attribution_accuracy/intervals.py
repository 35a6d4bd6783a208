r"""Figures of rewarded actions with intervals over tasks: a jackknife in each family, and the mean of the families.

Actions of one task resemble each other, so the unit is the task. Every task is left out once; with :math:`m_{-g}` the
figure :math:`m` of a family without task ``g`` of ``G``,

.. math:: v = \frac{G - 1}{G} \sum_g (m_{-g} - \bar m)^2

with :math:`G - 1` degrees of freedom (Efron and Tibshirani 1993, chapter 11). Tasks of different families differ in
kind, so each of ``F`` families has an error of its own, and their mean has

.. math:: V = \frac{1}{F^2} \sum_f v_f, \qquad \nu = V^2 \Big/ \sum_f \frac{(v_f / F^2)^2}{G_f - 1}

(Welch 1947, Satterthwaite 1946). Intervals are on Fisher's scale, by the delta method; a share :math:`x` is taken as
:math:`2x - 1`, which has the range of a correlation. In :mod:`sotopia_env.people.jackknife` the leave-one-out values
are on that scale, too; here a share of all but one task is often exactly 1, where the scale is infinite.

A percentile bootstrap over tasks covers .81 to .93 with 6 to 24 tasks a family, these intervals .93 to .97
(``tests/studies/test_attribution_intervals.py`` simulates the smallest design).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sotopia_env.people.jackknife import FEWEST
from sotopia_env.reports.intervals import Estimate, critical_value

Sums = NDArray[np.float64]
"""Sums per task: n, Σx, Σy, Σxx, Σyy, Σxy, right signs, all signs, right pairs, all pairs; of shape (tasks, 10)."""
_Values = NDArray[np.float64]
_SAME = 1e-9  # rewards are floats: a smaller spread is a rounding error
_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class TaskEstimate(Estimate):
    """A figure with its interval over tasks; ``clusters`` is the number of tasks that decide it.

    Attributes:
        reason: why there is no interval; empty if there is one.
    """

    reason: str = ""

    @property
    def missing(self) -> str:
        """Why there is no interval, or no test."""
        return self.reason or "no test"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that follows from sums over tasks.

    Attributes:
        of: the figure of a row of :data:`Sums`, in [-1, 1]; ``None`` where it is undefined.
        decides: the column that is above 0 in tasks which the figure depends on.
        counts: the column with the number of values.
        is_share: whether the figure is shown as a share, ``(1 + value) / 2``.
    """

    of: Callable[[Sums], float | None]
    decides: int
    counts: int
    is_share: bool

    def shown(self, value: float) -> float:
        """Returns a value in [-1, 1] in the units of the report."""
        return (1 + value) / 2 if self.is_share else value


def _correlation(totals: Sums) -> float | None:
    n, x, y, xx, yy, xy = totals[:6]
    # Rounding can make a variance of 0 slightly negative.
    spread = math.sqrt(max(n * xx - x * x, 0.0) * max(n * yy - y * y, 0.0))
    return float((n * xy - x * y) / spread) if spread > _SAME else None


def _share(right: int) -> Callable[[Sums], float | None]:
    return lambda totals: float(2 * totals[right] / totals[right + 1] - 1) if totals[right + 1] else None


FIGURES: Mapping[str, Figure] = {
    "correlation": Figure(_correlation, 0, 0, False),
    "sign": Figure(_share(6), 7, 0, True),
    "ranking": Figure(_share(8), 9, 9, True),
}
"""The figures of the report by name."""


def figure_estimate(figure: Figure, families: Mapping[str, Sums]) -> TaskEstimate | None:
    """Returns the figure of a family, or the mean of several, with its interval over tasks.

    Args:
        figure: the figure.
        families: the sums of the tasks of each family.

    Returns:
        ``None`` if the figure is undefined in one of the families. There is no interval if fewer than :data:`FEWEST`
        tasks of a family decide it, or if they do not differ.
    """
    figures = [figure.of(sums.sum(axis=0)) for sums in families.values()]
    defined = [value for value in figures if value is not None]
    if len(defined) < len(figures):
        return None
    without = {family: _without(figure, sums) for family, sums in families.items()}
    n = sum(int(sums[:, figure.counts].sum()) for sums in families.values())
    mean, tasks = math.fsum(defined) / len(defined), sum(map(len, without.values()))
    point = TaskEstimate(n, tasks, figure.shown(mean), None, None, None, "tasks")
    reasons = {family: reason for family, values in without.items() if (reason := _reason(values))}
    if reasons:
        named = [f"{family}: {reason}" if len(families) > 1 else reason for family, reason in reasons.items()]
        return replace(point, reason="; ".join(named))
    low, high = _interval(
        mean, [_squared_error(values) for values in without.values()], list(map(len, without.values()))
    )
    return replace(point, low=figure.shown(low), high=figure.shown(high))


def _without(figure: Figure, sums: Sums) -> _Values:
    """The figure without each of the tasks that decide it; NaN where it is undefined."""
    rows = [figure.of(sums.sum(axis=0) - row) for row in sums if row[figure.decides] > 0]
    return np.array([math.nan if value is None else value for value in rows])


def _reason(without: _Values) -> str:
    """Why a family has no error; empty if it has one."""
    if len(without) < FEWEST:
        return f"{len(without)} tasks decide it, an interval needs {FEWEST}"
    if np.isnan(without).any():
        return "undefined without one of the tasks"
    return f"{len(without)} tasks that do not differ" if np.ptp(without) < _SAME else ""


def _squared_error(without: _Values) -> float:
    """The jackknife's squared standard error of a family's figure."""
    return (len(without) - 1) / len(without) * float(((without - without.mean()) ** 2).sum())


def _interval(mean: float, squares: Sequence[float], tasks: Sequence[int]) -> tuple[float, float]:
    """The interval of a mean of independent figures in [-1, 1], from their squared errors and numbers of tasks."""
    parts = [square / len(squares) ** 2 for square in squares]
    total = math.fsum(parts)
    freedom = total**2 / math.fsum(part**2 / (count - 1) for part, count in zip(parts, tasks, strict=True))
    # On Fisher's scale; the denominator is the inverse of its derivative.
    half = critical_value(_LEVEL, freedom) * math.sqrt(total) / (1 - mean * mean)
    return math.tanh(math.atanh(mean) - half), math.tanh(math.atanh(mean) + half)
