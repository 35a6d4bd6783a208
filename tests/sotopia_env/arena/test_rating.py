"""Simulated arenas with known strengths: recovered, covered as often as promised, and no wrong order between groups."""

import itertools
import random

import numpy as np
import pytest

from sotopia_env.arena.rating import bradley_terry, needs, rate, superiority
from sotopia_env.arena.rows import Row
from sotopia_env.errors import InvalidValueError
from tests.errors import raises

STRENGTHS = (0.3, 0.2, 0.12, 0.1, 0.0, -0.1, -0.2, -0.42)


def arena(seed: int, tasks: int, strengths=STRENGTHS, opponents: int = 5) -> list[Row]:
    """Payoffs with effects of policy, opponent, task, seat and order, and of every policy in every task."""
    rng = np.random.default_rng(seed)
    suits = rng.normal(0, 0.25, (len(strengths), tasks))
    hard, strong = rng.normal(0, 0.5, tasks), rng.normal(0, 0.3, opponents)
    return [
        Row(
            key=f"{p}-{o}-{t}-{seat}",
            task=f"task-{t:02}",
            seat=seat,
            first=(t + seat) % 2 == 0,
            seed=t,
            policy=f"policy-{p}",
            opponent=f"opponent-{o}",
            payoff=strength + suits[p, t] + hard[t] - strong[o] + 0.1 * seat + rng.normal(0, 0.3),
            opponent_payoff=None,
        )
        for p, strength in enumerate(strengths)
        for o in range(opponents)
        for t in range(tasks)
        for seat in (0, 1)
    ]


@pytest.mark.parametrize("tasks", [24, 8])
def test_intervals_cover_the_true_strengths(tasks):
    covered, wrong_orders, arenas = 0, 0, 100
    truth = {f"policy-{p}": strength - np.mean(STRENGTHS) for p, strength in enumerate(STRENGTHS)}
    for seed in range(arenas):
        rating = rate(arena(seed, tasks, opponents=2))
        covered += sum(s.low <= truth[p] <= s.high for p, s in rating.strengths.items())
        ranks = {p: sorted(truth.values(), reverse=True).index(value) + 1 for p, value in truth.items()}
        wrong_orders += any(not rank.best <= ranks[p] <= rank.worst for p, rank in rating.ranks.items())
    assert 0.93 <= covered / (arenas * len(STRENGTHS)) <= 0.97
    assert wrong_orders / arenas <= 0.1  # 5 % and two standard errors


def crossed(seed: int, tasks: int, strengths=STRENGTHS[:5]) -> list[Row]:
    """Cross play: what one seat gains by luck, the other one loses, and every policy is an opponent, too."""
    rng = np.random.default_rng(seed)
    suits, hard = rng.normal(0, 0.25, (len(strengths), tasks)), rng.normal(0, 0.5, tasks)
    rows = []
    for p, o in itertools.permutations(range(len(strengths)), 2):
        for t in range(tasks):
            luck = rng.normal(0, 0.3)
            for seat, (own, other, sign) in enumerate(((p, o, 1), (o, p, -1))):
                payoff = strengths[own] + suits[own, t] - suits[other, t] / 2 + hard[t] + 0.1 * seat + sign * luck
                common = {"key": f"{p}-{o}-{t}", "task": f"t{t}", "seat": seat, "first": seat == 0, "seed": t}
                names = {"policy": f"policy-{own}", "opponent": f"policy-{other}"}
                rows.append(Row(**common, **names, payoff=payoff, opponent_payoff=None))
    return rows


def test_intervals_of_cross_play_cover_the_true_strengths():
    strengths, covered, arenas = STRENGTHS[:5], 0, 200
    truth = {f"policy-{p}": strength - np.mean(strengths) for p, strength in enumerate(strengths)}
    for seed in range(arenas):
        rating = rate(crossed(seed, 12))
        covered += sum(s.low <= truth[p] <= s.high for p, s in rating.strengths.items())
    assert 0.93 <= covered / (arenas * len(strengths)) <= 0.97


def test_strengths_are_recovered_where_policies_met_different_opponents():
    rows = arena(3, 60)
    # Without its strongest opponents, the plain mean of a policy would rise.
    rows = [row for row in rows if row.policy != "policy-7" or row.opponent in ("opponent-0", "opponent-1")]
    rating = rate(rows)
    assert rating.policies[-1] == "policy-7"
    for p, strength in enumerate(STRENGTHS):
        estimate = rating.strengths[f"policy-{p}"]
        assert estimate.mean == pytest.approx(strength - np.mean(STRENGTHS), abs=0.12)


def test_equal_policies_are_one_group():
    rating = rate(arena(5, 24, strengths=(0.1, 0.1, 0.1, -1.0)))
    assert sorted(rating.groups.values()) == [1, 1, 1, 2]
    assert {rank.places for rank in rating.ranks.values()} == {"1-3", "4"}


def test_policies_without_a_common_opponent_cannot_be_rated():
    rows = [row for row in arena(1, 6, (0.0, 0.1), 2) if row.policy[-1] == row.opponent[-1]]
    with raises(InvalidValueError, field="policies"):
        rate(rows)
    with raises(InvalidValueError, field="tasks"):
        rate([row for row in rows if row.task == "task-00"])


def test_wins_and_losses():
    rows = arena(2, 24)
    first, last = (superiority(rows, *pair) for pair in (("policy-0", "policy-7"), ("policy-7", "policy-0")))
    assert first.low > 0.5 > last.high
    assert first.mean == pytest.approx(1 - last.mean)
    elo = bradley_terry(rows, [f"policy-{p}" for p in range(len(STRENGTHS))])
    assert max(elo, key=lambda p: elo[p].mean) == "policy-0"
    assert min(elo, key=lambda p: elo[p].mean) == "policy-7"
    assert np.mean([e.mean for e in elo.values()]) == pytest.approx(1000)
    assert superiority(rows, "policy-0", "nobody") is None


def test_bradley_terry_recovers_odds():
    """A policy that wins 10 of 11 matches against another is 400 points stronger."""
    rng = random.Random(0)
    rows = []
    for match in range(1100):
        wins = rng.random() < 10 / 11
        common = {"key": "k", "task": f"t{match % 20}", "seat": 0, "first": True, "seed": match, "opponent": "o"}
        rows += [Row(**common, policy=p, payoff=float(y), opponent_payoff=0) for p, y in (("a", wins), ("b", not wins))]
    elo = bradley_terry(rows, ["a", "b"])
    assert elo["a"].mean - elo["b"].mean == pytest.approx(400, abs=60)


def test_the_forecast_of_tasks_reaches_its_power():
    """With the tasks that a difference is said to need, about 80 % of the arenas find it."""
    strengths = (0.1, -0.1)
    (need,) = needs(rate(arena(0, 150, strengths, 2)), 10, [0.2])
    found = 0
    for seed in range(100):
        gap = rate(arena(1000 + seed, need.tasks, strengths, 2)).gaps
        found += any(not item.low <= 0 <= item.high for item in gap.values())
    assert 0.7 <= found / 100 <= 0.9


def test_an_unscored_seat_is_neither_a_win_nor_a_loss():
    rows = []
    for match in range(10):
        common = {"key": "k", "task": f"t{match}", "seat": 0, "first": True, "seed": match, "opponent": "o"}
        for policy, payoff in (("a", 0.2), ("b", None if match % 2 else 0.3)):
            rows.append(Row(**common, policy=policy, payoff=payoff, opponent_payoff=0))
    result = superiority(rows, "a", "b")
    assert (result.n, result.mean) == (5, 0.0)
