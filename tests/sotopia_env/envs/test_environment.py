"""The books: arguments, resets, actions, endings, what is paid and what is said about it."""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from sotopia_env import sotopia_v0
from sotopia_env.envs.options import EnvOptions
from sotopia_env.envs.pettingzoo_env import SotopiaEnv, SotopiaParallelEnv
from sotopia_env.foundation.errors import (
    EvaluationError,
    InvalidActionError,
    InvalidTaskError,
    InvalidValueError,
    RenderModeError,
    UnknownNameError,
)
from sotopia_env.world.action import ACTION_TYPES, Action, ActionType
from sotopia_env.world.dynamics import Rules, StopReason
from sotopia_env.world.episode import replay
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import ORDERS, OVERALL, FixedEvaluator, options, say, table_task

LEAVE = Action(ActionType.LEAVE)


def started(seats=2, private=False, seed=0, constructor=SotopiaEnv, **more):
    env = constructor(**options(seats, private, **more))
    env.reset(seed=seed)
    return env


def snapshot(env):
    """Everything the books say, so that a refused call can be shown to have changed nothing."""
    cumulative = getattr(env, "_cumulative_rewards", None)
    books = (env.rewards, env.terminations, env.truncations, env.infos) if hasattr(env, "rewards") else ()
    return copy.deepcopy(
        (env.episode_state, list(env.agents), books, cumulative, getattr(env, "agent_selection", None))
    )


BAD_OPTIONS = [
    ({"turn_oder": "random"}, UnknownNameError, {"field": "turn_oder"}),
    ({"turn_order": "randon"}, InvalidValueError, {"field": "turn_order", "nearest": "random"}),
    ({"turn_order": ["random"]}, InvalidValueError, {"field": "turn_order"}),
    ({"silence_rule": "old"}, InvalidValueError, {"field": "silence_rule"}),
    ({"max_turns": 0}, InvalidValueError, {"field": "max_turns"}),
    ({"max_turns": 2.0}, InvalidValueError, {"field": "max_turns"}),
    ({"max_rounds": True}, InvalidValueError, {"field": "max_rounds"}),
    ({"max_rounds": -1}, InvalidValueError, {"field": "max_rounds"}),
    ({"max_cycles": 3, "max_rounds": 4}, InvalidValueError, {"field": "max_cycles"}),
    ({"max_silent_turns": -1}, InvalidValueError, {"field": "max_silent_turns"}),
    ({"first_seat": 2}, InvalidValueError, {"field": "first_seat"}),
    ({"action_types": "speak"}, InvalidValueError, {"field": "action_types"}),
    ({"action_types": 5}, InvalidValueError, {"field": "action_types"}),
    ({"action_types": ["speek"]}, InvalidValueError, {"field": "action_types", "nearest": "speak"}),
    ({"scalarisation": "gaol"}, UnknownNameError, {"field": "scalarisation", "nearest": "goal"}),
    ({"scalarisation": 3}, InvalidValueError, {"field": "scalarisation"}),
    ({"render_mode": "rgb_array"}, RenderModeError, {"field": "render_mode"}),
    ({"on_unscored": "ignore"}, UnknownNameError, {"field": "on_unscored"}),
    ({"evaluator": None}, InvalidValueError, {"field": "evaluator"}),
    ({"evaluator": FixedEvaluator}, InvalidValueError, {"field": "evaluator"}),
    (
        {"task": None},
        InvalidValueError,
        {"field": "task"},
    ),
    ({"task": []}, InvalidValueError, {"field": "task"}),
    ({"task": ["t"]}, InvalidValueError, {"field": "task"}),
    ({"task": [table_task(2), table_task(2)]}, InvalidTaskError, {"field": "id"}),
    ({"task": [table_task(2), table_task(3, id="b")]}, InvalidValueError, {"field": "task"}),
    ({"infos": "short"}, UnknownNameError, {"field": "infos"}),
    (
        {"frameskip": 4},
        TypeError,
        {"field": "frameskip"},
    ),
    ({"seats": 3}, InvalidValueError, {"field": "seats"}),
]


