"""Tasks with facts in the spaces, schemas and functions of environments and models."""

import json

import gymnasium
import numpy as np
import pytest

from sotopia_env.envs.moves_env import SotopiaMovesEnv, SotopiaMovesParallelEnv
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.function_calls import action_text, call_of, functions_of
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.action import Action, parse_possible, to_json
from sotopia_env.world.dynamics import Rules, initial_state
from sotopia_env.world.observation import observe
from tests.sotopia_env.tasks.test_mini_mafia import seats
from tests.sotopia_env.world.scenarios import say, verified_task


def test_every_open_index_is_a_move_that_counts():
    env, rng = SotopiaMovesEnv(task="mini_mafia", partner="bayesian"), np.random.default_rng(0)
    for seed in range(8):
        numbers, info = env.reset(seed=seed)
        over = False
        while not over:
            assert env.observation_space.contains(numbers)
            mask = info["action_mask"].copy()
            mask[1] = 0  # leaving ends the test of moves early
            numbers, _, over, _, info = env.step(int(rng.choice(np.flatnonzero(mask))))
        assert [turn.violation for turn in env.episode().plain_turns if turn.violation] == []


def test_what_was_stated_is_in_the_numbers_and_what_is_hidden_is_not():
    tasks = [verified_task("facts", 3)]
    env = SotopiaMovesParallelEnv(task=tasks, max_turns=12)
    before, _ = env.reset(seed=0)
    other = env.step(dict.fromkeys(env.agents, 0))[0]
    assert before["agent_1"]["observation"].shape == other["agent_1"]["observation"].shape
    knowledge = before["agent_1"]["observation"][1:10].reshape(3, 3)
    assert knowledge.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # the seer
    assert before["agent_2"]["observation"][1:7].tolist() == [0.5, 0.5, 0, 0.5, 0.5, 0]  # the sheep


def test_a_seat_expects_of_an_option_what_follows_from_its_own_knowledge():
    task = generate("mini_mafia", 1, 0)[0]
    env = SotopiaMovesParallelEnv(task=[task])
    numbers, _ = env.reset(seed=0)
    names = task.scenario.outcome.protocol.options
    hidden, informed, plain = (names.index(task.names[seats(task)[role]]) for role in range(3))
    utilities = {role: numbers[seats(task)[role]]["observation"][-len(names) :] for role in range(3)}
    assert {index: float(utilities[0][index]) for index in (hidden, informed, plain)} == {
        hidden: 0,
        informed: 1,
        plain: 1,
    }
    assert {index: float(utilities[1][index]) for index in (hidden, informed, plain)} == {
        hidden: 1,
        informed: 0,
        plain: 0,
    }
    # The villager's worth is that of the detective; what it can expect is not.
    assert {index: float(utilities[2][index]) for index in (hidden, informed, plain)} == {
        hidden: 0.5,
        informed: 0.5,
        plain: 0,
    }


def test_agreements_and_facts_do_not_mix():
    mixed = [verified_task("facts", 3), verified_task("agreement", 3)]
    with pytest.raises(InvalidValueError, match="facts"):
        SotopiaMovesEnv(task=mixed)
    with pytest.raises(InvalidValueError, match="agreements"):
        SotopiaMovesEnv(task=mixed[::-1])


def test_the_space_of_moves_draws_statements_that_count():
    env = gymnasium.make("sotopia_env/Sotopia-v0", task="mini_mafia", partner="honest", disable_env_checker=True)
    env.reset(seed=1)
    env.action_space.seed(3)
    moves = [env.action_space.sample()["move"] for _ in range(60)]
    assert {kind for move in moves if move for kind in json.loads(move)} >= {"state", "ask"}


def test_models_may_state_show_and_ask_by_function_and_by_schema():
    observation = observe(initial_state(verified_task("facts", 3, True), Rules(), 0), "agent_0")
    functions = {function["name"]: function["parameters"]["properties"] for function in functions_of(observation)}
    assert functions["state"]["values"]["properties"]["hour"]["enum"] == ["one", "two", "three"]
    assert "to" in functions["show"]  # statements may be private
    assert "to" not in functions["vote"]
    assert "code" in functions["ask"]["variables"]["items"]["enum"]
    hidden = observe(initial_state(verified_task("facts", 3, True), Rules(), 0), "agent_1")
    assert "code" not in json.dumps([functions_of(hidden), action_schema(hidden)])
    for action in (say("x", state={"hour": "one"}), say("x", "agent_1", show="hour"), say("x", ask=["hour", "code"])):
        call = call_of(to_json(action))
        assert call is not None
        read = parse_possible(action_text([call]), observation.available, observation.briefing.recipients)
        assert isinstance(read, Action)
        assert read.move == action.move
        assert read.to == action.to
    assert json.dumps(action_schema(observation)).count('"show"') == 4  # alone and with recipients, twice each
