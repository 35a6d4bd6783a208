"""Scenarios are accepted wherever tasks are, and errors name the file and the line."""

import json
import logging
from pathlib import Path

import pytest

from sotopia_env import sotopia_v0, tasks
from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError
from sotopia_env.foundation.yaml_text import parse_yaml, to_yaml
from sotopia_env.naming import pick_task, task_rules, task_set
from sotopia_env.naming.task_sources import episode_tasks
from sotopia_env.tasks import OpenTasks, TaskStream, read_task_file
from sotopia_env.tasks.lint.material import read_material
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.tasks.templates import everyday_templates
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world.scenario import Scenario
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_env.factories import task

LINES = """\
- id: kitchen-warm
  context: Two flatmates stand in the kitchen. All is well.
  constraints: {relationships: [friend]}
  tags: [vignette=kitchen, tone=warm]
  seats:
    - goals: [Get the other to wash up.]
    - goals: [Avoid washing up., Stay on good terms.]
      private_info: You have an exam tomorrow.
- id: kitchen-cold
  context: Two flatmates stand in the kitchen. They have not spoken since Friday.
  constraints: {relationships: [friend]}
  tags: [vignette=kitchen, tone=cold]
  outcome:
    protocol: {kind: agreement}
    issues:
      - {name: minutes, kind: number, low: 0, high: 30}
    worth:
      - issues: {minutes: {per_unit: 1}}
      - {issues: {minutes: {per_unit: -1}}, constant: 30}
  seats:
    - goals: ["Have the other wash up: every minute is worth 1."]
    - goals: ["Avoid washing up: every minute costs 1 of 30."]
"""
SCENARIOS = parse_yaml(LINES, "LINES")
CAST = {
    "characters": [
        {"first_name": name, "gender": "woman", "pronouns": "she/her", "occupation": "baker"} for name in ("Ada", "Bea")
    ],
    "relationships": [{"seats": [0, 1], "kind": "friend", "backstory": "They share a flat."}],
}


def write(folder, name, records):
    path = folder / name
    text = to_yaml(records) if path.suffix == ".yaml" else json.dumps(records)
    path.write_text("\n".join(map(json.dumps, records)) if path.suffix == ".jsonl" else text, encoding="utf-8")
    return str(path)


FORMS = {
    "list.yaml": SCENARIOS,
    "scenarios.yaml": {"scenarios": SCENARIOS, "rules": {"max_turns": 4}},
    "tasks.yaml": {"tasks": SCENARIOS},
    "list.json": SCENARIOS,
    "lines.jsonl": SCENARIOS,
}


@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_scenarios_is_a_source_of_tasks_in_every_form(tmp_path, name):
    collection = task_set(write(tmp_path, name, FORMS[name]), None, 0, "medium")
    assert [task.scenario.id for task in collection] == ["kitchen-warm", "kitchen-cold"] * tasks.CASTINGS
    castings = [tuple(task.names.values()) for task in collection]
    assert castings[::2] == castings[1::2]  # the same people play both versions of the vignette
    assert len(set(castings)) == tasks.CASTINGS
    assert list(tasks.load(tmp_path / name)) == list(collection)


@pytest.mark.parametrize("name", ["one.yaml", "one.json"])
def test_one_scenario_may_be_the_whole_file(tmp_path, name):
    path = write(tmp_path, name, SCENARIOS[0])
    assert [task.id for task in task_set(path, 3, 7, "medium")] == [f"kitchen-warm/{number}" for number in range(3)]
    assert read_material(path).summary == "1 scenario"


def test_the_characters_that_play_are_logged_in_one_line(tmp_path, caplog):
    path = write(tmp_path, "mine.yaml", SCENARIOS)
    with caplog.at_level(logging.WARNING):
        collection = task_set(path, 2, 0, "medium")
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    assert path in record.getMessage()
    assert all(name in record.getMessage() for name in collection[0].names.values())


def test_a_cast_in_the_file_or_named_behind_it_plays(tmp_path):
    path = write(tmp_path, "mine.yaml", [CAST, *SCENARIOS])
    assert [set(task.names.values()) for task in task_set(path, 4, 0, "medium")] == [{"Ada", "Bea"}] * 4
    own = {character.name for character in tasks.everyday_cast().characters}
    assert all(set(task.names.values()) <= own for task in task_set(f"{path}:cast=everyday,n=6", None, 0, "medium"))
    with pytest.raises(InvalidValueError):
        task_set("starter:cast=everyday", None, 0, "medium")


def test_tasks_and_scenarios_are_not_mixed_in_one_file(tmp_path):
    path = write(tmp_path, "mixed.jsonl", [json.loads(task().model_dump_json()), SCENARIOS[0]])
    with pytest.raises(InvalidTaskError) as refusal:
        read_task_file(path)
    assert (str(refusal.value.where.file), refusal.value.where.line) == (path, 2)


def test_bad_scenarios_are_left_out_on_request(tmp_path):
    poor = {**SCENARIOS[0], "id": "nobody", "constraints": {"facts": {"home": "afloat"}}}
    path = write(tmp_path, "mine.yaml", [SCENARIOS[0], {"id": "x"}, poor])
    refused = []
    content = read_task_file(path, refused)
    assert isinstance(content, OpenTasks)
    assert [scenario.id for scenario in content.sources] == ["kitchen-warm"]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    locations = [f"{path}, line {lines.index(line) + 1}" for line in ("- id: x", "    facts:")]
    assert all(location in sentence for location, sentence in zip(locations, refused, strict=True))


