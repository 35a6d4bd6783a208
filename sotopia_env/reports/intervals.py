r"""Means over scenarios, with intervals that stay within the range of the metric.

**Every scenario has the same weight**, whatever the number of its seats, partners and repeats; otherwise a family of
tasks with five seats would outweigh one with two. A mean is the mean of the scenarios' means; with :math:`\bar y_g` the
mean of scenario ``g`` of ``G``,

.. math:: \bar y = \frac{1}{G} \sum_g \bar y_g, \qquad SE^2 = \frac{1}{G (G - 1)} \sum_g (\bar y_g - \bar y)^2

and the interval and the test use Student's t with ``G - 1`` degrees of freedom. This equals the cluster-robust standard
error (Liang and Zeger 1986; Cameron and Miller 2015, section II) of the mean in which each value has the weight
``1 / (G n_g)``: episodes of one scenario resemble each other and count as one observation. statsmodels' WLS on a
constant with these weights gives the same result with ``cov_type="cluster"``.

The unit that an interval is over is chosen by :mod:`sotopia_env.reports.units`. With one unit there is no interval: it
is ``None`` and shown with the reason.

Where **people** play in several scenarios, both are random (:mod:`sotopia_env.reports.seats.crossed`).

The interval of a mean in :math:`[a, b]` is computed on the scale of :math:`g(y) = \log((y - a) / (b - y))`, where the
standard error is :math:`g'(\bar y) SE` (the delta method), and its ends are transformed back. If one end of the range
is open, :math:`g` is the logarithm of the distance to the other; if both are open, it is :math:`y` itself. Near an end
such an interval is asymmetric, and it covers the true mean more often than a clipped one
(``tests/sotopia_env/reports/test_intervals.py``). A *difference* usually lies in the middle of its range; its interval
is on the plain scale, so that it agrees with the p-value, and is clipped to the possible differences.

**No variation is not certainty.** If all ``G`` units have the same mean, the interval is exact (:func:`exact_ends`,
Clopper and Pearson 1934): it is never a point. A metric without a closed range then has no interval. If at least half
of the units are at one end of the range, the interval reaches at least as near to this end as the exact one would.
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
CROSSED = "participants × scenarios"
"""The kind of clusters of people who play in several scenarios; their number is the smaller one."""
PUBLICATION = "publication"
"""In place of a kind of clusters: the figure was published, with its interval if it has one."""
_LEVEL = 0.05
# Lentz's method replaces zero denominators by a number that is negligible but whose inverse does not overflow.
_SMALLEST = 1e-300
METHOD = (
    "Intervals: Student's t over scenarios, on the logit of the mean within its metric's range (the log where one end "
    "is open), of differences on the plain scale; exact where nothing varies, and towards an end of the range that at "
    "least half of the scenarios have; none leaves the range. Means with rare results far from the others have "
    "intervals that cover less than they say: .83 to .90 with lognormal scenarios, and .47 with 20 scenarios of which "
    "3 % would have 0 and the others about 9 of 10."
)
"""How the intervals of a report are computed, in one line."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval and test.

    Attributes:
        n: the number of values.
        clusters: the number of clusters, each of which has the same weight.
        mean: the mean of the clusters' means.
        low: the lower end of the 95 % interval; ``None`` with fewer than two clusters, or without any variation in a
            range that is not closed.
        high: the upper end of the interval; ``None`` as ``low``.
        p: the two-sided p-value against 0; ``None`` without an interval.
        over: the kind of the clusters: ``scenarios``, ``vignettes``, ``castings``, ``participants`` or both.
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
        """Why there is no interval or no p-value, and what would make it possible; empty if both exist."""
        if self.low is None:
            if self.over == PUBLICATION:
                return "none was published"
            if self.clusters < 2 and self.over == PARTICIPANTS:
                return "nearly all share a participant; others are needed"
            if self.clusters < 2:
                return f"one {self.over.removesuffix('s')}; 2 or more are needed"
            return f"no variation, and no closed range; {self.over} that differ are needed"
        return "no test" if self.p is None else ""


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
    means = unit_means(values, clusters)
    mean, error, count = _mean_and_error(values, clusters)
    point = Estimate(len(values), count, mean, None, None, None, over)
    return point if error is None else widened(with_interval(point, error, count - 1, bounds), means, bounds)


