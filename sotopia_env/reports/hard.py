"""Hard tasks by the rule of SOTOPIA §7: tasks in which the best of all policies is far above the target's worst.

The gap of a task is the greatest ``mean + 3 sd`` over all policies, including the target, minus ``mean - 3 sd`` of the
target. Both are clipped to the metric's range; ``sd`` is the sample standard deviation (divisor n - 1). A task in which
only the target varies widely is therefore hard, too. Clipping makes many gaps equal; among these, the task with the
greater difference of the two means comes first.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_whole
from sotopia_env.reports.compare import run_rows
from sotopia_env.reports.intervals import Bounds
from sotopia_env.reports.seat_results import SeatResult, headlines, metric_bounds
from sotopia_env.tasks.selection import Entry, Selection

_DEVIATIONS = 3


def hard_tasks(
    runs: Iterable[str | Path], target: str, top: int = 20, *, metric: str | None = None, evaluator: str | None = None
) -> Selection:
    """Returns the ``top`` tasks that are hardest for ``target``, over all seats, partners and repeats of some runs.

    Args:
        runs: run directories or ``.jsonl`` files of episodes.
        target: the label of a policy in the runs.
        top: the maximum number of tasks.
        metric: a metric with a closed range; by default that of a ranking
            (:func:`~sotopia_env.reports.seat_results.headlines`).
        evaluator: the evaluator whose scores to use; by default the one that all episodes share.

    Raises:
        UnknownNameError: the policy, metric or evaluator is unknown.
        InvalidValueError: ``top`` is not a whole number of at least 1, the metric does not have a closed range, or
            there is not a task with at least two values of the target and of another policy.
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
    tasks = len({row.task for row in rows})
    return Selection(
        about=f"the {min(top, len(entries))} hardest tasks for {target}, by the gap of {metric} to the best of all",
        target=target,
        policies=policies,
        metric=metric,
        evaluator=name,
        compared=len(entries),
        left_out=tasks - len(entries),
        entries=tuple(entries[:top]),
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
