r"""Hard tasks by the rule of SOTOPIA §7: tasks in which the best of all policies is far above the target's worst.

The gap of a task is the greatest ``mean + 3 sd`` over all policies, including the target, minus ``mean - 3 sd`` of the
target. Both are clipped to the metric's range; ``sd`` is the sample standard deviation (divisor n - 1). A task in which
only the target varies widely is therefore hard, too. Clipping makes many gaps equal; among these, the task with the
greater difference of the two means comes first.

The rule is the paper's, and finds tasks with noisy values: a task with a wide spread has a great gap even if all
policies are equally good. Beside it stands a *held-out* difference, from episodes that did not choose the tasks: per
scenario, the mean of the other policies, each with the same weight, minus that of the target, shrunken by empirical
Bayes (Efron and Morris 1975). With :math:`d_s` the difference in scenario ``s``, :math:`v_s` the variance of its error
and :math:`\tau^2` the variance of differences between scenarios beyond that (Paule and Mandel 1982), it is

.. math:: m + B_s (d_s - m), \qquad B_s = \tau^2 / (\tau^2 + v_s)

:math:`v_s` comes from the values' variance within the scenario and policy, averaged with that of all scenarios, which
counts as much as four degrees of freedom: a few values tell little of their own variance, yet noisy tasks are the ones
that the rule chooses. The interval adds the uncertainty of :math:`m` and :math:`\tau^2` (Morris 1983).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_whole
from sotopia_env.reports.compare import run_rows
from sotopia_env.reports.intervals import Bounds, critical_value
from sotopia_env.reports.seat_results import SeatResult, headlines, metric_bounds
from sotopia_env.tasks.selection import Entry, HeldOut, Selection

_DEVIATIONS = 3


def hard_tasks(
    runs: Iterable[str | Path],
    target: str,
    top: int = 20,
    *,
    metric: str | None = None,
    evaluator: str | None = None,
    held_out: Iterable[str | Path] = (),
) -> Selection:
    """Returns the ``top`` tasks that are hardest for ``target``, over all seats, partners and repeats of some runs.

    Args:
        runs: run directories or ``.jsonl`` files of episodes.
        target: the label of a policy in the runs.
        top: the maximum number of tasks.
        metric: a metric with a closed range; by default that of a ranking
            (:func:`~sotopia_env.reports.seat_results.headlines`).
        evaluator: the evaluator whose scores to use; by default the one that all episodes share.
        held_out: runs with other episodes of the same tasks, for the difference beside the rule.

    Raises:
        UnknownNameError: the policy, metric or evaluator is unknown.
        InvalidValueError: ``top`` is not a whole number of at least 1, the metric does not have a closed range, there
            is not a task with at least two values of the target and of another policy, or the held-out runs share an
            episode with the others or have fewer than four scenarios that can be compared.
    """
    check_whole("top", top, 1)
    name, rows = run_rows(runs, evaluator)
    metric, bounds = _metric(rows, metric)
    policies = tuple(sorted({row.policy for row in rows}))
    if target not in policies:
        raise UnknownNameError(field="target", got=target, valid=policies)
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if metric in row.values:
            values[row.task, row.scenario][row.policy].append(row.values[metric])
    gaps = [_gap(*ids, by_policy, target, bounds) for ids, by_policy in values.items()]
    entries = sorted((gap for gap in gaps if gap is not None), key=_order)
    if not entries:
        raise InvalidValueError(
            field="target",
            expected=f"a task with at least two values of {metric} for {target!r} and for another policy",
            hint="play more policies, repeats or seats",
        )
    chosen = entries[:top]
    if others := list(held_out):
        by_scenario = shrunken(_held_out_values(others, rows, metric, name), target)
        chosen = [entry.model_copy(update={"held_out": by_scenario.get(entry.scenario)}) for entry in chosen]
    tasks = len({row.task for row in rows})
    return Selection(
        about=f"the {min(top, len(entries))} hardest tasks for {target}, by the gap of {metric} to the best of all",
        target=target,
        policies=policies,
        metric=metric,
        evaluator=name,
        compared=len(entries),
        left_out=tasks - len(entries),
        entries=tuple(chosen),
    )


def _order(entry: Entry) -> tuple[float, float, str]:
    return -(entry.gap or 0.0), -(entry.difference or 0.0), entry.task or ""


def _metric(rows: Sequence[SeatResult], metric: str | None) -> tuple[str, Bounds]:
    """The metric, by default the first headline with values, and its range, which must be closed."""
    ranges = {name: bounds for name, bounds in metric_bounds(rows).items() if all(map(math.isfinite, bounds))}
    present = {name for row in rows for name in row.values}
    if metric is None:
        metric = next((name for name in (*headlines(rows), *ranges) if name in present and name in ranges), None)
    if metric is None:
        raise InvalidValueError(
            field="metric", expected="episodes with scores in a closed range", hint="evaluate them first"
        )
    if metric not in ranges:
        raise UnknownNameError(field="metric", got=metric, valid=ranges)
    return metric, ranges[metric]


def _gap(task: str, scenario: str, values: dict[str, list[float]], target: str, bounds: Bounds) -> Entry | None:
    """The gap of one task; ``None`` if the target or all other policies have fewer than two values."""
    low, high = bounds
    # A standard deviation needs two values.
    enough = {policy: numbers for policy, numbers in sorted(values.items()) if len(numbers) > 1}
    own = enough.get(target)
    if own is None or len(enough) < 2:
        return None
    most = {policy: min(high, _limit(numbers, _DEVIATIONS)) for policy, numbers in enough.items()}
    # Clipping makes ties common: the better mean decides, then the name, since ``enough`` is sorted.
    best = max(most, key=lambda policy: (most[policy], statistics.fmean(enough[policy])))
    least = max(low, _limit(own, -_DEVIATIONS))
    difference = statistics.fmean(enough[best]) - statistics.fmean(own)
    numbers = (most[best] - least, most[best], least, difference)
    # Rounded, so that equal gaps are equal despite rounding errors, and the order falls to the difference.
    gap, greatest, least, difference = (round(number, 6) for number in numbers)
    return Entry(scenario=scenario, task=task, gap=gap, high=greatest, by=best, low=least, difference=difference)


def _limit(values: Sequence[float], deviations: int) -> float:
    return statistics.fmean(values) + deviations * statistics.stdev(values)


# --- the held-out difference --------------------------------------------------------------------------------------

Values = Mapping[str, Mapping[str, Sequence[float]]]
"""The values of seats by scenario and policy."""
_SCENARIOS, _PRIOR = 4, 4


@dataclass(frozen=True, slots=True)
class _Difference:
    """The plain difference of one scenario, with the variance of its error and the number of its values."""

    mean: float
    variance: float
    values: int


def shrunken(values: Values, target: str) -> dict[str, HeldOut]:
    """Returns the shrunken difference of every scenario in which the target and another policy have a value.

    Args:
        values: the values of episodes that did not choose the scenarios.
        target: the policy that is subtracted from the others.

    Raises:
        InvalidValueError: there are fewer than four such scenarios, or no policy has two values in one of them.
    """
    known = {scenario: item for scenario, item in sorted(values.items()) if item.get(target) and len(item) > 1}
    if len(known) < _SCENARIOS:
        raise InvalidValueError(
            field="held_out",
            expected=f"at least {_SCENARIOS} scenarios with values of {target!r} and of another policy",
            got=len(known),
            hint="play more scenarios",
        )
    spreads = {scenario: _spread(item) for scenario, item in known.items()}
    pooled = _common_variance(spreads.values())
    differences = {scenario: _difference(item, target, spreads[scenario], pooled) for scenario, item in known.items()}
    return _shrink(differences)


def _spread(values: Mapping[str, Sequence[float]]) -> tuple[float, int]:
    """The squared deviations of values from the mean of their policy, and their degrees of freedom."""
    groups = [group for group in values.values() if len(group) > 1]
    squares = math.fsum(statistics.variance(group) * (len(group) - 1) for group in groups)
    return squares, sum(len(group) - 1 for group in groups)


def _common_variance(spreads: Iterable[tuple[float, int]]) -> float:
    squares, freedom = map(sum, zip(*spreads, strict=True))
    if not squares:
        raise InvalidValueError(
            field="held_out",
            expected="values of a policy that vary within a scenario, to tell chance from difficulty",
            got="two values nowhere" if not freedom else "equal values everywhere",
            hint="play repeats or both seats" if not freedom else "without chance, the means of `compare` are enough",
        )
    return squares / freedom


def _difference(
    values: Mapping[str, Sequence[float]], target: str, spread: tuple[float, int], common: float
) -> _Difference:
    others = [numbers for policy, numbers in values.items() if policy != target]
    mean = statistics.fmean(map(statistics.fmean, others)) - statistics.fmean(values[target])
    parts = math.fsum(1 / len(numbers) for numbers in others) / len(others) ** 2 + 1 / len(values[target])
    variance = (_PRIOR * common + spread[0]) / (_PRIOR + spread[1])
    return _Difference(mean, variance * parts, sum(map(len, values.values())))


def _shrink(differences: Mapping[str, _Difference]) -> dict[str, HeldOut]:
    items, count = list(differences.values()), len(differences)
    between = _between(items)
    mean, total = _centre(items, between)
    reach = critical_value(0.05, count - 1)
    result = {}
    for scenario, item in differences.items():
        # Morris 1983: the unbiased shrinkage of an estimated variance, (G - 3) / (G - 1) of the naive one.
        lost = (count - 3) / (count - 1) * item.variance / (between + item.variance)
        shift = item.mean - mean
        doubt = 2 / (count - 3) * (lost * shift) ** 2 * total / (between + item.variance)
        half = reach * math.sqrt((1 - lost) * item.variance + lost * total / count + doubt)
        middle = item.mean - lost * shift
        numbers = (round(number, 6) for number in (middle, middle - half, middle + half))
        result[scenario] = HeldOut(**dict(zip(("mean", "low", "high"), numbers, strict=True)), values=item.values)
    return result


def _centre(items: Sequence[_Difference], between: float) -> tuple[float, float]:
    """The mean of differences weighed by their precision, and the mean variance of one of them by these weights."""
    weights = [1 / (between + item.variance) for item in items]
    whole = math.fsum(weights)
    mean = math.fsum(weight * item.mean for weight, item in zip(weights, items, strict=True)) / whole
    return mean, len(items) / whole


def _between(items: Sequence[_Difference]) -> float:
    """The variance between scenarios of Paule and Mandel (1982): with it, weighted squares equal their expectation."""

    def excess(between: float) -> float:
        mean, _ = _centre(items, between)
        squares = ((item.mean - mean) ** 2 / (between + item.variance) for item in items)
        return math.fsum(squares) - (len(items) - 1)

    low, high = 0.0, sum((item.mean - items[0].mean) ** 2 for item in items)
    for _ in range(60 if excess(0.0) > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


def _held_out_values(
    runs: Sequence[str | Path], chosen_by: Sequence[SeatResult], metric: str, evaluator: str | None
) -> Values:
    _, rows = run_rows(runs, evaluator)
    known = {(row.key, row.seed, row.task) for row in chosen_by}
    shared = sorted({row.key for row in rows if (row.key, row.seed, row.task) in known})
    if shared:
        raise InvalidValueError(
            field="held_out",
            expected="episodes that are not among those that chose the tasks",
            got=shared[0],
            hint="play them with another --seed",
        )
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if metric in row.values:
            values[row.scenario][row.policy].append(row.values[metric])
    return values
