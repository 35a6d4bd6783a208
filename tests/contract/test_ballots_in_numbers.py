"""Ballots in numbers: PettingZoo's suites, what an observation says, votes that are taken back, secret votes."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, seed_test

from sotopia_env import sotopia_moves_v0
from sotopia_env.envs.fact_moves import FIRST_MOVE, WAIT
from sotopia_env.envs.moves_env import SotopiaMovesEnv
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.tasks import generate
from sotopia_env.world.episode import replay
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import ORDERS, Tally
from tests.sotopia_env.world.scenarios import verified_task

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # "not a NumPy array": a mask is beside it
BALLOT = {"task": "group_decision", "seats": 4}


def parts(observation):
    """Time, utilities, shares of votes, and the seat's own vote."""
    numbers = observation["observation"]
    return numbers[0], *np.split(numbers[1:], 3)


@pytest.mark.parametrize("order", ORDERS)
def test_the_suites_pass_and_end_episodes(order):
    tally = Tally(VerifiedOutcome())
    options = {**BALLOT, "turn_order": order, "max_turns": 12, "evaluator": tally, "scalarisation": "goal"}
    make = functools.partial(sotopia_moves_v0.env, **options)
    api_test(make(), num_cycles=40)
    seed_test(make, num_cycles=30)
    parallel_api_test(sotopia_moves_v0.parallel_env(**options), num_cycles=20)
    assert tally.episodes


def test_votes_are_observed_changed_and_taken_back():
    env = sotopia_moves_v0.raw_env(**BALLOT, max_silent_turns=0)
    env.reset(seed=1)
    take_back = env.action_space("agent_0").n - 1
    time, utilities, votes, own = parts(env.observe("agent_0"))
    assert (time, max(utilities), votes.sum(), own.sum()) == (1, 1, 0, 0)
    assert not env.observe("agent_0")["action_mask"][take_back]
    best = int(utilities.argmax())
    env.step(FIRST_MOVE + best)
    _, _, votes, own = parts(env.observe("agent_0"))
    assert (votes[best], own[best], own.sum()) == (0.25, 1, 1)
    _, others, votes, own = parts(env.observe("agent_1"))
    assert (votes[best], own.sum()) == (0.25, 0)
    assert not np.array_equal(others, utilities)
    for _ in range(3):
        env.step(WAIT)
    assert env.observe("agent_0")["action_mask"][take_back]
    env.step(take_back)
    assert parts(env.observe("agent_1"))[2].sum() == 0
    assert not env.infos["agent_0"].get("violation")


def test_a_vote_of_all_for_one_option_pays_its_worth_and_the_episode_replays():
    env = sotopia_moves_v0.parallel_env(**BALLOT, scalarisation="goal")
    rewards = {}
    for option in range(2):
        env.reset(seed=2)
        _, rewards[option], terminations, *_ = env.step(dict.fromkeys(env.agents, FIRST_MOVE + option))
        assert all(terminations.values())
        replay(env.episode())
    assert rewards[0] != rewards[1]


def test_the_option_of_a_secret_vote_is_not_observed():
    env = sotopia_moves_v0.raw_env(task=verified_task("secret ballot", 3), max_silent_turns=0)
    seen = []
    for option in range(2):
        env.reset(seed=0)
        env.step(FIRST_MOVE + option)
        seen.append(env.observe("agent_1")["observation"].tolist())
    assert seen[0] == seen[1]


def test_one_seat_plays_against_scripts_and_open_actions_are_no_violations():
    env = SotopiaMovesEnv(**BALLOT, partner="linear")
    agreed = 0
    for seed in range(6):
        observation, info = env.reset(seed=seed)
        env.action_space.seed(seed)
        over = False
        while not over:
            assert env.observation_space.contains(observation)
            assert "violation" not in info
            observation, _, over, _, info = env.step(env.action_space.sample(info["action_mask"]))
        agreed += info["outcome"]["agreed"]
    assert agreed


def test_other_tasks_and_larger_ballots_are_refused():
    ballot, small = generate("group_decision", 1, 0)[0], verified_task("ballot", 4)
    env = sotopia_moves_v0.raw_env(task=ballot)
    env.reset(options={"task": small})
    assert parts(env.observe("agent_0"))[1][3] == -1
    assert not env.observe("agent_0")["action_mask"][FIRST_MOVE + 3]
    with raises(InvalidValueError, field="task"):
        env.reset(options={"task": verified_task("agreement", 4)})
    with raises(InvalidValueError, field="task"):
        sotopia_moves_v0.raw_env(task=small).reset(options={"task": ballot})
