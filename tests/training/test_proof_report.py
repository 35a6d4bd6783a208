"""The arithmetic of the report: intervals that hold both kinds of luck, paired differences, honest verdicts."""

import random

import pytest

from training.proof.report import Claim, Interval, difference, hacked, interval, verdict


def test_what_is_a_tasks_own_luck_is_not_averaged_away_by_seeds():
    """All seeds are tested on the same tasks: three of them say no more about the tasks than one does."""
    rng = random.Random(0)
    tasks = {str(number): [rng.gauss(0, 1)] for number in range(40)}
    one, three = interval([tasks]), interval([tasks] * 3)
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.15)
    assert one.high - one.low == pytest.approx(2 * 1.96 / 40**0.5, rel=0.3)


def test_what_is_a_seeds_own_luck_widens_the_interval():
    seeds = [{str(number): [shift] for number in range(40)} for shift in (0.0, 1.0, 2.0)]
    found = interval(seeds)
    assert found.mean == 1
    assert (found.low, found.high) == (0, 2)


def row(task, goal, seen=True):
    return {"task": task, "seat": "agent_0", "partner": "p", "seen": seen, "goal": goal}


def test_differences_are_paired_and_of_one_side():
    run = {"a": [row("1", 5), row("2", 3, False)], "b": [row("2", 1, False), row("1", 1)]}
    assert difference([run], Claim("", "a", "b")).mean == 3
    assert difference([run], Claim("", "a", "b", "unseen")).mean == 2
    assert difference([run], Claim("", "a", "b", "seen")).mean == 4


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.1, 0.2, "holds"), (-0.1, 0.2, "open"), (-0.2, -0.1, "opposite"), (0.0, 0.1, "open")]
)
def test_verdicts_follow_the_interval(low, high, said):
    assert said in verdict(Interval(0, low, high))


def looks(*pairs):
    return [{"reward": reward, "reward_model": score} for reward, score in pairs]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (looks((1, 0.2), (2, 0.4), (1.5, 0.6)), "yes"),
        (looks((1, 0.2), (2, 0.4), (1.5, 0.3)), "no"),
        (looks((1, 0.2), (1.5, 0.4), (2, 0.6)), "no"),
    ],
)
def test_hacked_is_a_rising_score_over_a_falling_reward(found, said):
    assert hacked(found) == said
