"""Intervals of attribution figures over tasks: their coverage, their reasons, and the mean of families."""

import random

import pytest

from studies.attribution_accuracy.accuracy import ALL, RewardedAction, accuracies
from studies.attribution_accuracy.probes import Truth


def actions(rng, family, tasks, per_task=8, noise=0.6):
    """Actions whose reward says nothing about their worth on average, but does in single tasks, for or against it."""
    for task in range(tasks):
        slope = noise * rng.gauss(0, 1)
        for number in range(per_task):
            worth = rng.gauss(0, 1)
            name = f"{family}/{task}"
            reward = slope * worth + rng.gauss(0, 1)
            yield RewardedAction(family, name, f"{name}/{number // 4}", Truth((worth, worth)), reward)


def row_of(items):
    return accuracies({("someone", "direct"): list(items)})[-1]


@pytest.mark.parametrize(("families", "runs", "lowest"), [(1, 250, 0.915), (3, 60, 0.88)])
def test_few_tasks_are_covered(families, runs, lowest):
    """A percentile bootstrap over six tasks of one family contains the truth in .80 to .86."""
    rng, hits = random.Random(1), dict.fromkeys(("correlation", "sign", "ranking"), 0)
    for _ in range(runs):
        row = row_of(item for family in range(families) for item in actions(rng, str(family), 6))
        for name, chance in (("correlation", 0.0), ("sign", 0.5), ("ranking", 0.5)):
            figure = getattr(row, name)
            hits[name] += figure.low <= chance <= figure.high
    assert min(hits.values()) / runs > lowest


def test_a_family_without_an_interval_leaves_the_mean_without_one():
    rng = random.Random(2)
    good, few = list(actions(rng, "a", 6)), list(actions(rng, "b", 3))
    rows = {row.family: row for row in accuracies({("x", "y"): [*good, *few]})}
    assert rows["a"].ranking.low < rows["a"].ranking.mean < rows["a"].ranking.high
    assert (rows["a"].ranking.clusters, rows["b"].ranking.clusters, rows[ALL].ranking.clusters) == (6, 3, 9)
    for family in ("b", ALL):
        assert (rows[family].ranking.low, rows[family].ranking.high) == (None, None)
        assert "3 tasks" in rows[family].ranking.missing
    assert rows[ALL].ranking.missing.startswith("b: ")


@pytest.mark.parametrize("tasks", [1, 5])
def test_what_does_not_vary_has_no_interval(tasks):
    """All pairs right, or all equal: neither is certainty about other tasks."""
    for reward in (float, lambda _: 1.0):
        items = [
            RewardedAction("a", str(task), str(task), Truth((worth, worth)), reward(worth))
            for task in range(tasks)
            for worth in (1.0, 2.0, 3.0)
        ]
        ranking = row_of(items).ranking
        assert ranking.low is None
        assert f"{tasks} tasks" in ranking.missing


def test_only_tasks_that_decide_a_figure_are_counted():
    items = list(actions(random.Random(3), "a", 5))
    undecided = [RewardedAction("a", f"u{task}", f"u{task}", Truth((9.0, -9.0)), 0.0) for task in range(20)]
    few, many = row_of(items).ranking, row_of([*items, *undecided]).ranking
    assert (many.clusters, many.low, many.high) == (few.clusters, few.low, few.high)


def test_the_mean_of_families_is_narrower_than_its_families_and_centred_on_their_mean():
    rng = random.Random(4)
    rows = accuracies({("x", "y"): [item for family in "abcd" for item in actions(rng, family, 12)]})
    *families, whole = rows
    assert whole.ranking.mean == pytest.approx(sum(row.ranking.mean for row in families) / 4)
    widths = [row.ranking.high - row.ranking.low for row in rows]
    # Four independent families of one width have half of it, and more degrees of freedom.
    assert 0.4 < widths[-1] / (sum(widths[:-1]) / 4) < 0.55
