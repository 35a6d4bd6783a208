"""Outcome spaces of stated difficulty: what is stated is what the drawn space has."""

import random

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import AgreementRules, ChoiceIssue, OutcomeSpec
from sotopia_env.outcomes.worth import AdditiveWorth
from sotopia_env.tasks.families.negotiation import TOLERANCE, Difficulty, difficulty_family, draw_space, measured
from tests.errors import raises


@pytest.mark.parametrize("conflict", [0, 0.25, 0.5, 0.8, 1])
@pytest.mark.parametrize(
    ("issues", "options", "zone"), [(2, 2, 0.5), (1, 5, 0.4), (3, 3, 0.2), (4, 4, 0.05), (5, 4, 1)]
)
def test_a_drawn_space_has_the_stated_conflict_size_and_zone(conflict, issues, options, zone):
    family = difficulty_family(Difficulty(conflict, issues, options, zone))
    for index in range(3):
        task = family.generate(index, 5, "medium")
        spec = task.scenario.outcome
        assert [len(issue.options) for issue in spec.issues] == [options] * issues
        assert measured(spec) == (
            pytest.approx(conflict, abs=TOLERANCE),
            pytest.approx(zone, abs=max(TOLERANCE, 0.5 / options**issues)),
        )
        tasks.check(task)
        assert tasks.warnings(task) == []


def test_difficulty_is_measured_on_every_outcome():
    """Two issues of two options: worths 0, 1, 2, 3 against 3, 1, 2, 0 have the correlation -0.8."""
    issues = [ChoiceIssue(name=name, options=("a", "b")) for name in ("x", "y")]
    first = AdditiveWorth(issues={"x": {"a": 0, "b": 2}, "y": {"a": 0, "b": 1}}, no_agreement=1)
    second = AdditiveWorth(issues={"x": {"a": 1, "b": 0}, "y": {"a": 2, "b": 0}}, no_agreement=1)
    spec = OutcomeSpec(protocol=AgreementRules(), issues=issues, worth=(first, second))
    assert measured(spec) == (pytest.approx(0.9), 0.5)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((1.1, 3, 3, 0.5), "conflict"),
        ((0.5, 6, 3, 0.5), "issues"),
        ((0.5, 3, 1, 0.5), "options"),
        ((0.5, 1, 2, 0.5), "options"),
        ((0.5, 3, 3, 0), "zone"),
    ],
)
def test_an_impossible_difficulty_is_refused(values, field):
    with raises(InvalidValueError, field=field):
        Difficulty(*values)


def test_a_zone_too_narrow_for_few_outcomes_is_refused():
    with raises(InvalidValueError, field="zone", got=0.001):
        draw_space(random.Random(0), Difficulty(1, 2, 2, 0.001))
