"""Tasks to train on: none that is evaluated, from families, from a file, or written by a model."""

import json

import pytest
from sotopia_training.collect.task_generation import (
    FamilySettings,
    TaskGenerationSettings,
    TaskSettings,
    WriterSettings,
    family_tasks,
    load_tasks,
    make_tasks,
    run,
    scenario_keys,
)

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.tasks.casting import cast_scenarios
from sotopia_env.tasks.open_scenario import OpenScenario, task_key
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.scenario import RelationshipKind
from tests.errors import raises
from tests.sotopia_env.writing.test_writer import answer, inspiration_files


# --- families and what is kept for evaluation -------------------------------------------------------------------------
def test_a_hundred_scenarios_of_ten_pairs(tmp_path):
    task_set = make_tasks(TaskSettings(families=FamilySettings(names=("bargaining", "hiring"))), tmp_path)
    assert len(task_set) == 1000
    keys = [task_key(task) for task in task_set]
    assert len(set(keys)) == 100
    assert {keys.count(key) for key in keys} == {10}
    assert json.loads((tmp_path / "tasks.json").read_text()) == {
        "scenarios": 100,
        "families": 100,
        "kept_for_evaluation": 0,
        "tasks": 1000,
    }


def test_evaluated_scenarios_are_not_trained_on_with_other_characters_either(tmp_path):
    """Guards P: no separation of training from validation by environment. A new cast hides nothing."""
    source = "division:n=3"
    task_set = make_tasks(
        TaskSettings(scenarios=5, pairs=2, families=FamilySettings(names=("division",), seed=0), evaluation=(source,)),
        tmp_path,
    )
    keys = {task_key(task) for task in task_set}
    assert len(keys) == 5
    assert not keys & set(scenario_keys([source]))
    assert json.loads((tmp_path / "tasks.json").read_text())["kept_for_evaluation"] == 3
    task_settings = TaskSettings(given=str(tmp_path / "tasks.jsonl"), pairs=0, evaluation=(source,))
    assert len(make_tasks(task_settings, tmp_path / "again")) == 10
    recast = cast_scenarios([OpenScenario.of(task) for task in load_tasks(source)], None, 2, seed=9)
    recast.save(tmp_path / "recast.jsonl")
    with raises(InvalidValueError, field="tasks"):
        make_tasks(
            task_settings.model_copy(update={"given": str(tmp_path / "recast.jsonl")}),
            tmp_path / "x",
        )


def test_scenarios_of_earlier_rounds_are_not_generated_again(tmp_path):
    task_settings = TaskSettings(scenarios=3, pairs=1, families=FamilySettings())
    first = make_tasks(task_settings, tmp_path / "1")
    earlier = (str(tmp_path / "1" / "tasks.jsonl"),)
    second = make_tasks(task_settings.model_copy(update={"earlier": earlier}), tmp_path / "2")
    assert len({task_key(task) for task in (*first, *second)}) == 6
    assert json.loads((tmp_path / "2" / "tasks.json").read_text())["kept_for_evaluation"] == 0
    reuse = TaskSettings(given=earlier[0], pairs=0, earlier=earlier)
    with raises(InvalidValueError, field="tasks"):
        make_tasks(reuse, tmp_path / "3")


def test_families_take_turns():
    family_set, _ = family_tasks(FamilySettings(names=("bargaining", "hiring")), 4, ())
    assert [task.scenario.id for task in family_set] == [
        f"{name}-medium-0-{index}" for index in (0, 1) for name in ("bargaining", "hiring")
    ]


@pytest.mark.parametrize(
    ("values", "error", "fields"),
    [
        ({}, InvalidValueError, {"field": "tasks", "expected": "'families', 'writer' or 'given'"}),
        ({"families": {"names": ["barganing"]}}, UnknownNameError, {"field": "family", "nearest": "bargaining"}),
        ({"families": {}, "given": "starter"}, InvalidValueError, {"field": "tasks", "got": "both"}),
        ({"given": "hiring:n=1,spilt=dev"}, UnknownNameError, {"field": "spilt", "nearest": "split"}),
        ({"given": {"source": "starter"}}, InvalidValueError, {"field": "given"}),
        ({"families": {}, "cast": "nobody.json"}, InvalidValueError, {"got": "nobody.json"}),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(values, error, fields, tmp_path):
    with raises(error, **fields):
        make_tasks(settings_of({"scenarios": 2} | values, TaskSettings, "tasks.yaml"), tmp_path)
    assert not (tmp_path / "tasks.jsonl").exists()


# --- a writer and families ---
def test_the_stage_mixes_families_and_a_writer_evenly_and_is_done_once(tmp_path):
    settings = TaskGenerationSettings(
        scenarios=6,
        pairs=2,
        families=FamilySettings(),
        writer=WriterSettings(
            model="local/writer",
            inspirations=tuple(map(str, inspiration_files(tmp_path, {"norms": 5, "habits": 5}))),
        ),
        evaluation=("starter",),
        output=str(tmp_path / "out"),
    )
    model = ScriptedChatModel(answer)
    run(settings, model)
    task_set = tasks.load(tmp_path / "out" / "tasks.jsonl")
    open_tasks = [task for task in task_set if task.scenario.outcome is None]
    assert (len(task_set), len(open_tasks)) == (12, 6)
    assert all(task.relationships[0].kind is RelationshipKind.FRIEND for task in open_tasks)
    facts = json.loads((tmp_path / "out" / "done.json").read_text())
    assert sum(facts["written"]["by_source"].values()) == 3
    request_count = len(model.requests)
    run(settings, model)
    assert len(model.requests) == request_count
    with raises(InvalidValueError, field="settings.scenarios", expected="6", got="7"):
        run(settings.model_copy(update={"scenarios": 7}), model)