@pytest.mark.parametrize(("wrong", "error", "fields"), BAD_OPTIONS)
@pytest.mark.parametrize("constructor", [SotopiaEnv, SotopiaParallelEnv, sotopia_v0.mo_env])
def test_wrong_options_are_answered_in_one_sentence(constructor, wrong, error, fields):
    with raises(error, **fields) as caught:
        constructor(**{**options(), **wrong})
    assert "\n" not in str(caught.value)


def test_every_rule_of_play_is_an_option_under_its_own_name():
    # Notes go from one episode of a run to the next, and an environment knows one episode.
    rules = {rule.name for rule in dataclasses.fields(Rules)} - {"carry"}
    assert rules <= set(EnvOptions.__annotations__)


def test_pettingzoos_name_of_the_limit_on_rounds_belongs_to_its_entry_module_alone():
    assert sotopia_v0.raw_env(**options(), max_cycles=3).options.rules.max_rounds == 3
    with raises(TypeError, field="max_cycles", nearest="max_rounds"):
        SotopiaEnv(**options(), max_cycles=3)


def test_seats_choose_among_tasks_of_different_size():
    tasks = TaskSet([table_task(2, id="two"), table_task(3, id="three"), table_task(3, id="trio")])
    env = SotopiaEnv(task=tasks, seats=3, evaluator=FixedEvaluator())
    assert env.possible_agents == ["agent_0", "agent_1", "agent_2"]
    ids = set()
    for seed in range(20):
        env.reset(seed=seed)
        ids.add(env.task.id)
    assert ids == {"three", "trio"}


def test_a_seed_fixes_tasks_and_orders_and_the_generator_continues():
    tasks = [table_task(3, id=f"task {k}") for k in range(50)]
    env, other = (SotopiaEnv(task=tasks, evaluator=FixedEvaluator(), turn_order="random") for _ in range(2))

    def sequence(which, seed):
        which.reset(seed=seed)
        ids = [(which.task.id, which.episode_state.seed, which.agent_selection)]
        for _ in range(10):
            which.reset()
            ids.append((which.task.id, which.episode_state.seed, which.agent_selection))
        return ids

    first = sequence(env, 7)
    assert first == sequence(other, np.int64(7)) == sequence(env, 7)
    assert first != sequence(env, 8)
    assert len(set(first)) > 5


def test_the_global_generators_are_neither_used_nor_moved():
    import random

    state = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    env = started(3, turn_order="random")
    for agent in env.agent_iter(50):
        env.step(None if env.terminations[agent] or env.truncations[agent] else env.action_space(agent).sample())
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state  # noqa: NPY002


