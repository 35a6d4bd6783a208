"""Tasks to train on: none that is evaluated, from families, from a file, or written by a model."""

import json

import pytest

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.tasks import OpenScenario, cast_scenarios, task_key
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.scenario import RelationshipKind
from tests.errors import raises
from tests.sotopia_env.writing.test_writer import answer, inspiration_files
from training.collect.task_generation import (
    FamilySettings,
    TaskGenerationSettings,
    TaskSettings,
    TaskSource,
    WriterSettings,
    family_tasks,
    make_tasks,
    run,
    scenario_keys,
)


# --- families and what is kept for evaluation -------------------------------------------------------------------------
def test_a_hundred_scenarios_of_ten_pairs(tmp_path):
    made = make_tasks(TaskSettings(families=FamilySettings(names=("bargaining", "hiring"))), tmp_path)
    assert len(made) == 1000
    keys = [task_key(task) for task in made]
    assert len(set(keys)) == 100
    assert {keys.count(key) for key in keys} == {10}
    assert json.loads((tmp_path / "tasks.json").read_text()) == {
        "scenarios": 100,
        "families": 100,
        "kept_for_evaluation": 0,
        "tasks": 1000,
    }


def test_what_is_evaluated_is_not_trained_on_whoever_plays_it(tmp_path):
    """Guards P: no separation of training from validation by environment. A new cast hides nothing."""
    held = TaskSource(source="division", n=3, seed=0)
    made = make_tasks(
        TaskSettings(scenarios=5, pairs=2, families=FamilySettings(names=("division",), seed=0), evaluation=(held,)),
        tmp_path,
    )
    keys = {task_key(task) for task in made}
    assert len(keys) == 5
    assert not keys & set(scenario_keys([held]))
    assert json.loads((tmp_path / "tasks.json").read_text())["kept_for_evaluation"] == 3
    given = TaskSettings(given=TaskSource(source=str(tmp_path / "tasks.jsonl")), pairs=0, evaluation=(held,))
    assert len(make_tasks(given, tmp_path / "again")) == 10
    recast = cast_scenarios([OpenScenario.of(task) for task in held.load()], None, 2, seed=9)
    recast.save(tmp_path / "recast.jsonl")
    with raises(InvalidValueError, field="tasks"):
        make_tasks(
            given.model_copy(update={"given": TaskSource(source=str(tmp_path / "recast.jsonl"))}), tmp_path / "x"
        )


def test_what_an_earlier_round_had_is_not_made_again(tmp_path):
    asked = TaskSettings(scenarios=3, pairs=1, families=FamilySettings())
    first = make_tasks(asked, tmp_path / "1")
    earlier = (TaskSource(source=str(tmp_path / "1" / "tasks.jsonl")),)
    second = make_tasks(asked.model_copy(update={"earlier": earlier}), tmp_path / "2")
    assert len({task_key(task) for task in (*first, *second)}) == 6
    assert json.loads((tmp_path / "2" / "tasks.json").read_text())["kept_for_evaluation"] == 0
    given = TaskSettings(given=earlier[0], pairs=0, earlier=earlier)
    with pytest.raises(InvalidValueError, match="earlier rounds have used all"):
        make_tasks(given, tmp_path / "3")


def test_families_take_turns():
    found, _ = family_tasks(FamilySettings(names=("bargaining", "hiring")), 4, ())
    assert [task.scenario.id for task in found] == [
        f"{name}-medium-0-{index}" for index in (0, 1) for name in ("bargaining", "hiring")
    ]


@pytest.mark.parametrize(
    ("asked", "error", "fields"),
    [
        ({}, InvalidValueError, {"field": "tasks", "expected": "'families', 'writer' or 'given'"}),
        ({"families": {"names": ["barganing"]}}, UnknownNameError, {"field": "family", "nearest": "bargaining"}),
        ({"families": {}, "given": {"source": "starter"}}, InvalidValueError, {"field": "tasks", "got": "both"}),
        ({"given": {"source": "hiring", "n": 1, "split": "dev"}}, InvalidValueError, {"field": "tasks"}),
        ({"families": {}, "cast": "nobody.json"}, InvalidValueError, {"got": "nobody.json"}),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(asked, error, fields, tmp_path):
    with raises(error, **fields):
        make_tasks(TaskSettings.model_validate({"scenarios": 2} | asked), tmp_path)
    assert not (tmp_path / "tasks.jsonl").exists()


# --- a writer and families ---
def test_the_stage_mixes_families_and_a_writer_evenly_and_is_done_once(tmp_path):
    asked = TaskGenerationSettings(
        scenarios=6,
        pairs=2,
        families=FamilySettings(),
        writer=WriterSettings(
            model="local/writer",
            inspirations=tuple(map(str, inspiration_files(tmp_path, {"norms": 5, "habits": 5}))),
        ),
        evaluation=(TaskSource(source="starter"),),
        output=str(tmp_path / "out"),
    )
    model = ScriptedChatModel(answer)
    run(asked, model)
    made = tasks.load(tmp_path / "out" / "tasks.jsonl")
    written = [task for task in made if task.scenario.outcome is None]
    assert (len(made), len(written)) == (12, 6)
    assert all(task.relationships[0].kind is RelationshipKind.FRIEND for task in written)
    facts = json.loads((tmp_path / "out" / "done.json").read_text())
    assert sum(facts["written"]["by_source"].values()) == 3
    asked_before = len(model.requests)
    run(asked, model)
    assert len(model.requests) == asked_before
    with raises(InvalidValueError, field="settings.scenarios", expected="6", got="7"):
        run(asked.model_copy(update={"scenarios": 7}), model)
