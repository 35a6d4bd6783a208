"""The claims: intervals that hold both kinds of luck, paired differences and honest verdicts."""

import random

import pytest

from sotopia_env.reports.intervals import UNBOUNDED, exact_ends
from studies.learn.claims import Claim, Interval, difference, gain_range, interval, over_seeds, p_values, verdict


def test_variation_between_tasks_is_not_averaged_away_by_seeds():
    """All seeds are tested on the same tasks: three of them say no more about the tasks than one does."""
    rng = random.Random(0)
    tasks = {str(number): [rng.gauss(0, 1)] for number in range(40)}
    one, three = interval([tasks], (-9, 9)), interval([tasks] * 3, (-9, 9))
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.15)
    assert one.high - one.low == pytest.approx(2 * 1.96 / 40**0.5, rel=0.3)


def test_variation_between_seeds_widens_the_interval():
    seeds = [{str(number): [shift] for number in range(40)} for shift in (0.0, 1.0, 2.0)]
    wide = interval(seeds, (-9, 9))
    assert (wide.low, wide.mean, wide.high) == (0, 1, 2)


@pytest.mark.parametrize(
    ("equal", "units"),
    [
        (lambda: over_seeds([0.5] * 3, gain_range("goal")), 3),
        (lambda: interval([{str(number): [0.5, 0.5] for number in range(12)}], gain_range("goal")), 12),
        (lambda: interval([{"one": [0.5]}], gain_range("goal")), 1),
        (lambda: interval([{str(number): [0.5] for number in range(12)}] * 3, gain_range("goal")), 3),
    ],
)
def test_what_does_not_vary_is_not_certain(equal, units):
    """Three equal seeds, or twelve equal tasks, hold nothing by their equality."""
    gain = equal()
    assert (gain.low, gain.high) == exact_ends(0.5, units, (-10.0, 10.0))
    assert gain.low < 0 < gain.high
    assert verdict(gain).startswith("open")


def test_equal_scores_without_a_range_say_nothing():
    assert over_seeds([0.5] * 3, UNBOUNDED) == Interval(0.5, float("-inf"), float("inf"))


def row(task, goal, seen=True):
    return {"task": task, "family": "f", "seat": "agent_0", "partner": "p", "seen": seen, "goal": goal}


def test_differences_are_paired_and_of_one_side():
    run = {"a": [row("1", 5), row("2", 3, False)], "b": [row("2", 1, False), row("1", 1)]}
    assert difference([run], Claim("", "a", "b")).mean == 3
    assert difference([run], Claim("", "a", "b", "unseen")).mean == 2
    assert difference([run], Claim("", "a", "b", "seen")).mean == 4


@pytest.mark.parametrize(
    ("low", "high", "margin", "said"),
    [
        (0.1, 0.2, 0, "holds"),
        (-0.1, 0.2, 0, "open: the interval holds 0"),
        (-0.2, -0.1, 0, "opposite"),
        (0.0, 0.1, 0, "open"),
        (-0.2, 0.1, 0.25, "holds"),
        (-0.3, 0.1, 0.25, "open: the interval holds -0.25"),
        (-0.4, -0.3, 0.25, "opposite"),
    ],
)
def test_verdicts_follow_the_interval(low, high, margin, said):
    assert said in verdict(Interval(0, low, high), margin)


def test_claims_that_are_not_required_need_their_adjusted_p_too():
    assert verdict(Interval(0, 0.1, 0.2), p=0.049) == "holds"
    assert verdict(Interval(0, 0.1, 0.2), p=0.05) == "open: p is not below 0.05"


def test_p_values_are_those_of_a_t_test_adjusted_by_benjamini_and_hochberg():
    """0.5 ± 0.1 over three seeds: t = 8.66, p = 0.0131; the largest of two is not raised, the smaller one doubled."""
    assert p_values([(0.4, 0.5, 0.6), (-0.1, 0.0, 0.2)], [0, 0]) == pytest.approx([2 * 0.01307, 0.7418], rel=1e-3)
    assert p_values([(0.4, 0.5, 0.6)], [0.5]) == pytest.approx([0.00332], rel=1e-2)


def test_seeds_with_equal_means_are_no_evidence_and_do_not_lower_other_p_values():
    one, other = p_values([(0.5, 0.5, 0.5), (0.4, 0.5, 0.6)], [0, 0])
    assert one == 1
    assert other == pytest.approx(2 * 0.01307, rel=1e-3)