def test_a_task_can_be_pinned_by_id_or_object_without_shifting_later_draws():
    tasks = [table_task(id=f"task {k}") for k in range(9)]
    env, free = (SotopiaEnv(task=tasks, evaluator=FixedEvaluator()) for _ in range(2))
    outside = table_task(id="outside the set")
    for pin, expected in [("task 4", "task 4"), (outside, "outside the set")]:
        env.reset(seed=1, options={"task": pin})
        free.reset(seed=1)
        assert env.task.id == expected
        assert env.episode_state.seed == free.episode_state.seed
        env.reset()
        free.reset()
        assert env.task.id == free.task.id


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"options": {"task": "test-tsak"}}, "options['task']"),
        ({"options": {"task": 5}}, "options['task']"),
        ({"options": {"task": table_task(3)}}, "options['task']"),
        ({"options": ["task"]}, "options"),
        ({"seed": -1}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_wrong_reset_arguments_leave_the_running_episode(arguments, field):
    for env in (started(), started(constructor=SotopiaParallelEnv)):
        before = snapshot(env)
        with raises(InvalidValueError, field=field):
            env.reset(**arguments)
        assert data_equivalence(snapshot(env), before)


BAD_ACTIONS = [
    (None, {"field": "action"}),
    (1, {"field": "action"}),
    ([1, "hello"], {"field": "action"}),
    ({}, {"field": "action"}),
    ({"argument": "x"}, {"field": "action"}),
    ({"action_type": 1, "arguments": "x"}, {"field": "action", "nearest": "argument"}),
    ({"action_type": 1, 7: "x"}, {"field": "action"}),
    ({"action_type": "speek", "argument": "x"}, {"field": "action_type", "nearest": "speak"}),
    ({"action_type": 5}, {"field": "action_type"}),
    ({"action_type": -1}, {"field": "action_type"}),
    ({"action_type": 10**5000}, {"field": "action_type"}),
    ({"action_type": True}, {"field": "action_type"}),
    ({"action_type": 1.0}, {"field": "action_type"}),
    ({"action_type": np.array([1, 2])}, {"field": "action_type"}),
    ({"action_type": None}, {"field": "action_type"}),
    ({"action_type": 1, "argument": 5}, {"field": "argument"}),
    ({"action_type": 1, "argument": None}, {"field": "argument"}),
    ({"action_type": 1, "argument": b"x"}, {"field": "argument"}),
    ({"action_type": 1, "argument": "x" * 16_385}, {"field": "argument"}),
    ({"action_type": 1, "argument": "x\ud800"}, {"field": "argument"}),
    ({"action_type": 1, "to": [1, 0]}, {"field": "to"}),
    ({"action_type": 1, "to": np.array([1.0, 0.0, 0.0])}, {"field": "to"}),
    ({"action_type": 1, "to": np.zeros((3, 3), np.int8)}, {"field": "to"}),
    ({"action_type": 1, "to": [0, 2, 0]}, {"field": "to"}),
    ({"action_type": 1, "to": [1, "agent_1", 0]}, {"field": "to"}),
    ({"action_type": 1, "to": 3}, {"field": "to"}),
    ({"action_type": 1, "to": ["agent1"]}, {"field": "to", "nearest": "agent_1"}),
    ({"action_type": 1, "to": "Bram"}, {"field": "to", "nearest": "Bram Testa"}),
    (Action(ActionType.SPEAK, "x", ("agent_9",)), {"field": "to", "nearest": "agent_2"}),
]


@pytest.mark.parametrize(("action", "fields"), BAD_ACTIONS)
def test_unreadable_actions_are_refused_and_change_nothing(action, fields):
    env = started(3, private=True, turn_order="simultaneous")
    env.step(say())
    before = snapshot(env)
    with raises(InvalidActionError, **fields) as caught:
        env.step(action)
    assert len(str(caught.value)) < 500
    assert data_equivalence(snapshot(env), before)
    parallel = started(3, private=True, constructor=SotopiaParallelEnv, turn_order="simultaneous")
    before = snapshot(parallel)
    with raises(InvalidActionError, **fields):
        parallel.step({"agent_0": say(), "agent_1": say(), "agent_2": action})
    assert snapshot(parallel) == before  # not even the good actions of the same round


GOOD_ACTIONS = [
    (say("x"), say("x")),
    ({"action_type": 1, "argument": "x"}, say("x")),
    ({"action_type": "speak", "argument": "x"}, say("x")),
    ({"action_type": ActionType.SPEAK, "argument": "x"}, say("x")),
    ({"action_type": np.int64(1), "argument": np.str_("x")}, say("x")),
    ({"action_type": np.array(1), "argument": "x", "to": None}, say("x")),
    ({"action_type": 4}, Action(ActionType.LEAVE)),
    ({"action_type": 0, "argument": "mute"}, Action(ActionType.NONE)),
    ({"action_type": 1, "argument": "x", "to": []}, say("x")),
    ({"action_type": 1, "argument": "x", "to": np.zeros(3, np.int8)}, say("x")),
    ({"action_type": 1, "argument": "x", "to": np.ones(3, np.int8)}, say("x")),
    ({"action_type": 1, "argument": "x", "to": (0, 1, 1)}, say("x")),
    ({"action_type": 1, "argument": "x", "to": np.array([1, 0, 1], np.int8)}, say("x", "agent_2")),
    ({"action_type": 1, "argument": "x", "to": [False, True, False]}, say("x", "agent_1")),
    ({"action_type": 1, "argument": "x", "to": ["Chidi Testa", "agent_2"]}, say("x", "agent_2")),
    ({"action_type": 1, "argument": "x", "to": "agent_1"}, say("x", "agent_1")),
]


@pytest.mark.parametrize(("value", "action"), GOOD_ACTIONS)
def test_every_documented_form_of_an_action_is_read(value, action):
    for constructor in (SotopiaEnv, SotopiaParallelEnv):
        env = started(3, private=True, constructor=constructor)
        env.step(value if constructor is SotopiaEnv else {"agent_0": value})
        turn = env.episode_state.turns[0]
        assert (turn.action, turn.violation) == (action, None)
        assert type(turn.action.argument) is str


def test_a_sampled_mask_in_a_public_scenario_is_a_violation_of_its_actor_until_it_acts_well():
    """Guards S12: what is not available is never carried out, and is said."""
    env = started(3)
    env.step({"action_type": 1, "argument": "psst", "to": np.array([0, 1, 0], np.int8)})
    assert env.episode_state.turns[0].action.action_type is ActionType.NONE
    assert "private actions are not possible" in env.infos["agent_0"]["violation"]
    for _ in range(2):
        env.step(say())
        assert "violation" in env.infos["agent_0"]
        assert "violation" not in env.infos["agent_1"]
    env.step(say())
    assert "violation" not in env.infos["agent_0"]


def test_unavailable_action_types_become_none():
    env = started(action_types=["speak"])
    assert env.observe("agent_0")["available_action_types"].tolist() == [1, 1, 0, 0, 0]
    assert env.observe("agent_1")["available_action_types"].tolist() == [1, 0, 0, 0, 0]
    env.step(LEAVE)
    assert "not available" in env.infos["agent_0"]["violation"]
    assert not env.infos["agent_0"]["has_left"]


@pytest.mark.parametrize("constructor", [SotopiaEnv, SotopiaParallelEnv])
def test_calls_in_a_wrong_order_are_refused(constructor):
    env = constructor(**options())
    for call in (lambda: env.step({}), lambda: env.observation("agent_0"), env.state, env.episode):
        with pytest.raises(InvalidValueError):
            call()


def test_after_the_end_only_none_is_taken_and_then_nothing():
    env = started(max_turns=1)
    env.step(say())
    with raises(InvalidActionError, field="action"):
        env.step(say())
    for _ in range(2):
        env.step(None)
    with pytest.raises(InvalidActionError):
        env.step(None)
    env.reset()
    assert env.agents == ["agent_0", "agent_1"]
    assert env.episode_state.turns == ()


ENDINGS = [
    ([LEAVE], 2, {}, StopReason.LEFT),
    ([LEAVE, say(), LEAVE], 3, {}, StopReason.LEFT),
    ([Action(ActionType.NONE)] * 3, 2, {}, StopReason.SILENCE),
    ([say()] * 20, 2, {}, StopReason.TURN_LIMIT),
    ([say()] * 6, 2, {"max_turns": 6}, StopReason.TURN_LIMIT),
    ([say()] * 6, 3, {"max_rounds": 2}, StopReason.TURN_LIMIT),
]


@pytest.mark.parametrize(("actions", "seats", "more", "stop"), ENDINGS)
def test_all_agents_end_together_and_limits_truncate(actions, seats, more, stop):
    """Guards S11: in the predecessor the turn limit was a termination and no reward was ever paid."""
    env = started(seats, **more)
    for action in actions:
        assert not any([*env.terminations.values(), *env.truncations.values()])
        assert not any("stop_reason" in info or "reward_vector" in info for info in env.infos.values())
        env.step(action)
    for agent in env.possible_agents:
        assert (env.terminations[agent], env.truncations[agent]) == (not stop.truncated, stop.truncated)
        assert env.infos[agent]["stop_reason"] == stop.value
        assert env.rewards[agent] == pytest.approx(OVERALL[agent])
    assert env.episode().stop is stop


def test_an_agent_that_left_stays_but_is_never_selected_again():
    """Guards S12: an agent that left acted again in the predecessor."""
    env = started(3)
    env.step(LEAVE)
    for _ in range(6):
        assert env.agents == ["agent_0", "agent_1", "agent_2"]
        assert env.agent_selection != "agent_0"
        assert [env.infos[agent]["has_left"] for agent in env.agents] == [True, False, False]
        assert not env.infos["agent_0"]["acting"]
        env.step(say())
    env.step(LEAVE)
    assert env.rewards["agent_0"] == pytest.approx(OVERALL["agent_0"])


def test_parallel_steps_read_the_acting_agents_only():
    env = started(3, constructor=SotopiaParallelEnv, turn_order="simultaneous")
    env.step({"agent_0": LEAVE, "agent_1": say(), "agent_2": say()})
    assert env.agents == ["agent_0", "agent_1", "agent_2"]
    _, _, _, _, infos = env.step({"agent_0": "not read", "agent_1": say(), "agent_2": say()})
    assert [infos[agent]["acting"] for agent in env.agents] == [False, True, True]
    with raises(InvalidActionError, field="actions"):
        env.step({"agent_1": say()})
    with raises(UnknownNameError, field="agent", nearest="agent_2"):
        env.step({"agent_1": say(), "agent_2": say(), "agent_7": say()})
    with raises(InvalidActionError, field="actions"):
        env.step([say()])
    turns = started(3, constructor=SotopiaParallelEnv)
    _, _, _, _, infos = turns.step({"agent_0": say("mine"), "agent_1": 5, "agent_2": None})
    assert [infos[agent]["acting"] for agent in turns.agents] == [False, True, False]
    assert len(turns.episode_state.turns) == 1


def test_a_parallel_environment_that_has_ended_answers_with_nothing():
    env = started(constructor=SotopiaParallelEnv, max_turns=1)
    env.step({"agent_0": say()})
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})


