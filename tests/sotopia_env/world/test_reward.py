"""Dimensions, vectors and scalarisations."""

import numpy as np
import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.world.reward import (
    DIMENSIONS,
    HIGH,
    LOW,
    RANGES,
    Dimension,
    Scalarisation,
    dimension,
    overall,
    reward_vector,
)
from tests.errors import raises

SCORES = dict(zip(DIMENSIONS, (8.0, 2.0, 3.0, -1.0, -2.0, 1.0, 9.0), strict=True))


def test_the_table_is_the_papers():
    """SOTOPIA §3, in the reference implementation's order."""
    assert [(d.value, *RANGES[d]) for d in DIMENSIONS] == [
        ("believability", 0, 10),
        ("relationship", -5, 5),
        ("knowledge", 0, 10),
        ("secret", -10, 0),
        ("social_rules", -10, 0),
        ("financial_and_material_benefits", -5, 5),
        ("goal", 0, 10),
    ]


def test_a_vector_is_float32_in_the_documented_order():
    vector = reward_vector(SCORES)
    assert vector.dtype == np.float32
    assert vector.tolist() == list(SCORES.values())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("mean", 20 / 7),
        ("overall", 20 / 7),
        ("goal", 9.0),
        ("GOAL", 9.0),
        ("FIN", 1.0),
        ({"goal": 1.0}, 0.9),
        ({"goal": 0.5, "secret": 0.5}, 0.5 * 0.9 + 0.5 * 0.9),
        ({"relationship": 2.0}, 1.4),
    ],
)
def test_scalarisations(value, expected):
    assert Scalarisation.of(value)(reward_vector(SCORES)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "name", "needed"),
    [
        ("mean", "overall", DIMENSIONS),
        ("share", "share", ()),
        ("fin", "financial_and_material_benefits", (Dimension.FINANCIAL_AND_MATERIAL_BENEFITS,)),
        ({"goal": 1.0, "secret": 0.0}, '{"goal": 1.0, "secret": 0.0}', (Dimension.GOAL,)),
    ],
)
def test_a_scalarisation_says_its_name_and_what_it_needs(value, name, needed):
    scalarisation = Scalarisation.of(value)
    assert (str(scalarisation), scalarisation.dimensions) == (name, needed)


def test_overall_is_the_plain_mean_with_its_known_bounds():
    assert overall(HIGH) == pytest.approx(40 / 7)
    assert overall(LOW) == pytest.approx(-30 / 7)


@pytest.mark.parametrize(
    ("build", "error", "fields"),
    [
        (lambda: reward_vector({**SCORES, Dimension.GOAL: 10.5}), InvalidValueError, {"field": "goal", "got": 10.5}),
        (lambda: reward_vector({**SCORES, Dimension.GOAL: float("nan")}), InvalidValueError, {"field": "goal"}),
        (lambda: reward_vector({Dimension.GOAL: 1.0}), InvalidValueError, {"field": "scores"}),
        (lambda: Scalarisation.of("gaol"), UnknownNameError, {"field": "scalarisation", "nearest": "goal"}),
        (lambda: Scalarisation.of({"gaol": 1}), UnknownNameError, {"field": "dimension", "nearest": "goal"}),
        (lambda: Scalarisation.of({}), InvalidValueError, {"field": "weights"}),
        (lambda: Scalarisation.of({"goal": float("inf")}), InvalidValueError, {"field": "weights"}),
        (lambda: Scalarisation.of({"goal": "x"}), InvalidValueError, {"field": "weights"}),
        (lambda: Scalarisation.of({"goal": None}), InvalidValueError, {"field": "weights"}),
        (lambda: Scalarisation.of({3: 1}), UnknownNameError, {"field": "dimension", "got": 3}),
        (lambda: Scalarisation.of(3), InvalidValueError, {"field": "scalarisation", "got": 3}),
        (lambda: Scalarisation(single=Dimension.GOAL, share=True), InvalidValueError, {"field": "scalarisation"}),
        (lambda: Scalarisation.of("share")(reward_vector(SCORES)), InvalidValueError, {"field": "scalarisation"}),
        (lambda: dimension("benefits"), UnknownNameError, {"field": "dimension", "got": "benefits"}),
    ],
)
def test_impossible_scores_and_names_are_refused(build, error, fields):
    with raises(error, **fields):
        build()
