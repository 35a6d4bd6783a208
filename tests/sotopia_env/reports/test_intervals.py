"""Means with intervals, checked against hand-made numbers, statsmodels and simulation."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.intervals import CROSSED, PARTICIPANTS, difference_estimate, estimate, holm, least_share
from sotopia_env.reports.seats.crossed import crossed_estimate


def test_estimate_by_hand() -> None:
    # Scenario means 2, 4, 9 with two values each: mean 5, s^2 = 13, SE = sqrt(13 / 3), t(0.975, 2) = 4.302653.
    result = estimate([1.0, 3.0, 4.0, 4.0, 8.0, 10.0], ["x", "x", "y", "y", "z", "z"])
    half = 4.302652729911275 * math.sqrt(13 / 3)
    assert (result.n, result.clusters, result.mean) == (6, 3, 5.0)
    assert (result.low, result.high) == pytest.approx((5 - half, 5 + half))


def test_every_scenario_weighs_the_same_by_hand() -> None:
    # Scenario means 2 (four values), 4 (one), 9 (one): mean 5 and not 3.5; the interval is that of three means.
    result = estimate([1.0, 3.0, 2.0, 2.0, 4.0, 9.0], ["x", "x", "x", "x", "y", "z"])
    half = 4.302652729911275 * math.sqrt(13 / 3)
    assert (result.n, result.clusters, result.mean) == (6, 3, 5.0)
    assert (result.low, result.high) == pytest.approx((5 - half, 5 + half))


@pytest.mark.parametrize("seed", range(5))
def test_estimate_is_statsmodels_cluster_robust_wls_also_when_unbalanced(seed: int) -> None:
    import statsmodels.api as sm

    generator = random.Random(seed)
    groups = [generator.randrange(7) for _ in range(60)]
    values = [group + generator.gauss(0, 2) for group in groups]
    weights = [1 / groups.count(group) for group in groups]
    fit = sm.WLS(np.array(values), np.ones((60, 1)), weights=np.array(weights)).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(groups), "use_correction": False}, use_t=True
    )
    count = len(set(groups))
    result = estimate(values, [str(group) for group in groups])
    assert result.mean == pytest.approx(fit.params[0])
    assert result.low is not None
    error = (result.mean - result.low) / stats.t.ppf(0.975, count - 1)
    assert error == pytest.approx(fit.bse[0] * math.sqrt(count / (count - 1)))


def test_interval_covers_the_truth_as_often_as_it_says_and_the_naive_one_does_not() -> None:
    generator, covered, naive, rounds = random.Random(11), 0, 0, 1500
    for _ in range(rounds):
        values, clusters = [], []
        for scenario in range(10):
            shift = generator.gauss(0, 1)
            values += [3.0 + shift + generator.gauss(0, 0.5) for _ in range(6)]
            clusters += [f"s{scenario}"] * 6
        result = estimate(values, clusters)
        alone = estimate(values, [str(i) for i in range(len(values))])
        assert result.low is not None
        assert result.high is not None
        assert alone.low is not None
        assert alone.high is not None
        covered += result.low <= 3.0 <= result.high
        naive += alone.low <= 3.0 <= alone.high
    assert 0.93 <= covered / rounds <= 0.97
    assert naive / rounds < 0.75


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        # Scenario means 2, 4, 9: mean 5, SE = sqrt(13 / 3), t(0.975, 2) = 4.302653; the delta method on each scale.
        ((0, 10), lambda h: 10 / (1 + math.exp(h * 10 / 25)), lambda h: 10 / (1 + math.exp(-h * 10 / 25))),
        ((0, math.inf), lambda h: 5 * math.exp(-h / 5), lambda h: 5 * math.exp(h / 5)),
        ((-math.inf, 10), lambda h: 10 - 5 * math.exp(h / 5), lambda h: 10 - 5 * math.exp(-h / 5)),
        ((-math.inf, math.inf), lambda h: 5 - h, lambda h: 5 + h),
    ],
)
def test_an_interval_by_hand_on_the_scale_of_its_range(bounds, low, high) -> None:  # type: ignore[no-untyped-def]
    result = estimate([2.0, 4.0, 9.0], ["x", "y", "z"], bounds)
    half = 4.302652729911275 * math.sqrt(13 / 3)
    assert (result.mean, result.low, result.high) == pytest.approx((5.0, low(half), high(half)))
    assert result.p == estimate([2.0, 4.0, 9.0], ["x", "y", "z"]).p


@pytest.mark.parametrize("truth", [0.1, 0.3, 0.5, 0.9])
def test_intervals_of_a_rate_stay_in_its_range_and_cover_the_truth(truth: float) -> None:
    """On the plain scale most of those of 0.1 and 0.9 leave the range, and too few cover."""
    generator, covered, rounds = random.Random(5), 0, 1000
    for _ in range(rounds):
        rates = [generator.betavariate(3 * truth, 3 - 3 * truth) for _ in range(12)]
        values = [float(generator.random() < rate) for rate in rates for _ in range(4)]
        result = estimate(values, [f"s{i // 4}" for i in range(48)], (0, 1))
        assert result.low is not None
        assert result.high is not None
        assert 0 <= result.low <= result.mean <= result.high <= 1
        covered += result.low <= truth <= result.high
    assert covered / rounds >= 0.92


def test_the_interval_of_a_difference_ends_where_no_difference_can_lie() -> None:
    values, clusters = [0.0, 10.0, 10.0], ["x", "y", "z"]
    plain = estimate(values, clusters)
    result = difference_estimate(values, clusters, (0, 10))
    assert plain.high is not None
    assert plain.high > 10
    assert (result.low, result.high, result.p) == (plain.low, 10.0, plain.p)
    assert difference_estimate(values, clusters, (0, math.inf)) == plain


@pytest.mark.parametrize(
    ("values", "clusters", "expected"),
    [
        ([2.0], ["x"], (1, 1, 2.0, None, None, None)),
        ([2.0, 4.0], ["x", "x"], (2, 1, 3.0, None, None, None)),
        ([2.0, 2.0], ["x", "y"], (2, 2, 2.0, None, None, None)),
        ([0.1] * 3, ["x", "y", "z"], (3, 3, pytest.approx(0.1), None, None, None)),
    ],
)
def test_degenerate_estimates_have_no_interval_and_no_nan(values, clusters, expected) -> None:  # type: ignore[no-untyped-def]
    result = estimate(values, clusters)
    assert (result.n, result.clusters, result.mean, result.low, result.high, result.p) == expected


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], [])])
def test_estimate_refuses_nothing(values: list[float], clusters: list[str]) -> None:
    with pytest.raises(InvalidValueError):
        estimate(values, clusters)


@pytest.mark.parametrize("count", [2, 8, 50])
def test_no_variation_has_the_exact_interval_of_a_closed_range_and_is_never_a_point(count: int) -> None:
    labels = [str(i) for i in range(count)]
    rate = estimate([1.0] * count, labels, (0, 1))
    exact = stats.binomtest(count, count).proportion_ci(method="exact")
    assert (rate.low, rate.high) == pytest.approx((exact.low, exact.high))
    middle = estimate([4.0] * count, labels, (0, 10))
    assert middle.low is not None
    assert middle.high is not None
    assert 0 < middle.low < 4 < middle.high < 10
    # A difference that is the largest possible in every scenario: its p-value agrees with its interval.
    gap = difference_estimate([1.0] * count, labels, (0, 1))
    assert gap.low is not None
    assert gap.p is not None
    assert (gap.low > 0) is (gap.p < 0.05) is (count > 5)
    assert (gap.high, difference_estimate([0.0] * count, labels, (0, 1)).p) == (1, 1)
    assert estimate([1.0] * count, labels, (-math.inf, 1)).low is None


@pytest.mark.parametrize(("failures", "size"), [(1, 4), (1, 20), (3, 50), (20, 50)])
def test_an_interval_reaches_as_near_to_an_end_of_its_range_as_the_exact_one(failures: int, size: int) -> None:
    labels, exact = [str(i) for i in range(size)], stats.binomtest(failures, size).proportion_ci(method="exact")
    assert least_share(failures, size) == pytest.approx(exact.low)
    values = [0.0] * failures + [1.0] * (size - failures)
    assert (estimate(values, labels, (0, 1)).high or 0) >= 1 - exact.low
    assert (crossed_estimate([(1.0, values, labels, [(name,) for name in labels])], (0, 1)).high or 0) >= 1 - exact.low
    assert (estimate([1 - value for value in values], labels, (0, 1)).low or 1) <= exact.low


def test_crossed_people_and_scenarios_are_two_way_clusters_by_hand() -> None:
    import statsmodels.api as sm
    from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

    generator = np.random.default_rng(3)
    people, scenarios = (index.ravel() for index in np.indices((6, 8)))
    values = generator.normal(size=6)[people] + generator.normal(size=8)[scenarios] + generator.normal(size=48)
    fit = sm.OLS(values, np.ones((48, 1))).fit()
    (_, by_person, by_scenario) = cov_cluster_2groups(fit, people, scenarios, use_correction=False)
    alone = float(np.square(values - values.mean()).sum() / 48**2)
    expected = by_person * 6 / 5 + by_scenario * 8 / 7 - alone * 48 / 47
    result = crossed_estimate([(1.0, list(values), list(map(str, scenarios)), [(str(person),) for person in people])])
    assert result.high is not None
    error = (result.high - result.mean) / stats.t.ppf(0.975, 5)
    assert error**2 == pytest.approx(max(float(expected.item()), float(by_person.item()) * 6 / 5))
    assert (result.clusters, result.over) == (6, CROSSED)


def test_every_two_episodes_with_anybody_in_common_are_related_by_hand() -> None:
    generator = np.random.default_rng(4)
    people = [tuple(sorted(generator.choice(9, size, replace=False).astype(str))) for size in (2, 2, 3, 1) * 8]
    scenarios = [str(i % 6) for i in range(len(people))]
    values = generator.normal(size=len(people))
    means = np.array([np.mean([v for v, s in zip(values, scenarios, strict=True) if s == k]) for k in "012345"])
    scores = (values - means.mean()) / [6 * scenarios.count(s) for s in scenarios]
    weights = [1 / (6 * scenarios.count(s)) for s in scenarios]
    total, apart = (dict.fromkeys(("person", "scenario", "both"), 0.0) for _ in range(2))
    for i, j in itertools.product(range(len(people)), repeat=2):
        same = {"person": bool({*people[i]} & {*people[j]}), "scenario": scenarios[i] == scenarios[j]}
        for name, value in {**same, "both": all(same.values())}.items():
            total[name] += value * scores[i] * scores[j]
            apart[name] += (not value) * weights[i] * weights[j]
    variance = {name: total[name] / apart[name] for name in total}
    expected = max(
        variance["person"] + variance["scenario"] - variance["both"], variance["person"], variance["scenario"]
    )
    shares = [sum(w for w, group in zip(weights, people, strict=True) if str(p) in group) for p in range(9)]
    freedom = sum(shares) / sum(share**2 for share in shares) - 1
    assert 1 < freedom < 5  # nine people in groups are worth fewer than six scenarios
    result = crossed_estimate([(1.0, values.tolist(), scenarios, people)])
    assert result.high is not None
    assert ((result.high - result.mean) / stats.t.ppf(0.975, freedom)) ** 2 == pytest.approx(expected)


def test_people_who_are_nearly_everywhere_leave_no_interval() -> None:
    generator = np.random.default_rng(5)
    values, scenarios = generator.normal(size=24).tolist(), [str(i % 6) for i in range(24)]
    always = [("0", str(1 + i % 11)) for i in range(24)]
    result = crossed_estimate([(1.0, values, scenarios, always)])
    assert (result.low, result.over) == (None, PARTICIPANTS)
    assert "share a participant" in result.missing
    # The same person in half of the episodes costs degrees of freedom, and the others without that person few.
    half, never = ([crowd if i % every else crowd[1:] for i, crowd in enumerate(always)] for every in (2, 1))
    wide, narrow = (crossed_estimate([(1.0, values, scenarios, crowds)]) for crowds in (half, never))
    assert None not in (wide.p, narrow.p)
    everybody = [tuple(map(str, sorted(generator.choice(6, 5, replace=False)))) for _ in range(24)]
    assert crossed_estimate([(1.0, values, scenarios, everybody)]).low is None


def test_holm_is_that_of_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    p_values = [0.04, 0.001, 0.2, 0.012, 0.9]
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))
    assert holm([0.02, None]) == [0.04, None]  # a pair without a test was shown too
