"""Task files, splits, and drawing tasks from a cast."""

import json

import pytest
from pydantic import ValidationError

from sotopia_env.foundation.errors import ConstraintError, InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.world.scenario import Constraints, Relationship, Scenario
from sotopia_env.world.taskset import Cast, TaskSet, admissible_seatings, sample_tasks
from tests.errors import raises
from tests.sotopia_env.factories import character, scenario, task


def numbered(n):
    return [task(id=f"t{i}", scenario=scenario(id=f"s{i // 2}")) for i in range(n)]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_both_file_forms_are_read(tmp_path, suffix):
    tasks = TaskSet(numbered(3))
    path = tmp_path / f"tasks{suffix}"
    lines = [t.model_dump_json() for t in tasks]
    path.write_text(f"[{','.join(lines)}]" if suffix == ".json" else "\n".join(lines), encoding="utf-8")
    assert list(TaskSet.load(path)) == list(tasks)


@pytest.mark.parametrize("form", [lambda items: items, lambda items: {"tasks": items, "rules": {}, "dimensions": []}])
def test_tasks_are_read_from_yaml(tmp_path, form):
    tasks = TaskSet(numbered(2))
    path = tmp_path / "tasks.yaml"
    path.write_text(to_yaml(form([t.model_dump(mode="json") for t in tasks])), encoding="utf-8")
    assert TaskSet.load(path).content_hash == tasks.content_hash


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("task: []", {"field": "task", "nearest": "tasks"}),
        ("rules: {}", {"field": ""}),
        ("- {id: x, id: y}", {"field": ""}),
        ("- {}", {"field": "id"}),
    ],
)
def test_a_bad_yaml_file_is_refused_in_one_sentence(tmp_path, text, fields):
    (tmp_path / "tasks.yaml").write_text(text)
    with raises(InvalidTaskError, **fields):
        TaskSet.load(tmp_path / "tasks.yaml")


def test_saving_and_loading_keeps_the_content(tmp_path):
    tasks = TaskSet(numbered(4))
    tasks.save(tmp_path / "tasks.jsonl")
    assert TaskSet.load(tmp_path / "tasks.jsonl").content_hash == tasks.content_hash


def test_a_duplicate_key_is_refused_and_not_read_by_its_last_value(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text(task().model_dump_json().replace('"context":', '"context":"Another one.","context":', 1))
    with raises(InvalidTaskError, line=1):
        TaskSet.load(path)


def broken(change):
    raw = json.loads(task().model_dump_json())
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("{oops", {"field": ""}),
        ('"text"', {"field": "record", "got": "text"}),
        (
            broken(lambda t: t["relationships"][0].update(kind="freind")),
            {"field": "relationships.0.kind", "nearest": "friend", "got": "freind"},
        ),
        (
            broken(lambda t: t["scenario"].update(contxt="x")),
            {"field": "scenario.contxt", "nearest": "context", "got": "x"},
        ),
        (broken(lambda t: t["characters"][1].update(age="old")), {"field": "characters.1.age", "got": "old"}),
        (
            broken(lambda t: t["scenario"]["seats"][0].pop("goals")),
            {"field": "scenario.seats.0.goals"},
        ),
        (
            broken(lambda t: t["characters"][0].update(decision_style="analytic")),
            {"field": "characters.0.decision_style", "nearest": "analytical", "got": "analytic"},
        ),
        (broken(lambda t: t["characters"].pop()), {"field": "characters", "got": 1}),
    ],
)
def test_a_bad_line_names_file_line_field_value_and_nearest_name(tmp_path, line, fields):
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{task(id='fine').model_dump_json()}\n{line}\n", encoding="utf-8")
    with raises(InvalidTaskError, file="tasks.jsonl", line=2, **fields) as caught:
        TaskSet.load(path)
    assert "\n" not in str(caught.value)


