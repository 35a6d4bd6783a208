"""Intervals and p-values of correlations over scenarios hold where seats of a scenario resemble each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sotopia_env.people.jackknife import jackknife, leave_one_out


def test_an_interval_by_hand() -> None:
    # artanh of 0, 0.2, 0.4, 0.6 is 0, 0.2027, 0.4236, 0.6931, with mean 0.3299 and a sum of squares about it of 0.2656.
    result = jackknife(0.3, [0.0, 0.2, 0.4, 0.6])
    error = math.sqrt(3 / 4 * 0.2656)
    assert result.low == pytest.approx(math.tanh(math.atanh(0.3) - 3.1824 * error), abs=1e-3)
    assert result.high == pytest.approx(math.tanh(math.atanh(0.3) + 3.1824 * error), abs=1e-3)
    assert result.p == pytest.approx(2 * stats.t.sf(math.atanh(0.3) / error, 3), abs=1e-3)


@pytest.mark.parametrize(
    ("value", "without", "reason"),
    [
        (0.5, [0.4, 0.5, 0.6], "3 scenarios, at least 4 are needed for an interval"),
        (0.5, [0.5] * 5, "no variation between scenarios; others are needed"),
        (1.0, [1.0] * 5, "no variation between scenarios; others are needed"),
        (0.5, [0.4, None, 0.5, 0.6], "undefined without one of the scenarios; more are needed"),
    ],
)
def test_there_is_no_interval_of_width_zero(value: float, without: list[float | None], reason: str) -> None:
    result = jackknife(value, without)
    assert (result.low, result.high, result.p, result.reason) == (None, None, None, reason)


def test_each_cluster_is_left_out_once() -> None:
    assert list(leave_one_out(["a", "b", "a"])) == [[1], [0, 2]]


def scores(random: np.random.Generator, scenarios: int, rho: float) -> tuple[list[str], NDArray[np.float64]]:
    """A judge's and people's scores from 0 to 10 of four seats a scenario; half of the variance is the scenario's."""
    factor = np.linalg.cholesky([[1, rho], [rho, 1]])
    labels = np.repeat(np.arange(scenarios), 4)
    shared, own = factor @ random.normal(size=(2, scenarios)), factor @ random.normal(size=(2, len(labels)))
    return [str(label) for label in labels], np.clip(np.rint(5 + 1.4 * (shared[:, labels] + own)), 0, 10)


@pytest.mark.parametrize("scenarios", [6, 15])
def test_p_and_intervals_hold_where_seats_of_a_scenario_resemble_each_other(scenarios: int) -> None:
    """At a nominal .05, tests over seats reject .14 to .2 of true hypotheses; 300 samples have an error of .013."""
    random, runs = np.random.default_rng(4), 300
    rejected, naive, covered = 0, 0, 0
    for rho in (0.0, 0.6):
        for _ in range(runs):
            labels, (judge, human) = scores(random, scenarios, rho)
            rest = [float(np.corrcoef(judge[kept], human[kept])[0, 1]) for kept in leave_one_out(labels)]
            r, p = stats.pearsonr(judge, human)
            result = jackknife(float(r), rest)
            assert result.low is not None
            assert result.high is not None
            assert result.p is not None
            if rho:
                covered += result.low <= rho <= result.high
            else:
                rejected, naive = rejected + (result.p < 0.05), naive + (p < 0.05)
    assert naive / runs > 0.1
    assert rejected / runs <= 0.085
    assert covered / runs >= 0.92
