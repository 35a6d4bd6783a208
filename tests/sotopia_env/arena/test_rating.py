"""Simulated arenas with known strengths: recovered, covered as often as promised, and no wrong order between groups."""

import itertools
import random

import numpy as np
import pytest

from sotopia_env.arena.rating import bradley_terry, needs, rate, superiority
from sotopia_env.arena.rows import CardRow
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.intervals import estimate, holm
from tests.errors import raises

STRENGTHS = (0.3, 0.2, 0.12, 0.1, 0.0, -0.1, -0.2, -0.42)


def arena(seed: int, tasks: int, strengths=STRENGTHS, opponents: int = 5) -> list[CardRow]:
    """Payoffs with effects of policy, opponent, task, seat and order, and of every policy in every task."""
    rng = np.random.default_rng(seed)
    suits = rng.normal(0, 0.25, (len(strengths), tasks))
    hard, strong = rng.normal(0, 0.5, tasks), rng.normal(0, 0.3, opponents)
    return [
        CardRow(
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


def test_the_interval_of_a_policy_that_played_few_tasks_is_wide_enough():
    covered, arenas, others = 0, 200, STRENGTHS[:5]
    truth = others[0] - np.mean(others)
    for seed in range(arenas):
        rows = [r for r in arena(seed, 8, others, 2) if r.policy != "policy-0" or r.task < "task-04"]
        strength = rate(rows).strengths["policy-0"]
        covered += strength.low <= truth <= strength.high
    # With the degrees of freedom of all eight tasks it would be 0.87.
    assert 0.92 <= covered / arenas <= 0.99
    (gap,) = [gap for pair, gap in rate(rows).gaps.items() if pair == ("policy-0", "policy-1")]
    assert 4 <= gap.clusters < 8


def test_a_policy_that_played_one_task_has_no_interval():
    rows = [r for r in arena(1, 8, STRENGTHS[:3], 2) if r.policy != "policy-0" or r.task == "task-00"]
    rating = rate(rows)
    assert rating.gaps["policy-0", "policy-1"].low is None
    assert rating.ranks["policy-0"].places == "1-3"


def test_every_task_has_the_same_weight_whatever_its_seats():
    rng = np.random.default_rng(0)
    rows, by_task = [], {}
    for p, t in itertools.product(range(2), range(6)):
        seats = 2 if t % 2 else 5
        for seat, o in itertools.product(range(seats), range(2)):
            payoff = (p + 1) * t / 10 + 0.1 * (seat == t % seats) + rng.normal(0, 0.1)
            common = {"key": f"{p}{o}{t}", "task": f"t{t}", "seat": seat, "first": seat == t % seats, "seed": t}
            rows.append(CardRow(**common, policy=f"p{p}", opponent=f"o{o}", payoff=payoff, opponent_payoff=None))
            by_task.setdefault((p, t), []).append(payoff)
    rating = rate(rows)
    means = {f"p{p}": np.mean([np.mean(by_task[p, t]) for t in range(6)]) for p in range(2)}
    for policy, mean in means.items():
        assert rating.means[policy].mean == pytest.approx(mean)
        assert rating.strengths[policy].mean == pytest.approx(mean - np.mean(list(means.values())))


def crossed(seed: int, tasks: int, strengths=STRENGTHS[:5]) -> list[CardRow]:
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
                rows.append(CardRow(**common, **names, payoff=payoff, opponent_payoff=None))
    return rows


def test_intervals_of_cross_play_cover_the_true_strengths():
    strengths, covered, arenas = STRENGTHS[:5], 0, 200
    truth = {f"policy-{p}": strength - np.mean(strengths) for p, strength in enumerate(strengths)}
    for seed in range(arenas):
        rating = rate(crossed(seed, 12))
        covered += sum(s.low <= truth[p] <= s.high for p, s in rating.strengths.items())
    assert 0.93 <= covered / (arenas * len(strengths)) <= 0.97


def unevenly_lost(seed: int, tasks: int, strengths=STRENGTHS[:4], opponents: int = 4):
    """An arena in which policies suit opponents, and lose 60 to 80 % of the seats beside some; with the true means."""
    fixed = np.random.default_rng(0)
    suits = fixed.normal(0, 0.25, (len(strengths), opponents))
    lost = fixed.choice([0, 0, 0.6, 0.8], suits.shape)
    rng, rows = np.random.default_rng(seed), []
    for row in arena(seed, tasks, strengths, opponents):
        pair = int(row.policy[-1]), int(row.opponent[-1])
        if rng.random() >= lost[pair]:
            rows.append(row.model_copy(update={"payoff": row.payoff + suits[pair]}))
    return rows, np.array(strengths) + suits.mean(axis=1)


@pytest.mark.parametrize("tasks", [8, 20])
def test_opponents_weigh_the_same_however_many_seats_are_lost(tasks):
    covered, arenas = 0, 60
    for seed in range(arenas):
        rows, means = unevenly_lost(seed, tasks)
        strengths = rate(rows).strengths
        for p, truth in enumerate(means - means.mean()):
            covered += strengths[f"policy-{p}"].low <= truth <= strengths[f"policy-{p}"].high
    # With the weight of their rows, it would be 0.87 with 20 tasks, and less with more.
    assert 0.93 <= covered / (arenas * len(means)) <= 0.98


def test_means_of_whole_arenas_have_the_interval_of_their_tasks_means():
    rows = arena(3, 8, STRENGTHS[:3], 2)
    for policy, mean in rate(rows).means.items():
        own = [row for row in rows if row.policy == policy]
        plain = estimate([row.payoff for row in own], [row.task for row in own])
        assert (mean.low, mean.mean, mean.high) == pytest.approx((plain.low, plain.mean, plain.high))


def test_a_mean_without_an_opponent_is_less_certain():
    rows = arena(3, 24, STRENGTHS[:3], 3)
    lost = [row for row in rows if (row.policy, row.opponent) != ("policy-0", "opponent-2")]
    whole, partly = rate(rows).means, rate(lost).means
    assert partly["policy-0"].high - partly["policy-0"].low > whole["policy-0"].high - whole["policy-0"].low
    assert partly["policy-1"].mean == pytest.approx(whole["policy-1"].mean, abs=0.03)


def test_ranks_hold_together_by_holm_as_in_a_comparison():
    """After the clearest difference the others are tested at a higher level than with a third of it for each."""
    seeds = range(60)
    ratings = [rate(arena(seed, 12, (0.5, 0.15, 0.0), 2)) for seed in seeds]
    apart = sum("policy-2" not in rating.ranks["policy-1"].ties for rating in ratings)
    bonferroni = sum(3 * rating.gap("policy-1", "policy-2").p < 0.05 for rating in ratings)
    assert apart > bonferroni
    for rating in ratings:
        p_values = holm([gap.p for gap in rating.gaps.values()])
        for pair, p in zip(rating.gaps, p_values, strict=True):
            assert (pair[1] not in rating.ranks[pair[0]].ties) == (p < 0.05)


def test_rows_lost_beside_one_opponent_do_not_move_a_mean():
    rows = [
        row.model_copy(update={"payoff": 0.1 * int(row.opponent[-1]) + 0.01 * int(row.task[-2:])})
        for row in arena(0, 8, (0.0, 0.0), 3)
    ]
    lost = [row for row in rows if (row.policy, row.opponent) != ("policy-0", "opponent-2") or row.task < "task-02"]
    means = rate(lost).means
    assert means["policy-0"].mean == pytest.approx(rate(rows).means["policy-0"].mean)
    assert means["policy-0"].mean == pytest.approx(means["policy-1"].mean)


@pytest.mark.parametrize("share", [0.049, 0.2])
def test_a_policy_that_fails_where_it_goes_badly_is_not_ranked_wrongly(share):
    """Equal policies, of which two fail in the seats with the least payoffs: a rank among them is wrong."""
    wrong, arenas, failing = 0, 60, ("policy-0", "policy-1")
    shares = dict.fromkeys(failing, 1 - share)
    for seed in range(arenas):
        rows = arena(seed, 16, (0.0,) * 4, 2)
        least = {p: np.quantile([row.payoff for row in rows if row.policy == p], share) for p in failing}
        failed = [row for row in rows if row.payoff < least.get(row.policy, -np.inf)]
        kept = [row for row in rows if row.payoff >= least.get(row.policy, -np.inf)]
        worst = min(row.payoff for row in kept)
        second = rate([*kept, *[row.model_copy(update={"payoff": worst}) for row in failed]], shares)
        rating = rate(kept, shares, second)
        wrong += len(set(rating.groups.values())) > 1 or any(rank.best > 1 for rank in rating.ranks.values())
        assert set(rating.ranks) & set(failing) == (set() if share > 0.05 else set(failing))
        assert set(failing) < set(rating.strengths)
    assert wrong / arenas <= 0.06


def test_what_did_not_vary_tells_no_policies_apart():
    rows = [row.model_copy(update={"payoff": float(row.policy == "policy-0")}) for row in arena(1, 4, (0.1, 0.0), 2)]
    rating = rate(rows)
    gap = rating.gaps["policy-0", "policy-1"]
    assert (gap.mean, gap.low, gap.high, gap.p) == (1, None, None, None)
    assert set(rating.groups.values()) == {1}


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


def test_policies_that_play_alike_are_tied_in_spite_of_rounding():
    rows = [row for row in arena(7, 20, (0.3, 0.1), 3) if row.policy == "policy-0"]
    # Policies that also met themselves have different opponents, so that the effects are not equal to the last bit.
    alike = [
        row.model_copy(update={"policy": name})
        for name in ("a", "b", "c", "opponent-0")
        for row in rows
        if row.opponent != name
    ]
    alike = [row.model_copy(update={"payoff": 0.1 * row.seat + int(row.task[-2:]) / 7}) for row in alike]
    rating = rate(alike)
    assert set(rating.groups.values()) == {1}
    assert {rank.places for rank in rating.ranks.values()} == {"1-4"}
    assert rating.policies == ("a", "b", "c", "opponent-0")


def test_policies_without_a_common_opponent_cannot_be_rated():
    rows = [row for row in arena(1, 6, (0.0, 0.1), 2) if row.policy[-1] == row.opponent[-1]]
    with raises(InvalidValueError, field="results"):
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


def test_what_never_varied_is_not_certain():
    """With few tasks, a policy that always won may lose the next time."""
    rows = [row.model_copy(update={"payoff": float(row.policy == "policy-0")}) for row in arena(2, 4, (0.1, 0.0), 2)]
    always, never = superiority(rows, "policy-0", "policy-1"), superiority(rows, "policy-1", "policy-0")
    assert (always.mean, always.high) == (1, 1)
    assert always.low == pytest.approx(0.025 ** (1 / 4))
    assert (never.low, never.high) == (0, pytest.approx(1 - always.low))
    elo = bradley_terry(rows, ["policy-0", "policy-1"])
    assert all(points.low is None for points in elo.values())


def test_bradley_terry_recovers_odds():
    """A policy that wins 10 of 11 matches against another is 400 points stronger."""
    rng = random.Random(0)
    rows = []
    for match in range(1100):
        wins = rng.random() < 10 / 11
        common = {"key": "k", "task": f"t{match % 20}", "seat": 0, "first": True, "seed": match, "opponent": "o"}
        rows += [
            CardRow(**common, policy=p, payoff=float(y), opponent_payoff=0) for p, y in (("a", wins), ("b", not wins))
        ]
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
            rows.append(CardRow(**common, policy=policy, payoff=payoff, opponent_payoff=0))
    result = superiority(rows, "a", "b")
    assert (result.n, result.mean) == (5, 0.0)
