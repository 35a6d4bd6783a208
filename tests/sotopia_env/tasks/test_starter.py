"""The shipped starter set: valid, varied, and castable."""

from sotopia_env.tasks.starter import starter_cast, starter_scenarios, starter_tasks
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import admissible_seatings


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