UNSCORED = [
    (FixedEvaluator(error="the judge is ill"), "the judge is ill"),
    (FixedEvaluator(unscored="no verdict"), "no verdict"),
    (FixedEvaluator(missing="agent_1"), "no score for agent_1"),
    (FixedEvaluator(extra="agent_7"), "agent_7"),
]


@pytest.mark.parametrize(("evaluator", "reason"), UNSCORED)
@pytest.mark.parametrize("vector", [False, True])
def test_a_failed_evaluation_raises_after_all_agents_have_ended(evaluator, reason, vector):
    """Guards S8: a failure of the judge was indistinguishable from a score of 0."""
    env = started(vector=vector, max_turns=1, evaluator=evaluator)
    with pytest.raises(EvaluationError, match=reason):
        env.step(say())
    assert all(env.truncations.values())
    for agent in env.agents:
        assert not np.any(env.rewards[agent])
        assert reason in env.infos[agent]["unscored"]
        assert "reward_vector" not in env.infos[agent]
    parallel = started(constructor=SotopiaParallelEnv, vector=vector, max_turns=1, evaluator=evaluator)
    with pytest.raises(EvaluationError, match=reason):
        parallel.step({"agent_0": say()})
    assert parallel.agents == []


@pytest.mark.parametrize(("evaluator", "reason"), UNSCORED)
@pytest.mark.parametrize("vector", [False, True])
def test_on_request_a_failed_evaluation_pays_zeros_and_says_so(evaluator, reason, vector):
    env = started(vector=vector, max_turns=1, evaluator=evaluator, on_unscored="zero")
    env.step(say())
    parallel = started(
        constructor=SotopiaParallelEnv, vector=vector, max_turns=1, evaluator=evaluator, on_unscored="zero"
    )
    _, rewards, _, truncations, infos = parallel.step({"agent_0": say()})
    for paid, ended, details in ((env.rewards, env.truncations, env.infos), (rewards, truncations, infos)):
        for agent in env.possible_agents:
            assert ended[agent]
            assert not np.any(paid[agent])
            assert np.shape(paid[agent]) == ((7,) if vector else ())
            assert "reward_vector" not in details[agent]
            assert reason in details[agent]["unscored"]
    assert len(env.episode().evaluations) == 1
    env.reset()
    assert env.episode().evaluations == ()
    assert "unscored" not in env.infos["agent_0"]