def test_an_environment_plays_a_scenario_with_other_people_in_each_episode(tmp_path):
    path = write(tmp_path, "mine.yaml", SCENARIOS)
    scenario = Scenario.model_validate(SCENARIOS[0])
    assert isinstance(episode_tasks(path), TaskStream)
    for value in (path, scenario, [scenario]):
        env = sotopia_v0.parallel_env(task=value, evaluator=FixedEvaluator())
        names = set()
        for seed in range(4):
            env.reset(seed=seed)
            names.add(tuple(env.unwrapped.task.names.values()))
        assert len(names) > 1


def test_a_scenario_names_its_first_casting():
    assert pick_task(tasks.starter_tasks(), tasks.starter_tasks()[3].scenario.id).id.endswith("/0")


MISTAKES = {
    "an unknown key goes before what is missing": (
        "context: Two flatmates stand in the kitchen. All",
        "contxt: All",
        2,
    ),
    "a key of a seat": ("      private_info: You", "      private_inof: You", 8),
    "a key that is one elsewhere": ("    - goals: [Avoid", "    - goal: [Avoid", 7),
    "a word among several": ("tone=warm]", "tone=warm]\n  max_turns: few", 5),
    "a name of a kind": ("  constraints: {relationships: [friend]}\n  tags: [vignette=kitchen, tone=cold]", None, 11),
    "a text in place of a list": ("  tags: [vignette=kitchen, tone=warm]", "  tags: warm", 4),
    "a colon without quotes": ("[Get the other to wash up.]", "[Get the other: to wash up.]", 6),
    "the kind of a protocol": ("{kind: agreement}", "{kind: agree}", 14),
    "a worth of something else": ("      - issues: {minutes: {", "      - issues: {minuets: {", 18),
    "an issue": ("low: 0, high: 30", "low: 0, hihg: 30", 16),
    "a duplicate key": ("- id: kitchen-cold", "- id: kitchen-cold\n  id: other", 10),
    "a duplicate id": ("- id: kitchen-cold", "- id: kitchen-warm", 9),
    "no YAML": ("  tags: [vignette=kitchen, tone=cold]", "   tags: [vignette=kitchen, tone=cold]", 12),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_yaml_is_named_by_file_and_line(tmp_path, mistake):
    old, new, line = MISTAKES[mistake]
    new = old.replace("friend", "freind") if new is None else new
    assert LINES.count(old) == 1
    path = tmp_path / "mine.yaml"
    path.write_text(LINES.replace(old, new), encoding="utf-8")
    for read in (read_task_file, lambda path: TaskSet(task_set(str(path), 2, 0, "medium"))):
        with pytest.raises(InvalidTaskError) as refusal:
            read(path)
        assert (Path(refusal.value.where.file), refusal.value.where.line) == (path, line)
    assert read_material(path).refused == [str(refusal.value)] or mistake == "a duplicate id"


@pytest.mark.parametrize(("rules", "line"), [("{max_tunrs: 3}", 1), ("\n  max_turns: 3\n  turn_order: rondom", 3)])
def test_a_mistake_in_the_rules_too(tmp_path, rules, line):
    path = tmp_path / "mine.yaml"
    path.write_text(f"rules: {rules}\ntasks: []\n", encoding="utf-8")
    with pytest.raises(InvalidValueError) as refusal:
        task_rules(str(path))
    assert (Path(refusal.value.where.file), refusal.value.where.line) == (path, line)


SALARY = {"name": "salary", "low": 1, "high": 5, "instruction": "How close?"}


@pytest.mark.parametrize("kind", ["scenarios", "tasks"])
def test_the_dimensions_of_a_file_belong_to_its_scenarios(tmp_path, kind):
    mine, plain = tmp_path / "mine.yaml", tmp_path / "plain.yaml"
    records = parse_yaml(LINES, "lines") if kind == "scenarios" else [task().model_dump(mode="json")]
    mine.write_text(to_yaml({kind: records, "dimensions": [SALARY]}))
    plain.write_text(to_yaml({kind: records}))
    own, other = (task_set(str(path), None, 0, "medium") for path in (mine, plain))
    assert [[one.name for one in item.scenario.dimensions] for item in own] == [["salary"]] * len(own)
    # What is scored belongs to a task's content, but not to the situation that is kept out of training.
    assert {item.content_hash for item in own}.isdisjoint(item.content_hash for item in other)
    assert list(map(task_key, own)) == list(map(task_key, other))
    own.save(tmp_path / "copy.jsonl")
    assert list(TaskSet.load(tmp_path / "copy.jsonl")) == list(own)


def test_a_template_passes_its_dimensions_on(tmp_path):
    path = tmp_path / "mine.yaml"
    template = everyday_templates()[0].model_dump(mode="json", exclude_defaults=True)
    path.write_text(to_yaml({"scenarios": [template], "dimensions": [SALARY]}))
    assert [one.name for one in task_set(str(path), 1, 0, "medium")[0].scenario.dimensions] == ["salary"]


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        ({**SALARY, "low": 9}, {"field": "low", "record": "entry 2"}),
        ({**SALARY, "lo": 9}, {"field": "lo", "nearest": "low"}),
        (SALARY, {"field": "name", "got": "salary"}),
    ],
)
def test_a_wrong_dimension_of_a_file_is_refused(tmp_path, entry, fields):
    path = tmp_path / "mine.yaml"
    path.write_text(to_yaml({"scenarios": parse_yaml(LINES, "lines"), "dimensions": [SALARY, entry]}))
    with raises(InvalidTaskError, file="mine.yaml", **fields):
        read_task_file(path)