def test_missing_files_odd_suffixes_and_binary_files_are_refused(tmp_path):
    (tmp_path / "x.txt").write_text("{}")
    (tmp_path / "y.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "z.json").write_text("{}")
    for name in ("x.txt", "y.jsonl", "z.json", "no.json"):
        with raises(InvalidTaskError, file=name):
            TaskSet.load(tmp_path / name)


def test_ids_are_unique_and_looked_up_with_a_hint():
    with raises(InvalidTaskError, field="id", got="t0"):
        TaskSet([task(id="t0"), task(id="t0")])
    with raises(UnknownNameError, field="task", nearest="t1"):
        TaskSet(numbered(2)).get("t 1")


def test_the_split_keeps_scenarios_together_and_is_stable_under_additions():
    small, large = TaskSet(numbered(100)), TaskSet(numbered(400))
    parts = {name: large.split(name) for name in ("train", "dev", "test")}
    scenarios = [{t.scenario.id for t in part} for part in parts.values()]
    assert not scenarios[0] & scenarios[1] | scenarios[0] & scenarios[2] | scenarios[1] & scenarios[2]
    assert sum(len(part) for part in parts.values()) == 400
    assert all(len(part) for part in parts.values())
    for name, part in parts.items():
        assert {t.id for t in small.split(name)} <= {t.id for t in part}


def test_bad_shares_and_unknown_splits_are_refused():
    with raises(InvalidValueError, field="shares"):
        TaskSet(numbered(2)).split("train", {"train": 0.9, "dev": 0.2, "test": 0.1})
    with raises(UnknownNameError, field="split", nearest="train"):
        TaskSet(numbered(2)).split("trian")


def test_sampling_is_seeded_and_never_repeats():
    tasks = TaskSet(numbered(50))
    assert [t.id for t in tasks.sample(10, 3)] == [t.id for t in tasks.sample(10, 3)]
    assert [t.id for t in tasks.sample(10, 3)] != [t.id for t in tasks.sample(10, 4)]
    with raises(InvalidValueError, field="n"):
        tasks.sample(51, 0)


CAST = Cast(
    characters=tuple(
        character(name, age=age, occupation=job)
        for name, age, job in [("A", 20, "cook"), ("B", 40, "Nurse"), ("C", 60, "cook"), ("D", 30, "pilot")]
    ),
    relationships=(
        Relationship(seats=(0, 1), kind="friend", backstory="Flatmates.", facts={"home": "shared", "pets": "a cat"}),
        Relationship(seats=(1, 2), kind="family", backstory="Cousins in one street.", facts={"home": "adjacent"}),
        Relationship(seats=(2, 3), kind="friend", backstory="They share a desk."),
    ),
)


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        (Constraints(relationships=("friend",)), {(0, 1), (1, 0), (2, 3), (3, 2)}),
        (Constraints(relationships=("family",)), {(1, 2), (2, 1)}),
        (Constraints(facts={"home": "shared"}), {(0, 1), (1, 0)}),
        (Constraints(facts={"home": "shared"}, occupations=(("nurse",), ())), {(1, 0)}),
        (Constraints(facts={"home": "shared", "pets": "a dog"}), set()),
        (Constraints(relationships=("friend",), facts={"home": "adjacent"}), set()),
        (Constraints(ages=((35, 70), (0, 35))), {(1, 0), (1, 3), (2, 0), (2, 3)}),
        (Constraints(occupations=(("nurse",), ("cook",))), {(1, 0), (1, 2)}),
        (Constraints(relationships=("romantic",)), set()),
    ],
)
def test_constraints_are_honoured(constraints, expected):
    """Guards S22: age, occupation and relationship constraints all count, for any number of seats.

    A fact that a scenario demands must be stated: a backstory that is silent about the home does not fit either.
    """
    assert set(admissible_seatings(scenario(constraints=constraints), CAST)) == expected


def test_unmeetable_constraints_are_reported():
    impossible = scenario(constraints=Constraints(relationships=("romantic",)))
    with raises(ConstraintError, field="constraints"):
        sample_tasks([impossible], CAST, 1, seed=0)
    misspelt = scenario(constraints=Constraints(facts={"hom": "shared"}))
    with raises(ConstraintError, field="constraints"):
        sample_tasks([misspelt], CAST, 1, seed=0)


def test_sampled_tasks_carry_the_casts_relationships_and_repeat_for_a_seed():
    template = scenario(3, id="three")
    tasks = sample_tasks([template], CAST, 5, seed=1)
    assert [t.content_hash for t in tasks] == [t.content_hash for t in sample_tasks([template], CAST, 5, seed=1)]
    assert len({t.content_hash for t in tasks}) == 5
    names = {c.name: i for i, c in enumerate(CAST.characters)}
    for sample in tasks:
        seats = [names[c.name] for c in sample.characters]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            assert sample.relationship(i, j).kind == CAST.between(seats[i], seats[j]).kind


@pytest.mark.parametrize("seed", range(10))
def test_castings_of_a_scenario_have_other_people_before_the_same_ones_in_other_seats(seed):
    template = scenario(constraints=Constraints(relationships=("friend",)))
    tasks = sample_tasks([template], CAST, 4, seed)
    people = [frozenset(task.names.values()) for task in tasks]
    assert not people[0] & people[1]
    assert set(people[2:]) == set(people[:2])
    assert len({task.content_hash for task in tasks}) == 4


@pytest.mark.parametrize(
    ("seats", "field"),
    [
        ((0, 4), "relationships.3.seats"),
        ((1, 2), "relationships.3.seats"),
    ],
)
def test_a_relationship_of_unknown_people_and_a_second_one_of_the_same_pair_are_refused(seats, field):
    extra = Relationship(seats=seats, kind="friend")
    with raises(ValidationError, field=field):
        Cast(characters=CAST.characters, relationships=(*CAST.relationships, extra))


def test_json_strings_may_hold_line_separators(tmp_path):
    path = tmp_path / "tasks.jsonl"
    odd = task(scenario=Scenario(id="s", context="one\u2028two\x85three", seats=scenario().seats))
    path.write_text(odd.model_dump_json() + "\n", encoding="utf-8")
    assert list(TaskSet.load(path)) == [odd]


@pytest.mark.parametrize(
    ("misuse", "fields"),
    [
        (lambda: TaskSet.load(3), {"field": "path", "got": 3}),
        (lambda: TaskSet(["a"]), {"field": "tasks", "got": "a"}),
        (lambda: TaskSet(3), {"field": "tasks", "got": 3}),
        (lambda: TaskSet("ab"), {"field": "tasks", "got": "ab"}),
        (lambda: TaskSet([task()]).split([]), {"field": "split"}),
        (lambda: TaskSet([task()]).sample("1", 0), {"field": "n", "got": "1"}),
        (lambda: TaskSet([task()]).get(3), {"field": "task", "got": 3}),
        (lambda: TaskSet([task()]).save("/proc/x.jsonl"), {"field": ""}),
    ],
)
def test_misuse_is_answered_with_one_sentence(misuse, fields):
    with raises(InvalidValueError, **fields):
        misuse()