def test_an_evaluator_that_returns_something_else_is_unscored():
    class Odd(FixedEvaluator):
        async def evaluate(self, episode):
            return []

    with pytest.raises(EvaluationError, match=r"fixed: .*list"):
        started(max_turns=1, evaluator=Odd()).step(say())


@pytest.mark.parametrize("order", ORDERS)
def test_the_record_of_an_episode_can_be_replayed(order):
    env = started(3, private=True, turn_order=order, max_turns=9)
    for number in itertools.count():
        if env.episode_state.stop is not None:
            break
        env.step(say(f"line {number}"))
    episode = env.episode()
    assert replay(episode) == env.episode_state
    assert [e.evaluator for e in episode.evaluations] == ["fixed"]
    assert env.episode().plain_turns == env.episode_state.turns


def test_nothing_that_was_handed_out_changes_later():
    env = started(vector=True, max_turns=3)
    handed_out = []
    for _ in range(3):
        observation, *_, info = env.last()
        handed_out += [observation, info, env.infos, env.rewards, env.terminations, env.truncations]
        handed_out += list(env.rewards.values())
        frozen = copy.deepcopy(handed_out)
        env.step(say())
        assert data_equivalence(handed_out, frozen)
    arrays = [*env.rewards.values(), *(info["reward_vector"] for info in env.infos.values())]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))
    first, second = env.observe("agent_0"), env.observe("agent_0")
    assert first is not second
    assert not np.shares_memory(first["available_action_types"], second["available_action_types"])


