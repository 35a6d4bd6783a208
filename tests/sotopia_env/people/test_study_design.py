"""The design of a study: conditions have the same conversations, people get them evenly, a wrong factor is named."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.studies.assigning import by_condition, emptiest, preferred, seconds_left
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


@dataclass
class Row:
    """A row of a database of assignments."""

    id: str
    item: str
    slot: int
    state: str = "open"
    participant: str | None = None
    seconds: float | None = None
    finished: float | None = None


def rows(design: PlayStudy) -> list[Row]:
    return [Row(f"{number:04}", item, slot) for number, (item, slot) in enumerate(plan(design))]


def test_a_newcomer_gets_the_condition_with_the_fewest_people_that_has_a_seat() -> None:
    design = study(seats="first", repeats=2, factors=[factor("partner", "boulware", "conceder", "tough")])
    every, items = conditions(design), [row.item for row in rows(design)]
    assert emptiest(design, [], items) == 0
    assert emptiest(design, [every[0], every[1]], items) == 2
    free = [item for item in items if of_item(design, item).number != 2]
    assert emptiest(design, [every[0], every[0], every[1]], free) == 1


def test_a_person_goes_through_the_conditions_and_stays_in_an_assigned_one() -> None:
    design = study(seats="first", repeats=2, factors=[factor("partner", "boulware", "conceder")])
    assignments = rows(design)
    assignments[0].participant, assignments[0].state = "p", "done"
    had = of_item(design, assignments[0].item).number
    order = [of_item(design, item).number for item in preferred(design, "p", None, assignments)]
    assert order[0] != had
    assert {*order} == {0, 1}
    own = preferred(design, "p", conditions(design)[had], assignments)
    assert {of_item(design, item).number for item in own} == {had}
    assert assignments[0].item not in own
    assert by_condition(design, assignments)[conditions(design)[had].name] == {"done": 1, "open": 1}


def test_the_time_that_is_left_follows_the_pace_of_the_latest_ends() -> None:
    assignments = rows(study(seats="first", repeats=6))
    for number, row in enumerate(assignments[:3]):
        row.state, row.finished = "done", 100.0 * (number + 1)
    assert seconds_left(assignments, 350.0) == 300.0
    assert seconds_left(assignments[1:], 350.0) is None  # two ends say nothing
    assert seconds_left(assignments, 5_000.0) is None  # nobody came lately
