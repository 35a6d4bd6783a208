"""Correlations of two raters, such as a judge and people, and means over seats, with intervals over scenarios."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from sotopia_env.people.between_annotators import Statistic, with_interval
from sotopia_env.people.jackknife import leave_one_out
from sotopia_env.reports.agreement import Correlation, pearson, spearman, varies
from sotopia_env.reports.intervals import Bounds, estimate

NO_SEAT = "no seat was scored by both"


def correlations(
    judge: Sequence[float],
    human: Sequence[float],
    scenarios: Sequence[str],
    labels: tuple[str, str] = ("the judge's scores", "the human scores"),
) -> tuple[Statistic, Statistic]:
    """Returns Pearson's r and Spearman's rho with intervals and p-values, or the reason why they are undefined.

    Args:
        judge: the judge's scores.
        human: the human scores of the same seats.
        scenarios: the scenarios of these seats.
        labels: what the two are called in a reason.
    """
    reason = None
    # Two points always have a correlation of 1 or -1.
    if len(judge) < 3:
        reason = too_few(len(judge), 3)
    elif not varies(judge):
        reason = f"{labels[0]} are all the same"
    elif not varies(human):
        reason = f"{labels[1]} are all the same"
    if reason is not None:
        return Statistic(None, reason), Statistic(None, reason)
    return _correlation(pearson, judge, human, scenarios), _correlation(spearman, judge, human, scenarios)


def _correlation(
    coefficient: Callable[[Sequence[float], Sequence[float]], Correlation | None],
    judge: Sequence[float],
    human: Sequence[float],
    scenarios: Sequence[str],
) -> Statistic:
    whole = coefficient(judge, human)
    if whole is None:
        return Statistic(None)
    rest = (coefficient([judge[i] for i in rows], [human[i] for i in rows]) for rows in leave_one_out(scenarios))
    return with_interval(whole.value, [None if item is None else item.value for item in rest], test=True)


def mean_with_interval(values: Sequence[float], scenarios: Sequence[str], ends: Bounds, reason: str) -> Statistic:
    """Returns the mean over seats with its 95 % interval, or ``reason`` if there are no values.

    Every seat has the same weight, as in the papers. Each scenario enters with the part by which it moves this mean, so
    that the standard error is the cluster-robust one of the mean over seats (Cameron and Miller 2015, section II).

    Args:
        values: the values of the seats.
        scenarios: the scenarios of these seats.
        ends: the lowest and the highest possible value.
        reason: why there may be no values.
    """
    if not values:
        return Statistic(None, reason)
    mean, sums, sizes = math.fsum(values) / len(values), defaultdict[str, list[float]](list), Counter(scenarios)
    for value, scenario in zip(values, scenarios, strict=True):
        sums[scenario].append(value)
    parts = {
        scenario: mean + (math.fsum(own) - sizes[scenario] * mean) * len(sums) / len(values)
        for scenario, own in sums.items()
    }
    interval = estimate(list(parts.values()), list(parts), ends)
    return Statistic(
        mean, low=interval.low, high=interval.high, no_interval=interval.missing if interval.low is None else None
    )


def too_few(n: int, least: int) -> str:
    """Returns the reason why a statistic of ``n`` seats is undefined."""
    return f"{n} seats, at least {least} are needed" if n else NO_SEAT
