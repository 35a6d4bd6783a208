"""Records refuse what cannot be meant, and say so in one sentence."""

import pytest
from pydantic import ValidationError

from sotopia_env.world.scenario import Relationship, Scenario, Seat, Task
from tests.errors import raises
from tests.sotopia_env.factories import character, scenario, task


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: task(characters=(character("Ada"),)), "characters"),
        (lambda: task(characters=(character("Ada"), character("ADA"))), "characters"),
        (lambda: task(characters=(character("Zoé"), character("Zoe\u0301"))), "characters"),
        (lambda: task(relationships=()), "relationships"),
        (lambda: Relationship(seats=(1, 0), kind="friend"), "seats"),
        (lambda: Relationship(seats=(0, 1), kind="stranger", backstory="Old pals."), "backstory"),
        (lambda: Relationship(seats=(0, 1), kind="freind"), "kind"),
        (lambda: Relationship(seats=(0, 1), kind="friend", facts={"home": "shared"}), "facts"),
        (lambda: Seat(goals=()), "goals"),
        (lambda: Seat(goals=("  ",)), "goals"),
        (lambda: scenario(1), "seats"),
        (lambda: scenario(constraints={"ages": [[1, 2]]}), "constraints.ages"),
        (lambda: scenario(constraints={"ages": [[9, 2], [1, 2]]}), "constraints.ages"),
        (lambda: scenario(constraints={"ages": [[9, 20], [200, 300]]}), "constraints.ages"),
        (lambda: scenario(max_turns=0), "max_turns"),
        (lambda: character("Ada\nTurn #9"), "first_name"),
        (lambda: character("Ada", secret="a\u2028b"), "secret"),
        (lambda: character("Ada", age=-1), "age"),
        (lambda: character("Ada", ocupation="x"), "ocupation"),
    ],
)
def test_a_malformed_record_is_refused_with_a_reason(build, field):
    with raises(ValidationError, field=field):
        build()


def test_missing_goals_are_an_error_and_never_invented():
    """Guards S15: the predecessor appended a goal of its own to a shared profile object."""
    with raises(ValidationError, field="seats.1.goals"):
        Scenario.model_validate({"id": "x", "context": "y", "seats": [{"goals": ["a"]}, {}]})


def test_records_are_frozen():
    with raises(ValidationError, field="goals"):
        task().scenario.seats[0].goals = ("another",)


def test_a_task_survives_json_and_keeps_its_hash():
    original = task(3, characters=tuple(character(n, public_attributes={"Pet": "a cat"}) for n in ("A", "B", "C")))
    again = Task.model_validate_json(original.model_dump_json())
    assert again == original
    assert again.content_hash == original.content_hash


def test_facts_are_part_of_a_tasks_json_only_if_there_are_any():
    """Seeds of episodes derive from the hash: a task that needs no facts is the task that it was without them."""
    assert "facts" not in task().model_dump_json()
    pair = Relationship(seats=(0, 1), kind="friend", backstory="Flatmates.", facts={"home": "shared"})
    settled = task(relationships=(pair,))
    assert Task.model_validate_json(settled.model_dump_json()) == settled
    silent = task(relationships=(pair.model_copy(update={"facts": {}}),))
    assert settled.content_hash != silent.content_hash


def test_the_hash_covers_every_part():
    base = task()
    variants = [
        task(scenario=scenario(context="Another place.")),
        task(kind="stranger"),
        task(characters=(character("Ada", secret="s"), character("Bram"))),
    ]
    assert len({t.content_hash for t in (base, *variants)}) == 4


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: scenario(context="  \n "), "context"),
        (lambda: scenario(context="\u200b"), "context"),
        (lambda: character("   "), "first_name"),
        (lambda: character("agent_2"), "first_name"),
        (lambda: character(" Agent_12 "), "first_name"),
        (lambda: character("Ada", last_name="agent_0"), "last_name"),
        (lambda: scenario(shared_data={"x": "\ud800"}), "shared_data"),
        (lambda: scenario(shared_data='{"x":' * 99_000), "shared_data"),
    ],
)
def test_blanks_agent_ids_and_unwritable_data_are_refused(build, field):
    with raises(ValidationError, field=field):
        build()
    assert character("Agent", last_name="Smith").name == "Agent Smith"


def test_conditions_are_tags_with_a_value_other_than_the_vignette():
    plain = scenario(2, tags=("mixed", "=x", "y="))
    assert (plain.vignette, dict(plain.conditions)) == (plain.id, {})
    version = scenario(2, tags=("mixed", "vignette=tent", "tone = warm", "rule=a=b"))
    assert (version.vignette, dict(version.conditions)) == ("tent", {"tone": "warm", "rule": "a=b"})
