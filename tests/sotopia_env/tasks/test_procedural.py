"""Streams of tasks: people who meet the constraints, random access, and files of any length."""

import itertools
import tracemalloc

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import ConstraintError, InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.tasks.procedural import TaskStream, stream
from sotopia_env.world import Task, TaskSet
from sotopia_env.world.scenario import Constraints
from sotopia_env.world.taskset import admissible_seatings
from tests.errors import raises
from tests.sotopia_env.factories import scenario
from tests.sotopia_env.tasks.test_templates import TEMPLATES


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
    task_stream = TaskStream([two(**constraints)], seed=3)
    for index in range(100):
        task = task_stream.task(index)
        tasks.check(task)
        assert (task.id, task.scenario.id) == (f"test-scenario/{index}", "test-scenario")
        if task.relationships[0].kind == "romantic":
            assert min(person.age for person in task.characters) >= 18
        for person in task.characters:
            assert not person.occupation.startswith("retired") or person.age >= 58
        assert Task.model_validate_json(task.model_dump_json()) == task


@pytest.mark.parametrize(
    ("constraints", "fields"),
    [
        ({"ages": [[20, 30], [5, 9]]}, {"field": "constraints.ages.1", "got": "5 to 9"}),
        ({"facts": {"home": "shard"}}, {"field": "constraints.facts", "nearest": "home: shared"}),
        ({"relationships": ["stranger"], "facts": {"home": "shared"}}, {"field": "constraints.facts"}),
    ],
)
def test_a_seat_that_no_character_can_take_is_refused(constraints, fields):
    with raises(ConstraintError, record="scenario 'test-scenario'", **fields):
        TaskStream([two(**constraints)], seed=0)


def test_the_same_people_play_all_versions_of_a_vignette():
    versions = [scenario(2, id=name, tags=("vignette=copier", f"status={name}")) for name in ("equal", "boss")]
    other = scenario(2, id="other")
    for cast in (None, tasks.read_cast("everyday")):
        task_stream = TaskStream([*versions, other], seed=5, cast=cast)
        for index in range(0, 30, 3):
            equal, boss, apart = (task_stream.task(index + i).characters for i in range(3))
            assert equal == boss
            assert apart != equal


def test_sources_take_turns_and_a_stream_starts_at_any_index():
    sources = [*TEMPLATES, two(), tasks.family("division")]
    first = list(itertools.islice(stream(sources, seed=4), 12))
    assert [task.id for task in first[:6]] == [
        "attic/0", "excursion/0", "bill/0", "test-scenario/0", "division-medium-4-0", "attic/1",
    ]  # fmt: skip
    assert list(itertools.islice(stream(sources, seed=4, start=7), 5)) == first[7:]
    assert [TaskStream(sources, seed=4).task(index) for index in (11, 2)] == [first[11], first[2]]
    assert first[0] == tasks.instantiate(TEMPLATES[0], 0, 4)
    assert next(stream(sources, seed=5)).content_hash != first[0].content_hash


@pytest.mark.parametrize(
    ("sources", "seed", "field"),
    [
        ([], 0, "sources"),
        ([two(), two()], 0, "sources"),
        ([two(), "division"], 0, "sources.1"),
        ([two()], -1, "seed"),
    ],
)
def test_a_stream_needs_sources_and_a_seed(sources, seed, field):
    with raises(InvalidValueError, field=field):
        TaskStream(sources, seed)


def test_a_casting_whose_id_would_be_too_long_is_refused(tmp_path):
    long = "x" * 79
    sources = [TEMPLATES[0].model_copy(update={"id": long}), two().model_copy(update={"id": long})]
    for source in sources:
        with raises(InvalidTaskError, field="id"):
            TaskStream([source], seed=0).task(0)
    with raises(InvalidTaskError, field="id"):
        TaskStream([two()], seed=0).save(tmp_path / "many.jsonl", 1, start=10**90)
    assert not any(tmp_path.iterdir())


def test_any_number_of_tasks_can_be_asked_for(tmp_path):
    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TaskStream([two()], seed=0).save(tmp_path / "many.jsonl", 10**30, advance=stop)
    with raises(InvalidValueError, field="start"):
        TaskStream([two()], seed=0).save(tmp_path / "many.jsonl", 1, start=-1)


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "drawn.jsonl"
    task_stream = TaskStream(TEMPLATES, seed=1)
    task_stream.save(path, 9, start=2)
    assert list(TaskSet.load(path)) == [task_stream.task(index) for index in range(2, 11)]

    def fail(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        task_stream.save(tmp_path / "other.jsonl", 9, advance=fail)
    assert [file.name for file in tmp_path.iterdir()] == ["drawn.jsonl"]


def test_a_long_stream_is_never_in_memory(tmp_path):
    path = tmp_path / "drawn.jsonl"
    task_stream = TaskStream([TEMPLATES[0], two()], seed=1)
    task_stream.save(path, 1)
    tracemalloc.start()
    task_stream.save(path, 600)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 10


def test_streams_are_named_by_files_families_and_shipped_sets(tmp_path):
    from sotopia_env.naming.task_sources import task_sources

    path = tmp_path / "mine.jsonl"
    path.write_text(two().model_dump_json() + "\n")
    assert list(task_sources(str(path)).sources) == [two()]
    assert list(task_sources("starter").sources) == list(tasks.starter_scenarios())
    assert [family.name for family in task_sources("division,hiring").sources] == ["division", "hiring"]
    with raises(UnknownNameError, nearest="division"):
        task_sources("divisions")


def test_the_shipped_scenarios_can_be_cast_with_drawn_people():
    for task in itertools.islice(stream(tasks.starter_scenarios(), seed=2), 60):
        tasks.check(task)


def test_a_stream_of_scenarios_takes_the_people_of_a_cast():
    """With their own relationships; no seating comes twice before all have come."""
    scenarios, cast = tasks.everyday_scenarios(), tasks.everyday_cast()
    task_stream = TaskStream(scenarios, seed=3, cast=cast)
    some = [task_stream.task(index) for index in range(0, 8 * len(scenarios), 7)]
    names = {character.name for character in cast.characters}
    for task in some:
        assert set(task.names.values()) <= names
        tasks.check(task)
    assert task_stream.task(500) == TaskStream(scenarios, seed=3, cast=cast).task(500)
    one = TaskStream(scenarios[:1], seed=3, cast=cast)
    seatings = len(admissible_seatings(scenarios[0], cast))
    seats = [tuple(one.task(index).names.values()) for index in range(2 * seatings)]
    assert len(set(seats[:seatings])) == len(set(seats[seatings:])) == seatings


def test_a_cast_that_cannot_play_a_scenario_is_named_with_it():
    scenario = tasks.everyday_scenarios()[0].model_copy(update={"constraints": Constraints(ages=((1, 2), (1, 2)))})
    with raises(ConstraintError, field="cast", record="scenario 'karaoke-clip'"):
        TaskStream([scenario], seed=0, cast=tasks.everyday_cast())
