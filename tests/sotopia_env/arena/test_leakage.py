"""The reservation value that an observer estimates from offers: known curves, and episodes of known policies."""

from __future__ import annotations

import asyncio
from statistics import fmean

import pytest

from sotopia_env import tasks
from sotopia_env.arena.leakage import LEAST_OFFERS, reservation_estimate
from sotopia_env.arena.process import process
from sotopia_env.naming import make_evaluator
from sotopia_env.runs import plan_episodes, run_episodes

TIMES = [number / 9 for number in range(10)]


def offers(exponent: float, reservation: float = 0.0, opening: float = 1.5) -> list[float]:
    return [opening + (reservation - opening) * time ** (1 / exponent) for time in TIMES]


@pytest.mark.parametrize("reservation", [0.0, 0.4])
@pytest.mark.parametrize(("exponent", "count"), [(0.3, 8), (1.0, 4), (1.0, 10), (4.0, 3), (4.0, 10)])
def test_the_end_of_a_known_curve_is_recovered_before_it_is_reached(exponent, count, reservation):
    worths = offers(exponent, reservation)[:count]
    assert reservation_estimate(TIMES[:count], worths, -1.0) == pytest.approx(reservation, abs=0.2)


def test_offers_that_hardly_fell_do_not_tell():
    """A seat that concedes at the very end looks like one that never will."""
    worths = offers(0.1)[:6]
    assert reservation_estimate(TIMES[:6], worths, -1.0) > 0.25


def test_the_estimate_lies_between_the_worst_outcome_and_the_lowest_offer():
    for worths in ([1.0, 1.0, 1.0], [1.0, 0.2, 0.9], [0.1, 0.5, 1.0]):
        assert -0.5 <= reservation_estimate(TIMES[:3], worths, -0.5) <= min(worths)
    assert reservation_estimate(TIMES[:3], [0.3, 0.3, 0.3], 0.3) == pytest.approx(0.3)
    assert reservation_estimate([1.0, 1.0, 1.0], [0.3, 0.3, 0.3], 0.0) is not None


def test_fewer_than_three_offers_are_not_estimated():
    assert reservation_estimate(TIMES[: LEAST_OFFERS - 1], [1.0, 0.5], 0.0) is None


def errors(family: str, policy: str, other: str) -> tuple[float, float]:
    """The mean error, and the mean share of the lowest offer, of a policy."""
    plans = plan_episodes(tasks.generate(family, 12, 5), [(policy, other)], both_seats=False)
    played = asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), progress=False)).episodes
    measures = [process(episode)["agent_0"] for episode in played]
    measured = [item for item in measures if "reservation_error" in item]
    assert measured
    return fmean(m["reservation_error"] for m in measured), fmean(1 - m["reservation_shown"] for m in measured)


@pytest.mark.parametrize("family", ["bargaining", "campsite", "hiring"])
@pytest.mark.parametrize("policy", ["boulware", "linear", "conceder"])
def test_policies_that_concede_with_time_are_seen_through(family, policy):
    to_the_end, _ = errors(family, policy, "stubborn:demand=1.0")
    settled, lowest = errors(family, policy, "linear")
    assert to_the_end < 0.1
    # Long before their offers have gone down to the reservation value.
    assert settled < min(0.2, lowest)


def test_policies_of_another_kind_are_not():
    for policy in ("stubborn", "micro"):
        assert errors("bargaining", policy, "stubborn:demand=1.0")[0] > 1
