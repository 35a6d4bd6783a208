"""The design of a study: conditions have the same conversations, and what a wrong factor is called."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.studies.design import conditions, item_parts, of_item, plan
from sotopia_env.people.studies.settings import PlayStudy, study_of

PLAY = {
    "kind": "play",
    "name": "talks",
    "title": "Two talks",
    "tasks": "bargaining",
    "n": 1,
    "partner": "boulware",
    "max_turns": 6,
}


def factor(varies: str, *values: object, name: str = "") -> dict[str, Any]:
    levels = [{"name": f"level-{number}", "value": value} for number, value in enumerate(values)]
    return {"name": name or varies, "varies": varies, "levels": levels}


def study(**changes: Any) -> PlayStudy:
    value = study_of({**PLAY, **changes})
    assert isinstance(value, PlayStudy)
    return value


def test_every_combination_has_the_same_conversations() -> None:
    crossed = study(
        n=2, repeats=3, seats="both", factors=[factor("partner", "boulware", "conceder"), factor("max_turns", 4, "8")]
    )
    assert [(c.study.partner, c.study.max_turns) for c in conditions(crossed)] == [
        ("boulware", 4), ("boulware", 8), ("conceder", 4), ("conceder", 8),
    ]  # fmt: skip
    items = plan(crossed)
    assert len(items) == len(set(items)) == 2 * 3 * 2 * 4
    per = Counter((of_item(crossed, item).number, item_parts(item)[0], seat) for item, seat in items)
    assert set(per.values()) == {3}


def test_a_study_without_factors_is_planned_as_before() -> None:
    plain = study(n=1, repeats=2, seats="first")
    assert plan(plain) == [("[0,0,0]", 0), ("[0,1,0]", 0)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"factors": [factor("partner", "boulware")]}, "factors.0.levels"),
        ({"factors": [factor("max_turns", 4, "many")]}, "factors.0.levels.1.value"),
        ({"factors": [factor("partner", "a", "b", name="x"), factor("max_turns", 1, 2, name="x")]}, "factors.1.name"),
        ({"factors": [factor("partner", "a", "b"), factor("partner", "c", "d", name="x")]}, "factors.1.varies"),
        ({"factors": [factor("instructions", "A", "B")], "assignment": "conversations"}, "assignment"),
        ({"factors": [{"name": "x", "varies": "seed", "levels": []}]}, "factors.0.varies"),
    ],
)
def test_a_wrong_factor_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        study(**change)
    assert caught.value.field == field
