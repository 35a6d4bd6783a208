"""Castings: other characters in the seats of the same scenario, and the key that does not depend on them."""

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import ConstraintError, InvalidValueError
from sotopia_env.tasks import read_cast
from sotopia_env.tasks.casting import cast_scenarios
from sotopia_env.tasks.open_scenario import OpenScenario, task_key
from sotopia_env.world.scenario import Constraints, RelationshipKind, Scenario, Seat
from tests.errors import raises


@pytest.mark.parametrize("name", tasks.FAMILIES)
@pytest.mark.parametrize("cast", ["drawn", "starter"])
def test_a_scenario_stays_the_same_task_with_other_characters(name, cast):
    originals = list(tasks.generate(name, 3, seed=4))
    task_set = cast_scenarios([OpenScenario.of(task) for task in originals], read_cast(cast), 4, seed=1)
    assert len(task_set) == 12
    assert [task_key(task) for task in task_set] == [task_key(task) for task in originals for _ in range(4)]
    casts = [tuple(task.names.values()) for task in task_set]
    assert all(len(set(casts[start : start + 4])) == 4 for start in range(0, 12, 4)), "each scenario's casts differ"
    for task in task_set:
        tasks.check(task)
        origin = next(old for old in originals if old.scenario.id == task.scenario.id)
        text = task.scenario.model_dump_json()
        strangers = set(origin.names.values()) - set(task.names.values())
        assert not [name for name in strangers if name in text], "the old names are gone from the texts"
        assert any(n in text for n in task.names.values()) == any(
            n in origin.scenario.model_dump_json() for n in origin.names.values()
        )
    again = cast_scenarios([OpenScenario.of(task) for task in originals], read_cast(cast), 4, seed=1)
    assert again.content_hash == task_set.content_hash
    other = cast_scenarios([OpenScenario.of(task) for task in originals], read_cast(cast), 4, seed=2)
    assert other.content_hash != task_set.content_hash


def test_equal_scenarios_of_other_names_have_other_contents_but_one_key():
    """Why the key looks through the names: the context of ``division`` names the characters."""
    task = tasks.generate("division", 1, seed=0)[0]
    one, two = cast_scenarios([OpenScenario.of(task)], None, 2, seed=0)
    assert one.scenario != two.scenario
    assert task_key(one) == task_key(two)
    assert task_key(one) != task_key(tasks.generate("division", 2, seed=0)[1])


def constrained(**constraints):
    seats = (Seat(goals=("Go home.",)), Seat(goals=("Stay.",)))
    return OpenScenario(Scenario(id="s", context="A door.", seats=seats, constraints=Constraints(**constraints)))


def test_constraints_hold_for_drawn_people():
    open_scenario = constrained(relationships=(RelationshipKind.FAMILY,), ages=((20, 40), (41, 70)))
    for task in cast_scenarios([open_scenario], None, 10, seed=0):
        assert task.relationships[0].kind is RelationshipKind.FAMILY
        assert task.characters[0].age <= 40 < task.characters[1].age


def test_the_starter_scenarios_can_be_played_by_drawn_people():
    frames = [OpenScenario(scenario) for scenario in tasks.starter_scenarios()]
    for task in cast_scenarios(frames, None, 3, seed=0):
        tasks.check(task)


def test_characters_have_no_name_that_the_text_uses():
    seats = (Seat(goals=("Find Anneke.",)), Seat(goals=("Hide from Bogdan and Chiara Novak.",)))
    open_scenario = OpenScenario(Scenario(id="s", context="Rowan Street.", seats=seats))
    people = {
        part
        for task in cast_scenarios([open_scenario], None, 200, seed=0)
        for name in task.names.values()
        for part in name.split()
    }
    assert not {"Anneke", "Bogdan", "Chiara", "Novak", "Rowan"} & people


@pytest.mark.parametrize(
    ("cast", "constraints", "field"),
    [
        ("drawn", {"ages": ((0, 3), (0, 3))}, "constraints"),
        (
            "starter",
            {"ages": ((0, 3), (0, 3))},
            "constraints",
        ),
    ],
)
def test_a_scenario_that_no_character_can_play(cast, constraints, field):
    with raises(ConstraintError, field=field):
        cast_scenarios([constrained(**constraints)], read_cast(cast), 2, seed=0)


def test_a_cast_file(tmp_path):
    file = tmp_path / "cast.json"
    file.write_text(tasks.starter_cast().model_dump_json())
    assert read_cast(str(file)) == tasks.starter_cast()
    assert read_cast("everyday") == tasks.everyday_cast()
    with raises(InvalidValueError, field="cast"):
        read_cast("startr")
    file.write_text("{}")
    with raises(InvalidValueError, field="characters", file="cast.json"):
        read_cast(str(file))
