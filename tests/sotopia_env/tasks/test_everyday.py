"""The shipped everyday set: a cast that is consistent with itself, and five castings of every scenario."""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from sotopia_env import tasks
from sotopia_env.naming import task_set
from sotopia_env.world.scenario import (
    Character,
    DecisionStyle,
    MoralFoundation,
    Relationship,
    RelationshipKind,
    SchwartzValue,
)
from sotopia_env.world.taskset import admissible_seatings, sample_tasks

CAST = tasks.everyday_cast()
PEOPLE = CAST.characters
FAMILY, ROMANTIC, STRANGER = RelationshipKind.FAMILY, RelationshipKind.ROMANTIC, RelationshipKind.STRANGER

# Every fact of the set, with the words of which a backstory that states it holds one.
WORDS = {
    ("home", "shared"): (
        "live together|living together|lived together|moved in together|live there|at home with|in the same house|"
        "same (rented|shared) house|lived in (his|her) house|lives in (his|her) house|where (both|she|Bryn)"
    ),
    ("home", "separate"): (
        "live apart|no longer live together|of (her|their) own|in different (places|parts)|opposite ends|across town"
    ),
    ("home", "adjacent"): "next[ -]door|doors side by side",
    ("workplace", "shared"): "colleagues|work in the same",
    ("property", "shared"): r"\bowns? (an?|the|their|in)\b|ownership of",
    ("tie", "siblings"): "siblings|sisters?|brothers?",
    ("tie", "parent-child"): "is the (mother|father) of",
    ("tie", "cousins"): "cousins",
    ("tie", "grandparent-grandchild"): "is the grandmother of",
    ("tie", "in-laws"): "-in-law|in-laws",
    ("tie", "spouses"): "married",
    ("tie", "dating"): "dating",
    ("tie", "neighbours"): "neighbours",
    ("tie", "colleagues"): "colleagues",
    ("tie", "clubmates"): "choir|club|society",
    ("tie", "schoolmates"): "same school",
}
ACQUAINTED = {RelationshipKind.FRIEND, RelationshipKind.ACQUAINTANCE}
KINDS = {
    **{tie: {FAMILY} for tie in ("siblings", "parent-child", "cousins", "grandparent-grandchild", "in-laws")},
    **{tie: {ROMANTIC} for tie in ("spouses", "dating")},
    **dict.fromkeys(("neighbours", "colleagues", "clubmates", "schoolmates"), ACQUAINTED),
}
"""The kinds of relationship that can have a tie."""


def of_kind(*kinds: str) -> list[Relationship]:
    return [relationship for relationship in CAST.relationships if relationship.kind in kinds]


def pairs(tie: str) -> list[tuple[int, int]]:
    return [r.seats for r in CAST.relationships if r.facts.get("tie") == tie]


def pair_of(relationship: Relationship) -> tuple[Character, Character]:
    return PEOPLE[relationship.seats[0]], PEOPLE[relationship.seats[1]]


def parents() -> list[tuple[int, int]]:
    """Pairs of a parent and a child, by index."""
    return [pair if PEOPLE[pair[0]].age > PEOPLE[pair[1]].age else pair[::-1] for pair in pairs("parent-child")]


def kin() -> list[set[int]]:
    """The families: the people connected by blood or marriage."""
    families = [{index} for index in range(len(PEOPLE))]
    for first, second in [r.seats for r in of_kind("family")] + pairs("spouses"):
        joined = [family for family in families if first in family or second in family]
        families = [family for family in families if family not in joined] + [set().union(*joined)]
    return families


def tie_of(first: int, second: int) -> str | None:
    return None if first == second else CAST.between(first, second).facts.get("tie")


def test_the_cast_has_forty_characters_and_a_hundred_and_fifty_relationships():
    assert len(PEOPLE) == len({person.first_name for person in PEOPLE}) == 40
    assert Counter(relationship.kind for relationship in CAST.relationships) == {
        **dict.fromkeys(("family", "friend", "romantic", "acquaintance"), 29),
        "know-by-name": 4,
        "stranger": 30,
    }
    assert {index for relationship in of_kind("stranger") for index in relationship.seats} == set(range(40))


@pytest.mark.parametrize(
    ("kinds", "fact", "least"),
    [
        ("romantic", "home=shared", 14),
        ("romantic", "home=separate", 8),
        ("romantic", "tie=spouses", 8),
        ("romantic", "tie=dating", 8),
        ("family", "tie=siblings", 8),
        ("family", "tie=parent-child", 8),
        ("family", "tie=cousins", 4),
        ("family", "property=shared", 6),
        ("family", "home=shared", 8),
        ("friend", "home=shared", 6),
        ("friend", "workplace=shared", 7),
        ("friend", "tie=clubmates", 4),
        ("acquaintance", "home=adjacent", 9),
        ("acquaintance", "tie=neighbours", 9),
        ("acquaintance", "workplace=shared", 9),
        ("acquaintance", "tie=colleagues", 9),
        ("acquaintance", "tie=clubmates", 5),
        ("acquaintance", "tie=schoolmates", 3),
    ],
)
def test_there_are_enough_pairs_for_what_a_scenario_may_presuppose(kinds, fact, least):
    name, value = fact.split("=")
    assert sum(relationship.facts.get(name) == value for relationship in of_kind(kinds)) >= least


def test_ages_genders_and_dispositions_are_well_spread():
    assert {person.age // 10 for person in PEOPLE} == set(range(2, 9))
    assert min(person.age for person in PEOPLE) == 21
    assert max(person.age for person in PEOPLE) == 80
    assert Counter(person.gender for person in PEOPLE) == {"woman": 18, "man": 19, "nonbinary": 3}
    for trait in type(PEOPLE[0].big_five).model_fields:
        assert 16 <= sum(getattr(person.big_five, trait) == "high" for person in PEOPLE) <= 24, trait
    for field, values in (("moral_foundations", MoralFoundation), ("schwartz_values", SchwartzValue)):
        counts = Counter(value for person in PEOPLE for value in getattr(person, field))
        assert min(counts[value] for value in values) >= 5, field
    assert min(Counter(p.decision_style for p in PEOPLE)[style] for style in DecisionStyle) >= 5


def test_every_character_is_complete_and_a_person_of_their_own():
    for field in ("occupation", "public_info", "personality", "secret"):
        texts = [getattr(person, field) for person in PEOPLE]
        assert len(set(texts)) == 40, field
        assert all(texts), field
    for person in PEOPLE:
        assert all(person.first_name in text for text in (person.public_info, person.personality, person.secret))
        assert not person.occupation.startswith("retired") or person.age >= 58, person.name
        # What a couple is to each other is told by the relationship alone: a profile must fit all of them.
        profile = f"{person.public_info} {person.personality} {person.secret}"
        assert not re.search(r"\b(husband|wife|spouse|partner|married|engaged|dating|single|widow\w*)\b", profile)


def test_no_name_of_another_source_of_people_occurs():
    others = {name for person in tasks.starter_cast().characters for name in (person.first_name, person.last_name)}
    texts = tasks.people.people_texts()
    others |= {*texts.women, *texts.men, *texts.neutral, *texts.last_names}
    assert not others & {name for person in PEOPLE for name in (person.first_name, person.last_name)}


def test_a_last_name_is_shared_by_relatives_only():
    for first, second in itertools.combinations(range(40), 2):
        if PEOPLE[first].last_name == PEOPLE[second].last_name:
            assert CAST.between(first, second).kind is FAMILY


def test_backstories_name_their_own_two_people_and_no_others():
    for relationship in CAST.relationships:
        names = {
            person.first_name for person in PEOPLE if re.search(rf"\b{person.first_name}\b", relationship.backstory)
        }
        two = set() if relationship.kind is STRANGER else {person.first_name for person in pair_of(relationship)}
        assert names == two, relationship


def test_every_fact_is_of_the_vocabulary_and_appears_in_the_backstory():
    for relationship in CAST.relationships:
        for fact in relationship.facts.items():
            assert re.search(WORDS[fact], relationship.backstory), (fact, relationship.backstory)
        tie = relationship.facts.get("tie")
        assert tie is None or relationship.kind in KINDS[tie], relationship
        assert relationship.kind not in (FAMILY, ROMANTIC) or tie, relationship
        assert relationship.kind is not ROMANTIC or "home" in relationship.facts, relationship


@pytest.mark.parametrize(
    ("tie", "low", "high"),
    [("parent-child", 18, 45), ("grandparent-grandchild", 36, 70), ("siblings", 1, 16), ("schoolmates", 0, 3)],
)
def test_ages_fit_the_tie(tie, low, high):
    gaps = [abs(PEOPLE[first].age - PEOPLE[second].age) for first, second in pairs(tie)]
    assert gaps
    assert low <= min(gaps) <= max(gaps) <= high


def test_couples_are_of_like_age_and_never_relatives_by_blood_or_marriage():
    spouses = pairs("spouses")
    assert len({index for pair in spouses for index in pair}) == 2 * len(spouses), "a character is married twice"
    married = {index for pair in spouses for index in pair}
    for relationship in of_kind("romantic"):
        first, second = pair_of(relationship)
        assert abs(first.age - second.age) <= 12, relationship
        if relationship.facts["tie"] == "dating":
            assert not married & set(relationship.seats), relationship
            assert not any(set(relationship.seats) <= family for family in kin()), relationship


def test_within_a_family_all_pairs_are_family_or_married():
    families = [family for family in kin() if len(family) > 2]
    assert 4 <= len(families) <= 8
    for family in families:
        for first, second in itertools.combinations(sorted(family), 2):
            assert CAST.between(first, second).kind in (FAMILY, ROMANTIC)


def test_a_parents_spouse_is_a_parent_and_a_childs_sibling_a_child():
    for parent, child in parents():
        for other in range(40):
            if tie_of(parent, other) == "spouses":
                assert tie_of(other, child) == "parent-child"
            if tie_of(child, other) == "siblings":
                assert tie_of(parent, other) == "parent-child"
            if tie_of(child, other) == "spouses":
                assert tie_of(parent, other) == "in-laws"


def test_ties_of_blood_follow_from_one_another():
    for parent, child in parents():
        for elder, person in parents():
            if person == parent:
                assert tie_of(elder, child) == "grandparent-grandchild"
    for (first, second), other in itertools.product(map(tuple, both_ways("siblings")), range(40)):
        if other in (first, second):
            continue
        for tie, expected in (("siblings", "siblings"), ("cousins", "cousins"), ("spouses", "in-laws")):
            if tie_of(second, other) == tie:
                assert tie_of(first, other) == expected, (first, second, other)


def both_ways(tie: str) -> Iterator[tuple[int, int]]:
    for first, second in pairs(tie):
        yield from ((first, second), (second, first))


def test_who_shares_a_home_with_the_same_spouse_or_relative_is_in_one_household():
    """Homes are shared by households; those of couples who are dating are possible worlds of their own."""
    shared = [r.seats for r in CAST.relationships if r.facts.get("home") == "shared" and r.facts.get("tie") != "dating"]
    for (first, second), (third, fourth) in itertools.combinations(shared, 2):
        for one, middle, other in ((first, second, third), (first, second, fourth), (second, first, third)):
            if middle in (third, fourth) and other not in (one, middle):
                assert CAST.between(one, other).facts.get("home") == "shared", (one, middle, other)


def test_a_casting_of_the_starter_scenarios_meets_their_constraints():
    for scenario in tasks.starter_scenarios():
        for task in sample_tasks([scenario], CAST, 3, seed=0):
            assert scenario.constraints.admits_pair(task.relationship(0, 1))
            tasks.check(task)


def test_the_set_is_ninety_scenarios_with_five_castings_each():
    scenarios = tasks.everyday_scenarios()
    everyday = tasks.everyday_tasks()
    assert len(scenarios) == len({scenario.id for scenario in scenarios}) == 90
    assert [task.id for task in everyday] == [f"{scenario.id}/{n}" for scenario in scenarios for n in range(5)]
    assert sum(scenario.outcome is not None for scenario in scenarios) >= 30
    assert not {scenario.id for scenario in scenarios} & {scenario.id for scenario in tasks.starter_scenarios()}
    assert task_set("everyday", None, 0, "medium") is everyday


def test_every_casting_meets_its_constraints_and_differs_in_people():
    for scenario, group in itertools.groupby(tasks.everyday_tasks(), key=lambda task: task.scenario):
        castings = list(group)
        for task in castings:
            assert all(scenario.constraints.admits(seat, person) for seat, person in enumerate(task.characters))
            assert scenario.constraints.admits_pair(task.relationship(0, 1))
            tasks.check(task)
            assert tasks.warnings(task) == []
        couples = {frozenset(task.names.values()) for task in castings}
        possible = {frozenset(seating) for seating in admissible_seatings(scenario, CAST)}
        assert len(couples) == min(5, len(possible)), scenario.id
        assert len(possible) >= 3, scenario.id


def test_every_character_is_cast_and_none_in_every_scenario():
    counts = Counter(person.name for task in tasks.everyday_tasks() for person in task.characters)
    assert len(counts) == 40
    assert min(counts.values()) >= 8
    assert max(counts.values()) <= 45


def test_casting_the_whole_set_takes_less_than_a_second():
    scenarios = tasks.everyday_scenarios()
    start = time.process_time()
    assert len(sample_tasks(scenarios, CAST, 5, seed=1)) == 450
    assert time.process_time() - start < 1
