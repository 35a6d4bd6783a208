"""Tasks of an environment: fresh ones of families and streams, fixed ones of sets, both by the seed alone."""

from __future__ import annotations

import gymnasium
import pytest

from sotopia_env import sotopia_v0, tasks
from sotopia_env.envs.fresh_tasks import MANY, FreshTasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.testing import FixedEvaluator
from tests.errors import raises


def task_ids(env, seeds):
    ids = []
    for seed in seeds:
        env.reset(seed=seed)
        ids.append(env.unwrapped.episode().task.id)
    return ids


def make(**options):
    return gymnasium.make("sotopia_env/Sotopia-v0", **options)


@pytest.mark.parametrize("constructor", [sotopia_v0.env, sotopia_v0.parallel_env, make])
def test_a_family_gives_a_fresh_task_at_every_reset_and_the_seed_repeats_it(constructor) -> None:
    seeds = [0, *[None] * 30]
    first = task_ids(constructor(task="bargaining:level=hard"), seeds)
    assert len(set(first)) == len(seeds)
    assert task_ids(constructor(task="bargaining:level=hard"), seeds) == first
    assert all(name.startswith("bargaining-hard-0-") for name in first)


def test_options_in_the_name_choose_level_sequence_and_number() -> None:
    assert all(
        name.startswith("division-easy-7-") for name in task_ids(make(task="division:level=easy,seed=7"), range(4))
    )
    some = task_ids(make(task="bargaining:n=3,seed=7"), range(40))
    assert set(some) == {f"bargaining-medium-7-{number}" for number in range(3)}
    whole = task_ids(make(task="everyday:split=test", seats=2, evaluator=FixedEvaluator()), range(10))
    assert set(whole) <= {task.id for task in tasks.everyday_tasks().split("test")}


def test_families_take_turns_and_those_with_other_seats_are_left_out() -> None:
    env = make(task="all", seats=2)
    families = {name.split("-")[0] for name in task_ids(env, range(60))}
    talks = {"bargaining", "division", "mutual_friend", "hiring", "campsite", "negotiation"}
    assert families == talks | {"dilemma", "trust", "traveller", "grid"}
    with raises(InvalidValueError, field="task"):
        make(task="all")
    with raises(InvalidValueError, field="seats"):
        make(task="all", seats=7)


def test_a_stream_is_as_good_as_a_name() -> None:
    stream = tasks.TaskStream(tasks.starter_scenarios(), seed=3)
    assert len(set(task_ids(make(task=stream, seats=2, evaluator=FixedEvaluator()), range(12)))) == 12


def test_one_fresh_task_is_found_by_its_id() -> None:
    env = make(task="bargaining,division")
    env.reset(options={"task": "division-medium-0-17"})
    assert env.unwrapped.episode().task == tasks.family("division").generate(17, 0, "medium")
    with raises(UnknownNameError, field="options['task']", nearest="division-medium-0-0"):
        env.reset(options={"task": "division-hard-0-17"})
    ids = set()
    for seed in range(5):
        env.reset(seed=seed, options={"task": "hiring"})
        ids.add(env.unwrapped.episode().task.id)
    assert len(ids) == 5


def test_the_sequence_is_that_of_the_stream() -> None:
    stream = tasks.TaskStream([tasks.family("bargaining"), tasks.family("division")], seed=1)
    fresh = FreshTasks(stream)
    assert len(fresh) == MANY
    assert [task.id for task in fresh[:4]] == [stream.task(index).id for index in range(4)]
    with pytest.raises(IndexError):
        fresh[MANY]


def test_members_of_a_vector_play_different_fresh_tasks() -> None:
    envs = gymnasium.make_vec("sotopia_env/Sotopia-v0", num_envs=4, task="bargaining")
    envs.reset(seed=0)
    assert len({env.episode().task.id for env in envs.envs}) == 4
