r"""Means over scenarios, with intervals that stay within the range of the metric.

**Every scenario has the same weight**, whatever the number of its seats, partners and repeats; otherwise a family of
tasks with five seats would outweigh one with two. A mean is the mean of the scenarios' means; with :math:`\bar y_g` the
mean of scenario ``g`` of ``G``,

.. math:: \bar y = \frac{1}{G} \sum_g \bar y_g, \qquad SE^2 = \frac{1}{G (G - 1)} \sum_g (\bar y_g - \bar y)^2

and the interval and the test use Student's t with ``G - 1`` degrees of freedom. This equals the cluster-robust standard
error (Liang and Zeger 1986; Cameron and Miller 2015, section II) of the mean in which each value has the weight
``1 / (G n_g)``: episodes of one scenario resemble each other and count as one observation. statsmodels' WLS on a
constant with these weights gives the same result with ``cov_type="cluster"``.

The versions of a vignette are one cluster. Values of one scenario, or of one vignette, are clustered by casting: the
interval then describes the variation between sets of people and does not generalise to other scenarios
(:attr:`Estimate.over`). Values of seats in which several people took part are clustered by person. With one cluster
there is no interval: it is ``None`` and shown with the reason. The clusters are chosen by
:func:`~sotopia_env.reports.seat_results.clusters_of`.

The interval of a mean in :math:`[a, b]` is computed on the scale of :math:`g(y) = \log((y - a) / (b - y))`, where the
standard error is :math:`g'(\bar y) SE` (the delta method), and its ends are transformed back. If one end of the range
is open, :math:`g` is the logarithm of the distance to the other; if both are open, it is :math:`y` itself. Near an end
such an interval is asymmetric, and it covers the true mean more often than a clipped one
(``tests/sotopia_env/reports/test_intervals.py``). A *difference* usually lies in the middle of its range; its interval
is on the plain scale, so that it agrees with the p-value, and is clipped to the possible differences. Without any
variation between scenarios, both ends of the interval equal the mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sotopia_env.foundation.errors import InvalidValueError, Verbatim

Bounds = tuple[float, float]
"""The lowest and the highest possible value, inclusive; infinite for an open end."""
UNBOUNDED: Bounds = (-math.inf, math.inf)
SCENARIOS, VIGNETTES, CASTINGS, PARTICIPANTS = "scenarios", "vignettes", "castings", "participants"
"""The kinds of clusters that an interval may be over."""
# Lentz's method replaces zero denominators by a number that is negligible but whose inverse does not overflow.
_SMALLEST = 1e-300
METHOD = (
    "Intervals: Student's t over scenarios, on the logit of the mean within its metric's range (the log where one end "
    "is open), of differences on the plain scale; none leaves the range."
)
"""How the intervals of a report are computed, in one line."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval and test.

    Attributes:
        n: the number of values.
        clusters: the number of clusters, each of which has the same weight.
        mean: the mean of the clusters' means.
        low: the lower end of the 95 % interval; ``None`` with fewer than two clusters.
        high: the upper end of the interval; ``None`` with fewer than two clusters.
        p: the two-sided p-value against 0; ``None`` without an interval or without any variation.
        over: the kind of the clusters: ``scenarios``, ``vignettes``, ``castings`` or ``participants``.
    """

    n: int
    clusters: int
    mean: float
    low: float | None
    high: float | None
    p: float | None
    over: str = SCENARIOS

    @property
    def missing(self) -> str:
        """Why there is no interval or no p-value; empty if both exist."""
        if self.low is None:
            return f"one {self.over.removesuffix('s')}"
        return "no variation" if self.p is None else ""


def show_number(value: float | None) -> str:
    """Returns a number with two decimals, or ``n/a`` for ``None``."""
    return "n/a" if value is None else f"{round(value, 2) + 0.0:.2f}"  # adding 0 turns -0.0 into 0.0


def estimate(
    values: Sequence[float], clusters: Sequence[str], bounds: Bounds = UNBOUNDED, over: str = SCENARIOS
) -> Estimate:
    """Returns the mean, its 95 % interval within ``bounds`` and its p-value against 0; see the module's description.

    Args:
        values: the values of seats.
        clusters: the cluster label of each value.
        bounds: the range of a value.
        over: the kind of the clusters.

    Raises:
        InvalidValueError: there are no values, or the numbers of values and of labels differ.
    """
    mean, error, count = _mean_and_error(values, clusters)
    if error is None:
        return Estimate(len(values), count, mean, None, None, None, over)
    return _with_interval(Estimate(len(values), count, mean, mean, mean, None, over), error, count - 1, bounds)


def _with_interval(point: Estimate, error: float, freedom: float, bounds: Bounds) -> Estimate:
    """The estimate with the interval and the p-value that follow from its standard error and degrees of freedom."""
    if error <= 1e-12 * max(1.0, abs(point.mean)):  # no variation beyond rounding
        return point
    low, high = _interval(point.mean, critical_value(0.05, freedom) * error, bounds)
    return replace(point, low=low, high=high, p=two_sided_p(point.mean / error, freedom))


def difference_estimate(
    values: Sequence[float], clusters: Sequence[str], bounds: Bounds = UNBOUNDED, over: str = SCENARIOS
) -> Estimate:
    """Like :func:`estimate`, for differences of two values that each lie within ``bounds``."""
    return _within(estimate(values, clusters, over=over), bounds[1] - bounds[0])


def contrast_estimate(
    groups: Sequence[tuple[float, Sequence[float], Sequence[str]]], bounds: Bounds = UNBOUNDED, over: str = SCENARIOS
) -> Estimate:
    """Returns the weighted sum of the means of independent groups, with Welch-Satterthwaite degrees of freedom.

    With weights 1 and -1, this is Welch's test of two groups of clusters.

    Args:
        groups: the weight, the values and the cluster labels of each group; groups must not share clusters.
        bounds: the range of a value.
        over: the kind of the clusters.
    """
    means = [_mean_and_error(values, clusters) for _, values, clusters in groups]
    weights = [weight for weight, _, _ in groups]
    n, count = sum(len(values) for _, values, _ in groups), sum(item[2] for item in means)
    mean = math.fsum(weight * item[0] for weight, item in zip(weights, means, strict=True))
    if any(error is None for _, error, _ in means):
        return Estimate(n, count, mean, None, None, None, over)
    parts = [
        ((weight * (error or 0.0)) ** 2, size - 1) for weight, (_, error, size) in zip(weights, means, strict=True)
    ]
    variance = math.fsum(part for part, _ in parts)
    # Welch-Satterthwaite; the divisor is 0 only without any variation, where the degrees of freedom do not matter.
    freedom = variance**2 / (math.fsum(part**2 / size for part, size in parts) or 1.0)
    result = _with_interval(Estimate(n, count, mean, mean, mean, None, over), math.sqrt(variance), freedom, UNBOUNDED)
    return _within(result, sum(map(abs, weights)) / 2 * (bounds[1] - bounds[0]))


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns the Benjamini-Hochberg adjusted p-values; ``None`` stays ``None`` and does not count as a test."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    q_values: list[float | None] = [None] * len(p_values)
    # From the largest p-value down, so that q-values never decrease with p.
    smallest = 1.0
    for rank in range(len(tested), 0, -1):
        p, index = tested[rank - 1]
        q_values[index] = smallest = min(smallest, p * len(tested) / rank)
    return q_values


def _within(difference: Estimate, largest: float) -> Estimate:
    if difference.low is None or difference.high is None:
        return difference
    return replace(difference, low=max(difference.low, -largest), high=min(difference.high, largest))


def _mean_and_error(values: Sequence[float], clusters: Sequence[str]) -> tuple[float, float | None, int]:
    """The mean of the clusters' means, its standard error (``None`` for one cluster), and the number of clusters."""
    if not values or len(values) != len(clusters):
        raise InvalidValueError(
            expected="one cluster per value", got=Verbatim(f"{len(values)} values, {len(clusters)} clusters")
        )
    by_cluster: dict[str, list[float]] = defaultdict(list)
    for value, cluster in zip(values, clusters, strict=True):
        by_cluster[cluster].append(value)
    means = [math.fsum(group) / len(group) for group in by_cluster.values()]
    count, mean = len(means), math.fsum(means) / len(means)
    if count < 2:
        return mean, None, count
    return mean, math.sqrt(math.fsum((m - mean) ** 2 for m in means) / (count * (count - 1))), count