def widened(result: Estimate, means: Sequence[float], bounds: Bounds) -> Estimate:
    """Returns the estimate with an interval that reaches as near to an end that half of the units have as an exact one.

    Few units off the end say little about how far the others are from it, so that the standard error is too small
    whenever it misses one that is rare. The exact lower limit of the share of such units (Clopper and Pearson 1934),
    times their mean distance, is what they leave room for.
    """
    if result.low is None or result.high is None or not all(map(math.isfinite, bounds)):
        return result
    low, high = result.low, result.high
    for end in bounds:
        distances = [abs(mean - end) for mean in means if abs(mean - end) > 1e-12 * (bounds[1] - bounds[0])]
        if 0 < len(distances) <= len(means) / 2:
            room = least_share(len(distances), len(means)) * math.fsum(distances) / len(distances)
            low, high = (min(low, end + room), high) if end == bounds[0] else (low, max(high, end - room))
    return replace(result, low=low, high=high)


def with_interval(
    point: Estimate, error: float, freedom: float, bounds: Bounds, ends: Bounds | None = None
) -> Estimate:
    """Returns the estimate with the interval and p-value that follow from its standard error and degrees of freedom.

    ``ends`` is the closed range of a difference, whose interval is on the plain scale.
    """
    if error <= 1e-12 * max(1.0, abs(point.mean)):  # no variation beyond rounding
        return _without_variation(point, ends or bounds)
    low, high = _interval(point.mean, critical_value(_LEVEL, freedom) * error, bounds)
    if ends is not None:
        low, high = max(low, ends[0]), min(high, ends[1])
    return replace(point, low=low, high=high, p=two_sided_p(point.mean / error, freedom))


def exact_ends(mean: float, clusters: int, bounds: Bounds, level: float = _LEVEL) -> Bounds:
    """Returns the interval of the mean in a closed range if all of ``clusters`` units have the mean ``mean``.

    Units that are all alike leave room for others, of which at most a share of ``1 - (level / 2) ** (1 / clusters)``
    is compatible with none of them among those that were seen. At an end of the range, this is the interval of Clopper
    and Pearson (1934); between the ends, others may be anywhere in the range.
    """
    share = (level / 2) ** (1 / clusters)
    return bounds[0] + (mean - bounds[0]) * share, bounds[1] - (bounds[1] - mean) * share


def _without_variation(point: Estimate, bounds: Bounds) -> Estimate:
    if not all(map(math.isfinite, bounds)):
        return point
    low, high = exact_ends(point.mean, point.clusters, bounds)
    # The level at which the interval would end at 0.
    far = bounds[1] if point.mean < 0 else -bounds[0]
    p = min(1.0, 2 * (far / (abs(point.mean) + far)) ** point.clusters) if far > 0 else None
    return replace(point, low=low, high=high, p=p)


def difference_estimate(
    values: Sequence[float], clusters: Sequence[str], bounds: Bounds = UNBOUNDED, over: str = SCENARIOS
) -> Estimate:
    """Like :func:`estimate`, for differences of two values that each lie within ``bounds``."""
    mean, error, count = _mean_and_error(values, clusters)
    point = Estimate(len(values), count, mean, None, None, None, over)
    return point if error is None else with_interval(point, error, count - 1, UNBOUNDED, contrast_ends([1, -1], bounds))