def test_observations_and_states_are_in_their_spaces():
    env = started(3, private=True, seed=1)
    for agent in env.possible_agents:
        space = env.observation_space(agent)
        assert set(space.spaces) == {"text", "history", "table", "moves", "turn", "available_action_types"}
        assert env.observe(agent) in space
        assert env.action_space(agent).contains(
            {"action_type": 1, "argument": "“¿Qué?” 🙂\n", "to": np.ones(3, np.int8), "move": ""}
        )
        assert env.reward_space(agent).shape == (7,)
    assert set(env.observation_spaces) == set(env.action_spaces) == set(env.reward_spaces) == set(env.possible_agents)
    assert env.action_space("agent_0")["action_type"].n == len(ACTION_TYPES)


def test_the_state_holds_everything_and_observations_do_not():
    env = started(3, private=True)
    env.step(say("for two ears only", "agent_2"))
    state = env.state()
    assert state in env.state_space
    assert "for two ears only" in state["history"]
    assert all(f"Goal of seat {seat}." in state["task"] for seat in range(3))
    assert "for two ears only" not in env.observe("agent_1")["text"]


@pytest.mark.parametrize("constructor", [SotopiaEnv, SotopiaParallelEnv])
def test_rendering(constructor, capsys):
    ansi, human, silent = (
        started(constructor=constructor, render_mode=mode, max_turns=2) for mode in ("ansi", "human", None)
    )
    heading = "Situation: A few people stand at a bus stop in the rain.\nParticipants: Ada Testa, Bram Testa\n"
    assert ansi.render() == heading
    for env in (ansi, human, silent):
        for agent in env.possible_agents:
            env.step(say("Hi.") if constructor is SotopiaEnv else {agent: say("Hi.")})
    transcript = (
        heading + 'Turn #1 | Ada Testa said: "Hi."\nTurn #2 | Bram Testa said: "Hi."\nThe episode ended: turn limit.\n'
    )
    assert ansi.render() == transcript == ansi.render()
    assert human.render() is None
    assert capsys.readouterr().out == transcript
    with pytest.warns(UserWarning, match="render_mode"):
        assert silent.render() is None
    human.reset()
    assert capsys.readouterr().out == heading


def test_accessors_pass_through_the_order_enforcing_wrapper():
    env = sotopia_v0.env(**options())
    env.reset(seed=0)
    assert env.observation("agent_0").acting
    assert env.task.id == env.episode().task.id


@pytest.mark.parametrize("first_seat", [0, 1])
def test_either_seat_can_open(first_seat):
    assert started(first_seat=first_seat).agent_selection == f"agent_{first_seat}"


@pytest.mark.parametrize("on_unscored", ["raise", "zero"])
def test_whatever_an_evaluator_raises_all_agents_end_consistently(on_unscored):
    class Broken(FixedEvaluator):
        async def evaluate(self, episode):
            raise RuntimeError("net down")

    env = SotopiaEnv(task=table_task(), evaluator=Broken(), max_turns=1, on_unscored=on_unscored)
    env.reset(seed=0)
    if on_unscored == "raise":
        with pytest.raises(EvaluationError, match="fixed: RuntimeError: net down"):
            env.step(say())
    else:
        env.step(say())
    assert all(env.truncations.values())
    assert "net down" in env.infos["agent_0"]["unscored"]
    assert set(env.rewards.values()) == {0.0}
    for agent in env.agent_iter():
        assert agent in env.possible_agents
        env.step(None)
    assert env.agents == []