def _interval(mean: float, half: float, bounds: Bounds) -> Bounds:
    """The interval of ``mean`` ± ``half``, computed on the scale on which ``bounds`` become infinite."""
    below, above = mean - bounds[0], bounds[1] - mean
    if math.isinf(below) and math.isinf(above):
        return mean - half, mean + half
    if math.isinf(above):
        return bounds[0] + below * math.exp(-half / below), bounds[0] + below * math.exp(half / below)
    if math.isinf(below):
        return bounds[1] - above * math.exp(half / above), bounds[1] - above * math.exp(-half / above)
    # The logit of the mean, plus and minus ``half`` times its derivative width / (below * above), transformed back.
    width = below + above
    odds, factor = below / above, math.exp(half * width / (below * above))
    return bounds[0] + width * odds / (odds + factor), bounds[0] + width * odds / (odds + 1 / factor)


# --- Student's t, without scipy, which would be a third of an installation --------------------------------------------


def two_sided_p(t: float, freedom: float) -> float:
    """Returns the probability that a t-distributed value is at least as far from 0 as ``t``.

    Args:
        t: the t statistic.
        freedom: the degrees of freedom, above 0; not necessarily a whole number.
    """
    near, far = freedom / (freedom + t * t), t * t / (freedom + t * t)
    a, b = freedom / 2, 0.5
    # The continued fraction converges fast only below this point; above it, the symmetry of the function is used.
    if near < (a + 1) / (a + b + 2):
        return _incomplete_beta(near, far, a, b)
    return 1 - _incomplete_beta(far, near, b, a)


@lru_cache(maxsize=4096)
def critical_value(p: float, freedom: float) -> float:
    """Returns the ``t`` whose two-sided p-value is ``p``: 12.7 for 0.05 and one degree of freedom, 1.96 for many."""
    # Bisection down to neighbouring floats; cached, because most calls of a report have the same degrees of freedom.
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > p:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):  # until the two are neighbouring floats
        low, high = (middle, high) if two_sided_p(middle, freedom) > p else (low, middle)
    return high


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's evaluation of its continued fraction (DLMF 8.17.22).

    Args:
        x: the argument, below ``(a + 1) / (a + b + 2)``.
        rest: ``1 - x``, computed by the caller without the rounding error of the subtraction.
        a: the first parameter.
        b: the second parameter.
    """
    if x <= 0:
        return 0.0
    front = math.exp(
        a * math.log(x) + b * math.log(rest) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(a)
    )
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction, m, step = d, 1, 0.0
    while abs(step - 1) > 1e-15:
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for coefficient in (even, odd):
            d, c = 1 / _away_from_zero(1 + coefficient * d), _away_from_zero(1 + coefficient / c)
            step *= d * c
        fraction, m = fraction * step, m + 1
    return front * fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST
