"""The registry of families, generated task sets, and the starter set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.world.scenario import RelationshipKind
from tests.errors import raises
from tests.sotopia_env import factories

NAMES = (
    "bargaining",
    "division",
    "mutual_friend",
    "hiring",
    "group_decision",
    "campsite",
    "job_committee",
    "negotiation",
    "mini_mafia",
    "briefing",
    "dilemma",
    "volunteer",
    "trust",
    "public_goods",
    "traveller",
    "commons",
    "grid",
)


def test_every_family_is_registered_under_its_own_name() -> None:
    assert tuple(tasks.FAMILIES) == NAMES, "a new family goes into NAMES here; test_families.py says what else it needs"
    assert all(tasks.family(name).name == name for name in NAMES)


def test_importing_the_registry_loads_no_family() -> None:
    code = "import sys, sotopia_env.tasks; print([m for m in sys.modules if m.startswith('sotopia_env.tasks.')])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert not any(f"sotopia_env.tasks.{name}'" in out for name in NAMES)


def test_a_misspelt_family_is_answered_with_the_nearest() -> None:
    with raises(UnknownNameError, field="family", got="bargainning", nearest="bargaining"):
        tasks.family("bargainning")


@pytest.mark.parametrize("name", NAMES)
def test_the_family_of_a_generated_task_is_the_one_that_made_it(name: str) -> None:
    task = tasks.generate(name, 1, seed=2, level="easy")[0]
    assert tasks.family_of(task) is tasks.family(name)
    assert task.scenario.shared_data["family"] == name


@pytest.mark.parametrize("shared_data", [{}, {"family": "Smith"}, {"family": ["division"]}])
def test_a_task_of_no_family_has_none(shared_data: dict[str, object]) -> None:
    task = factories.task()
    scenario = task.scenario.model_copy(update={"shared_data": shared_data})
    assert tasks.family_of(task.model_copy(update={"scenario": scenario})) is None


def test_several_families_take_turns() -> None:
    task_set = tasks.generate(["division", "hiring"], 5, seed=1, level="easy", start=3)
    assert [task.id for task in task_set] == [
        "division-easy-1-3", "hiring-easy-1-3", "division-easy-1-4", "hiring-easy-1-4", "division-easy-1-5",
    ]  # fmt: skip


def test_a_later_start_continues_the_same_sequence() -> None:
    whole = tasks.generate("mutual_friend", 4, seed=5)
    assert list(whole[2:]) == list(tasks.generate("mutual_friend", 2, seed=5, start=2))


def test_the_kinds_of_relationship_vary() -> None:
    task_set = tasks.generate(NAMES, 100, seed=0)
    assert {r.kind for task in task_set for r in task.relationships} == set(RelationshipKind)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("division", -1, 0), "n"),
        (("division", 1.5, 0), "n"),
        (("division", 1, -1), "seed"),
        (("division", 1, 0, "easyy"), "level"),
        (("division", 1, 0, "level", -1), "start"),
        (([], 1, 0), "family"),
        ((None, 1, 0), "family"),
        (([[]], 1, 0), "family"),
        ((["division", "division"], 1, 0), "family"),
        ((["division", "hirring"], 1, 0), "family"),
    ],
)
def test_misuse_is_answered_with_one_sentence(arguments: tuple[object, ...], field: str) -> None:
    with raises(InvalidValueError, field=field):
        tasks.generate(*arguments)  # type: ignore[arg-type]


def test_the_starter_tasks_are_two_castings_of_each_scenario_and_always_the_same() -> None:
    scenarios = tasks.starter_scenarios()
    task_set = tasks.starter_tasks()
    assert [task.scenario.id for task in task_set] == [scenario.id for scenario in scenarios for _ in range(2)]
    names = {character.name for character in tasks.starter_cast().characters}
    assert all(character.name in names for task in task_set for character in task.characters)
    assert tasks.starter_tasks() is task_set


@pytest.mark.parametrize("name", [[], None, 3])
def test_an_invalid_name_is_not_a_family(name: object) -> None:
    with raises(UnknownNameError, field="family"):
        tasks.family(name)  # type: ignore[arg-type]


def test_an_invalid_path_is_refused() -> None:
    with raises(InvalidValueError, field="path", got=3):
        tasks.load(3)  # type: ignore[arg-type]
