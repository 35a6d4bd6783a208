"""The shipped starter set: valid, varied, and castable."""

import pytest

from sotopia_env import tasks as task_sets
from sotopia_env.tasks.builtin import starter_cast, starter_scenarios, starter_tasks
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import admissible_seatings, seat_characters


def test_the_set_has_twelve_characters_and_twelve_scenarios():
    assert len(starter_cast().characters) == 12
    assert len({c.name for c in starter_cast().characters}) == 12
    assert len({s.id for s in starter_scenarios()}) == 12


def test_every_character_is_complete_and_has_a_secret_of_their_own():
    secrets = set()
    for character in starter_cast().characters:
        assert character.public_info
        assert character.personality
        assert character.moral_foundations
        assert character.schwartz_values
        secrets.add(character.secret)
    assert "" not in secrets
    assert len(secrets) == 12


def test_the_scenarios_cover_every_relationship_kind_and_every_kind_of_goal():
    kinds = {kind for scenario in starter_scenarios() for kind in scenario.constraints.relationships}
    assert kinds == set(RelationshipKind)
    tags = {tag for scenario in starter_scenarios() for tag in scenario.tags}
    assert {"cooperative", "competitive", "mixed"} <= tags


def test_every_scenario_can_be_cast_at_least_five_ways():
    for scenario in starter_scenarios():
        assert len(admissible_seatings(scenario, starter_cast())) >= 5, scenario.id


def test_the_sampled_tasks_cover_every_relationship_kind_and_repeat():
    tasks = starter_tasks()
    assert {task.relationship(0, 1).kind for task in tasks} == set(RelationshipKind)
    assert tasks.content_hash == starter_tasks().content_hash


def seatings(scenario: str) -> list[tuple[int, ...]]:
    (frame,) = (item for item in starter_scenarios() if item.id == scenario)
    return admissible_seatings(frame, starter_cast())


@pytest.mark.parametrize(
    ("scenario", "fact", "value"),
    [
        ("night-shift", "home", "shared"),  # two partners live together
        ("fence-height", "home", "adjacent"),  # two neighbours at the border of their gardens
        ("orchard-harvest", "property", "shared"),  # two relatives own an orchard together
    ],
)
def test_facts_in_a_context_are_in_the_backstory_too(scenario, fact, value):
    (frame,) = (item for item in starter_scenarios() if item.id == scenario)
    stories = {
        starter_cast().between(*seating).facts.get(fact) for seating in admissible_seatings(frame, starter_cast())
    }
    assert stories == {value}


def test_a_character_offered_night_work_has_an_occupation_with_nights():
    (frame,) = (item for item in starter_scenarios() if item.id == "night-shift")
    occupations = {
        starter_cast().characters[seating[0]].occupation for seating in admissible_seatings(frame, starter_cast())
    }
    assert "ferry pilot" in occupations
    assert not {"innkeeper", "notary", "community-theatre director"} & occupations


def test_every_possible_casting_fits_its_scenario():
    for scenario in starter_scenarios():
        for seating in admissible_seatings(scenario, starter_cast()):
            task_sets.check(seat_characters(scenario, starter_cast(), seating, scenario.id))
