"""Names: of agents, and of tasks, evaluators and partners as on the command line, in constructors and in ``reset``."""

import gymnasium
import numpy as np
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.tasks import starter_tasks
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import FixedEvaluator, Partner, options, say, table_task

CONSTRUCTORS = (
    sotopia_v0.env, sotopia_v0.raw_env, sotopia_v0.mo_env, sotopia_v0.parallel_env, sotopia_v0.mo_parallel_env,
    SotopiaSingleAgentEnv,
)  # fmt: skip
every_constructor = pytest.mark.parametrize("constructor", CONSTRUCTORS)


@pytest.mark.parametrize(
    ("agent", "field"),
    [
        ("agent1", "agent"),
        (None, "agent"),
        (0, "agent"),
        ([], "agent"),
        (np.array(["agent_0", "agent_1"]), "agent"),
    ],
)
@pytest.mark.parametrize("constructor", CONSTRUCTORS[:-1])
def test_every_method_that_takes_an_agent_refuses_other_values(constructor, agent, field):
    env = constructor(**options())
    env.reset(seed=0)
    inner = env.unwrapped
    for call in (env.observe, inner.observation, env.action_space, env.observation_space, inner.reward_space):
        with raises(UnknownNameError, field=field):
            call(agent)


@pytest.mark.parametrize("agent", ["agent1", None, 7])
def test_a_parallel_step_refuses_actions_of_others(agent):
    env = sotopia_v0.parallel_env(**options())
    env.reset(seed=0)
    with raises(UnknownNameError, field="agent"):
        env.step({"agent_0": say(), "agent_1": say(), agent: say()})
    assert env.episode_state.turns == ()


@every_constructor
def test_tasks_and_evaluators_go_by_name(constructor):
    env = constructor(task="starter", seats=2, evaluator="verified+sotopia_env.testing:FixedEvaluator").unwrapped
    env.reset(seed=0)
    assert env.episode().task.id in {task.id for task in starter_tasks()}
    inner = getattr(env, "_aec", env)
    assert inner.options.evaluator.name == "verified+fixed"


@every_constructor
def test_a_file_is_a_name(constructor, tmp_path):
    TaskSet([table_task(id="from a file")]).save(tmp_path / "tasks.jsonl")
    env = constructor(task=str(tmp_path / "tasks.jsonl"), evaluator=FixedEvaluator()).unwrapped
    env.reset(seed=0)
    assert env.episode().task.id == "from a file"


@every_constructor
def test_reset_takes_an_id_a_name_or_a_task(constructor):
    env = constructor(**options()).unwrapped
    starters = {task.id for task in starter_tasks() if len(task.agents) == 2}
    ids = set()
    for seed in range(4):
        env.reset(seed=seed, options={"task": "starter"})
        ids.add(env.episode().task.id)
    assert ids <= starters
    assert len(ids) > 1
    env.reset(seed=0, options={"task": "test-task"})
    assert env.episode().task.id == "test-task"
    env.reset(seed=0, options={"task": table_task(id="given here")})
    assert env.episode().task.id == "given here"
    env.reset(seed=0)
    assert env.episode().task.id == "test-task"


@pytest.mark.parametrize(
    ("wrong", "error", "fields"),
    [
        ({"task": "bargainin"}, UnknownNameError, {"field": "tasks", "nearest": "bargaining"}),
        ({"task": "no/such.jsonl"}, InvalidTaskError, {"file": "such.jsonl"}),
        ({"task": " "}, InvalidValueError, {"field": "tasks", "got": " "}),
        ({"evaluator": "verifed"}, UnknownNameError, {"field": "evaluator", "nearest": "verified"}),
        ({"evaluator": 5}, InvalidValueError, {"field": "evaluator", "got": 5}),
    ],
)
@every_constructor
def test_wrong_names_are_answered_with_the_nearest(constructor, wrong, error, fields):
    with raises(error, **fields) as caught:
        constructor(**{**options(), **wrong})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "error", "fields"),
    [
        ({"task": "bargainin"}, UnknownNameError, {"field": "options['task']", "nearest": "bargaining"}),
        ({"task": "test-taks"}, UnknownNameError, {"field": "options['task']", "nearest": "test-task"}),
        ({"evaluator": "verifid"}, UnknownNameError, {"field": "evaluator", "nearest": "verified"}),
        ({"tsak": "test-task"}, UnknownNameError, {"field": "options", "nearest": "task"}),
        ({"task": "test-task", "seats": 3}, UnknownNameError, {"field": "options", "got": "seats"}),
        ({7: "test-task"}, UnknownNameError, {"field": "options", "got": 7}),
    ],
)
@every_constructor
def test_wrong_names_in_reset_leave_the_running_episode(constructor, wrong, error, fields):
    env = constructor(**options()).unwrapped
    env.reset(seed=3)
    before = env.episode()
    with raises(error, **fields):
        env.reset(options=wrong)
    assert env.episode() == before


@pytest.mark.parametrize("option", ["partner", "focal_seat"])
def test_only_an_environment_with_partners_takes_options_on_them(option):
    for constructor in CONSTRUCTORS[:-1]:
        with raises(UnknownNameError, field="options", got=option):
            constructor(**options()).reset(options={option: 1})


def test_the_key_of_pettingzoo_s_own_suites_is_accepted():
    env = sotopia_v0.raw_env(**options())
    env.reset(seed=0, options={"options": 1})
    assert env.task.id == "test-task"


def test_a_named_set_keeps_the_number_of_seats():
    env = sotopia_v0.raw_env(**options(3))
    with raises(InvalidValueError, field="options['task']"):
        env.reset(options={"task": "bargaining"})


def test_an_evaluator_of_reset_scores_one_episode():
    env = sotopia_v0.raw_env(**options(max_turns=1))
    names = []
    for changes in ({"evaluator": FixedEvaluator(name="other")}, None, {"evaluator": FixedEvaluator(name="mine")}):
        env.reset(seed=0, options=changes)
        env.step(say())
        names.append(env.episode().evaluations[0].evaluator)
    assert names == ["other", "fixed", "mine"]


def test_partners_go_by_name_in_the_constructor_and_in_reset():
    env = gymnasium.make("sotopia_env/Sotopia-v0", partner="silent", **options()).unwrapped

    def types(**changes):
        env.reset(seed=0, options=changes or None)
        env.step(say())
        return [item.turn.action.action_type.value for item in env.episode().turns]

    assert types() == ["speak", "none"]
    assert types(partner="leaver")[1] in ("speak", "leave")
    assert types(partner=Partner(leaves=True)) == ["speak", "leave"]
    assert types(partner={1: Partner()}) == ["speak", "speak"]
    assert types() == ["speak", "none"]
    with pytest.raises(UnknownNameError):
        env.reset(options={"partner": "boulwar"})
    with raises(InvalidValueError, field="partner"):
        env.reset(options={"partner": 5})
    for name, close in [("focal", "focal_seat"), ("options", None)]:
        with raises(UnknownNameError, field="options", got=name, nearest=close):
            env.reset(options={name: 1})


def test_the_families_play_against_the_opponents_by_name():
    env = gymnasium.make(
        "sotopia_env/Sotopia-v0", task="bargaining", partner="boulware", evaluator="verified"
    ).unwrapped
    env.reset(seed=1)
    for _ in range(20):
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            break
    assert set(info["outcome"]) == {"agreed", "payoff", "share", "efficiency", "fairness"}
