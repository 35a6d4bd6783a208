"""Streams of tasks: people who meet the constraints, random access, and files of any length."""

import itertools
import tracemalloc

import pytest

from sotopia_env import tasks
from sotopia_env.errors import ConstraintError, InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.tasks.procedural import TaskStream, read_sources, stream
from sotopia_env.tasks.templates import Template
from sotopia_env.world import Constraints, Task, TaskSet
from tests.sotopia_env.factories import scenario
from tests.sotopia_env.tasks.test_templates import GRANDPARENT, TEMPLATES


def two(**constraints):
    return scenario(2, constraints=Constraints.model_validate(constraints))


@pytest.mark.parametrize(
    "constraints",
    [
        {},
        {"relationships": ["friend"]},
        {"relationships": ["family", "friend"], "facts": {"home": "shared"}},
        {"relationships": ["romantic"], "ages": [[16, 30], [14, 90]]},
        {"ages": [[8, 12], [60, 90]], "occupations": [["pupil"], ["retired", "nurse"]]},
        {"occupations": [["astronaut", "cosmonaut"], []]},
        {"relationships": ["romantic", "friend"], "ages": [[15, 20], [15, 20]], "occupations": [["pupil"], ["pupil"]]},
    ],
)
def test_drawn_people_meet_the_constraints(constraints):
    drawn = TaskStream([two(**constraints)], seed=3)
    for index in range(100):
        task = drawn.task(index)
        tasks.check(task)
        assert (task.id, task.scenario.id) == (f"test-scenario/{index}", "test-scenario")
        if task.relationships[0].kind == "romantic":
            assert min(person.age for person in task.characters) >= 18
        for person in task.characters:
            assert not person.occupation.startswith("retired") or person.age >= 58
        assert Task.model_validate_json(task.model_dump_json()) == task


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ({"ages": [[20, 30], [5, 9]]}, ["scenario 'test-scenario'", "constraints.ages.1", "5 to 9", "widen"]),
        ({"facts": {"home": "shard"}}, ["scenario 'test-scenario'", "constraints.facts", "mean 'home: shared'"]),
        ({"relationships": ["stranger"], "facts": {"home": "shared"}}, ["constraints.facts", "(none)"]),
    ],
)
def test_a_seat_that_nobody_can_take_is_refused_in_one_sentence(constraints, words):
    with pytest.raises(ConstraintError) as error:
        TaskStream([two(**constraints)], seed=0)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_sources_take_turns_and_a_stream_begins_anywhere():
    sources = [*TEMPLATES, two(), tasks.family("division")]
    drawn = list(itertools.islice(stream(sources, seed=4), 12))
    assert [task.id for task in drawn[:6]] == [
        "attic/0", "excursion/0", "bill/0", "test-scenario/0", "division-medium-4-0", "attic/1",
    ]  # fmt: skip
    assert list(itertools.islice(stream(sources, seed=4, start=7), 5)) == drawn[7:]
    assert [TaskStream(sources, seed=4).task(index) for index in (11, 2)] == [drawn[11], drawn[2]]
    assert drawn[0] == tasks.instantiate(TEMPLATES[0], 0, 4)
    assert next(stream(sources, seed=5)).content_hash != drawn[0].content_hash


@pytest.mark.parametrize(
    ("sources", "seed", "words"),
    [
        ([], 0, "at least one template, scenario or family"),
        ([two(), two()], 0, "expected different ids, got 'test-scenario' twice"),
        ([two(), "division"], 0, "sources.1: expected a template, scenario or family, got 'division'"),
        ([two()], -1, "seed: expected a whole number of at least 0, got -1"),
    ],
)
def test_a_stream_needs_sources_and_a_seed(sources, seed, words):
    with pytest.raises(InvalidValueError, match=words):
        TaskStream(sources, seed)


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "drawn.jsonl"
    drawn = TaskStream(TEMPLATES, seed=1)
    drawn.save(path, 9, start=2)
    assert list(TaskSet.load(path)) == [drawn.task(index) for index in range(2, 11)]

    def fail(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drawn.save(tmp_path / "other.jsonl", 9, advance=fail)
    assert [file.name for file in tmp_path.iterdir()] == ["drawn.jsonl"]


def test_a_long_stream_is_never_in_memory(tmp_path):
    path = tmp_path / "drawn.jsonl"
    drawn = TaskStream([TEMPLATES[0], two()], seed=1)
    drawn.save(path, 1)
    tracemalloc.start()
    drawn.save(path, 600)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 10


def test_files_of_templates_and_of_scenarios_are_told_apart(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(two().model_dump_json() + "\n")
    assert list(read_sources(path)) == [two()]
    path.write_text(Template.model_validate(GRANDPARENT).model_dump_json() + "\n")
    assert list(read_sources(path)) == TEMPLATES[:1]
    path.write_text("\n")
    with pytest.raises(InvalidTaskError, match="at least one template or scenario"):
        read_sources(path)


def test_streams_are_named_by_files_families_and_shipped_sets(tmp_path):
    from sotopia_env.naming import task_sources

    path = tmp_path / "mine.jsonl"
    path.write_text(two().model_dump_json() + "\n")
    assert list(task_sources(str(path))) == [two()]
    assert list(task_sources("starter")) == list(tasks.starter_scenarios())
    assert [family.name for family in task_sources("division,hiring")] == ["division", "hiring"]
    with pytest.raises(UnknownNameError, match=r"sources: .*did you mean 'division'"):
        task_sources("divisions")


def test_the_shipped_scenarios_can_be_cast_with_drawn_people():
    for task in itertools.islice(stream(tasks.starter_scenarios(), seed=2), 60):
        tasks.check(task)