def contrast_ends(weights: Sequence[float], bounds: Bounds) -> Bounds:
    """Returns the range of a contrast: at its ends, positive weights have one end of the range, negative the other."""
    largest = math.fsum(map(abs, weights)) / 2 * (bounds[1] - bounds[0])
    return -largest, largest


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
    n, mean = sum(len(values) for _, values, _ in groups), weighted(weights, [item[0] for item in means])
    if any(error is None for _, error, _ in means):
        return Estimate(n, 1, mean, None, None, None, over)
    sizes, errors = [size for _, _, size in means], [error or 0.0 for _, error, _ in means]
    parts = [((weight * error) ** 2, size - 1) for weight, error, size in zip(weights, errors, sizes, strict=True)]
    variance = math.fsum(part for part, _ in parts)
    # Welch-Satterthwaite; the divisor is 0 only without any variation, where the degrees of freedom do not matter.
    freedom = variance**2 / (math.fsum(part**2 / size for part, size in parts) or 1.0)
    # A few units that happen to be alike do not make their level certain: it varies at least as all levels do together.
    squares = math.fsum(error**2 * size * (size - 1) for error, size in zip(errors, sizes, strict=True))
    pooled = squares / sum(size - 1 for size in sizes)
    common = math.fsum(weight**2 * pooled / size for weight, size in zip(weights, sizes, strict=True))
    if common > variance:
        variance, freedom = common, min(sizes) - 1
    # Without any variation, the smallest group says how much may have remained unseen.
    count = sum(sizes) if variance > 0 else min(sizes)
    point = Estimate(n, count, mean, None, None, None, over)
    return with_interval(point, math.sqrt(variance), freedom, UNBOUNDED, contrast_ends(weights, bounds))


def weighted(weights: Sequence[float], means: Sequence[float]) -> float:
    """Returns the sum of the means times their weights."""
    return math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns the p-values adjusted by Holm (1979): all that are below a level hold together at this level.

    ``None`` stays ``None`` but counts as a test, because the pair is shown.
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    result: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(tested):
        result[index] = largest = min(1.0, max(largest, p * (len(p_values) - rank)))
    return result


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


def _mean_and_error(values: Sequence[float], clusters: Sequence[str]) -> tuple[float, float | None, int]:
    """The mean of the clusters' means, its standard error (``None`` for one cluster), and the number of clusters."""
    means = unit_means(values, clusters)
    count, mean = len(means), math.fsum(means) / len(means)
    if count < 2:
        return mean, None, count
    return mean, math.sqrt(math.fsum((m - mean) ** 2 for m in means) / (count * (count - 1))), count


def unit_means(values: Sequence[float], clusters: Sequence[str]) -> list[float]:
    """Returns the mean of each cluster.

    Raises:
        InvalidValueError: there are no values, or the numbers of values and of labels differ.
    """
    if not values or len(values) != len(clusters):
        raise InvalidValueError(
            expected="one cluster per value", got=Verbatim(f"{len(values)} values, {len(clusters)} clusters")
        )
    by_cluster: dict[str, list[float]] = defaultdict(list)
    for value, cluster in zip(values, clusters, strict=True):
        by_cluster[cluster].append(value)
    return [math.fsum(group) / len(group) for group in by_cluster.values()]


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
    return _beta(freedom / (freedom + t * t), t * t / (freedom + t * t), freedom / 2, 0.5)


@lru_cache(maxsize=4096)
def least_share(number: int, size: int, level: float = _LEVEL) -> float:
    """Returns the lower end of the exact interval of a share of which ``number`` of ``size`` were found, above 0."""
    low, high = 0.0, number / size
    while (middle := (low + high) / 2) not in (low, high):  # until the two are neighbouring floats
        probability = _beta(middle, 1 - middle, number, size - number + 1)
        low, high = (low, middle) if probability > level / 2 else (middle, high)
    return low


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


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function of ``x``, with ``rest`` equal to ``1 - x``."""
    # The continued fraction converges fast only below this point; above it, the symmetry of the function is used.
    if x < (a + 1) / (a + b + 2):
        return _incomplete_beta(x, rest, a, b)
    return 1 - _incomplete_beta(rest, x, b, a)


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
