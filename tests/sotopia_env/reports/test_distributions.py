"""Student's t and the adjustment of p-values, against scipy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sotopia_env.reports.intervals import adjusted, critical_value, two_sided_p

FREEDOM = st.one_of(st.integers(1, 200).map(float), st.floats(0.5, 1e5))


@given(st.floats(-300, 300), FREEDOM)
def test_p_value_is_scipys(t: float, freedom: float) -> None:
    assert two_sided_p(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-8, abs=1e-300)


@given(FREEDOM, st.sampled_from([0.2, 0.05, 0.01]))
def test_critical_value_is_scipys(freedom: float, p: float) -> None:
    assert critical_value(p, freedom) == pytest.approx(stats.t.ppf(1 - p / 2, freedom), rel=1e-8)


@given(st.lists(st.sampled_from([0.0, 0.01, 0.01, 0.04, 0.3, 1.0]) | st.floats(0, 1), max_size=12))
def test_adjusted_p_values_are_scipys(p_values: list[float]) -> None:
    expected = stats.false_discovery_control(p_values, method="bh").tolist() if p_values else []
    assert adjusted(p_values) == pytest.approx(expected)
