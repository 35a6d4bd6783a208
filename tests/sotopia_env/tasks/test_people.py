"""The generator of people: varied, distinct, and a function of its generator alone."""

from __future__ import annotations

import random

import pytest

from sotopia_env.foundation.errors import ConstraintError, InvalidValueError
from sotopia_env.tasks import people
from sotopia_env.world.scenario import Character, RelationshipKind
from tests.errors import raises

texts = people.people_texts()


def test_the_lists_are_long_and_without_repetition() -> None:
    firsts = (*texts.women, *texts.men, *texts.neutral)
    for names, least in ((firsts, 60), (texts.last_names, 60), (texts.occupations, 30), (texts.secrets, 20)):
        assert len(names) >= least
        assert len(set(names)) == len(names)


def test_equal_generators_draw_equal_people() -> None:
    assert people.draw_characters(random.Random(5), 4) == people.draw_characters(random.Random(5), 4)
    assert people.draw_characters(random.Random(5), 4) != people.draw_characters(random.Random(6), 4)


@pytest.mark.parametrize("n", [1, 2, 5, 60])
def test_people_of_one_draw_share_no_name(n: int) -> None:
    for seed in range(20):
        characters = people.draw_characters(random.Random(seed), n)
        assert len(characters) == n
        assert len({character.first_name for character in characters}) == n
        assert len({character.last_name for character in characters}) == n


def test_people_are_varied_and_complete() -> None:
    characters = [character for seed in range(150) for character in people.draw_characters(random.Random(seed), 2)]
    for field, least in (
        ("occupation", 35),
        ("secret", 20),
        ("public_info", 20),
        ("personality", 80),
        ("big_five", 30),
        ("gender", 3),
        ("age", 35),
        ("decision_style", 4),
    ):
        assert len({getattr(character, field) for character in characters}) >= least, field
    pronouns = {"woman": "she/her", "man": "he/him", "nonbinary": "they/them"}
    for character in characters:
        assert character.pronouns == pronouns[character.gender]
        assert 21 <= character.age <= 68
        assert all((character.public_info, character.personality, character.secret, character.schwartz_values))
        assert Character.model_validate_json(character.model_dump_json()) == character


def test_every_text_of_people_is_valid_in_a_character() -> None:
    """Drawn people are not validated one by one."""
    (character,) = people.draw_characters(random.Random(0), 1)
    stories = ("public_info", "secrets", "plain_info", "plain_secrets", "openings", "closings", "occupations")
    names = [*texts.women, *texts.men, *texts.neutral, *texts.last_names]
    rows = [("public_info", text) for name in stories for text in getattr(texts, name)]
    for field, text in [*rows, *(("first_name", name) for name in names), *(("last_name", name) for name in names)]:
        assert getattr(Character.model_validate({**character.model_dump(), field: text}), field) == text


@pytest.mark.parametrize("n", [0, -1, 61])
def test_an_impossible_number_of_people_is_refused(n: int) -> None:
    with raises(InvalidValueError, field="n"):
        people.draw_characters(random.Random(0), n)


def test_relationships_cover_every_kind_and_name_both() -> None:
    characters = people.draw_characters(random.Random(0), 3)
    kinds = set()
    for seed in range(80):
        relationship = people.draw_relationship(random.Random(seed), characters, (0, 2))
        kinds.add(relationship.kind)
        if relationship.kind is not RelationshipKind.STRANGER:
            assert characters[0].name in relationship.backstory
            assert characters[2].name in relationship.backstory
    assert kinds == set(RelationshipKind)
    only = people.draw_relationship(random.Random(0), characters, kinds=(RelationshipKind.FRIEND,))
    assert only.kind is RelationshipKind.FRIEND
    with raises(InvalidValueError, field="kinds"):
        people.draw_relationship(random.Random(0), characters, kinds=())


def test_a_relationship_states_the_facts_that_are_demanded() -> None:
    characters = people.draw_characters(random.Random(0), 2)
    cases = [
        ({name: value}, kinds) for name, by_value in texts.fact_stories.items() for value, kinds in by_value.items()
    ]
    assert len(cases) > 2
    for facts, kinds in cases:
        for seed in range(20):
            pair = people.draw_relationship(random.Random(seed), characters, facts=facts)
            assert (pair.facts, pair.kind in kinds) == (facts, True)
            assert all(character.name in pair.backstory for character in characters)
    plain = [people.draw_relationship(random.Random(seed), characters) for seed in range(20)]
    assert plain == [people.draw_relationship(random.Random(seed), characters, facts={}) for seed in range(20)]


@pytest.mark.parametrize(
    ("kind", "facts", "fields"),
    [
        ("stranger", {"home": "shared"}, {"field": "facts"}),
        ("family", {"hom": "shared"}, {"field": "facts", "nearest": "home: shared"}),
        ("family", {"home": "shared", "property": "shared"}, {"field": "facts"}),
    ],
)
def test_facts_that_no_backstory_states_are_refused(kind: str, facts: dict[str, str], fields: str) -> None:
    characters = people.draw_characters(random.Random(0), 2)
    with raises(ConstraintError, **fields):
        people.draw_relationship(random.Random(0), characters, kinds=(RelationshipKind(kind),), facts=facts)
