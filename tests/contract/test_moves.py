"""The suites of PettingZoo, MOMAland and Gymnasium on verified tasks of every protocol, played with random moves."""

import copy
import functools
import itertools
import json
import pickle

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from momaland.test.api_test import api_test as mo_api_test
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.test.state_test import state_test

from sotopia_env import sotopia_v0
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.evaluators import Composite, VerifiedOutcome
from sotopia_env.outcomes.move import read_move
from sotopia_env.testing import FixedEvaluator
from tests.sotopia_env.envs.env_doubles import ORDERS, Tally
from tests.sotopia_env.world.scenarios import KINDS, verified_task

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # "not a Box", "not an array": true of any text

SEATS = (2, 3, 5)
CASES = list(itertools.product(("", *KINDS), SEATS, ORDERS))
every_case = pytest.mark.parametrize(("kind", "seats", "order"), CASES)


EVERYTHING = Composite([VerifiedOutcome(), FixedEvaluator()])


def options(kind, seats, order, **more):
    """Every other case has private actions; the turns suffice for several settlements of random play."""
    private = (len(kind) + seats + len(order)) % 2 == 0
    task = verified_task(kind, seats, private)
    return {"task": task, "turn_order": order, "max_turns": 14, "evaluator": EVERYTHING, **more}


@every_case
def test_pettingzoo_aec(kind, seats, order):
    tally = Tally(EVERYTHING)
    api_test(sotopia_v0.env(**options(kind, seats, order, evaluator=tally)), num_cycles=60)
    assert tally.episodes
    seed_test(functools.partial(sotopia_v0.env, **options(kind, seats, order, evaluator=tally)), num_cycles=30)


@every_case
def test_momaland(kind, seats, order):
    tally = Tally(EVERYTHING)
    mo_api_test(sotopia_v0.mo_env(**options(kind, seats, order, evaluator=tally)), num_cycles=60)
    assert tally.episodes
    seed_test(functools.partial(sotopia_v0.mo_env, **options(kind, seats, order)), num_cycles=30)


@every_case
def test_pettingzoo_parallel(kind, seats, order):
    for constructor in (sotopia_v0.parallel_env, sotopia_v0.mo_parallel_env):
        tally = Tally(EVERYTHING)
        make = functools.partial(constructor, **options(kind, seats, order, evaluator=tally))
        parallel_api_test(make(), num_cycles=40)
        assert tally.episodes
        parallel_seed_test(make, num_cycles=20)
    state_test(sotopia_v0.env(**options(kind, seats, order)), make())


@every_case
def test_gymnasium(kind, seats, order, recwarn):
    env = SotopiaSingleAgentEnv(partner="random", focal_seat=seats - 1, **options(kind, seats, order))
    check_env(env, skip_render_check=True)
    assert not [str(w.message) for w in recwarn if "not within the observation space" in str(w.message)]


def turns_of(env, seed):
    """Plays ``env`` with samples of its spaces; yields each sampled action with the turn it became."""
    env.reset(seed=seed)
    for agent in env.possible_agents:
        env.action_space(agent).seed(seed)
    while env.episode_state.stop is None:
        action = env.action_space(env.agent_selection).sample()
        assert env.action_space(env.agent_selection).contains(action)
        assert env.observe(env.agent_selection) in env.observation_space(env.agent_selection)
        env.step(action)
        yield action, env.episode_state.turns[-1]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seats", SEATS)
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_moves_are_legal_and_settle_episodes(kind, seats, order):
    env = sotopia_v0.raw_env(**options(kind, seats, order, max_turns=60, action_types=["speak", "action"]))
    moves = 0
    for seed in range(4):
        for action, turn in turns_of(env, seed):
            available = "not available" not in (turn.violation or "")
            if action["move"] and available:
                moves += 1
                # In a veiled round another seat's move may come first.
                assert turn.violation is None or turn.veiled, turn.violation
                assert turn.violation is not None or turn.action.move.kind is read_move(action["move"]).kind
    assert moves >= 6


def test_without_a_protocol_nothing_is_sampled_and_nothing_shown():
    env = sotopia_v0.raw_env(**options("", 3, "random"))
    for action, turn in turns_of(env, 1):
        assert action["move"] == ""
        assert turn.action.move is None
    assert (env.observe("agent_0")["table"], env.observe("agent_0")["moves"], env.state()["table"]) == ("", "", "")
    assert "outcome" not in env.infos["agent_0"]


@pytest.mark.parametrize("kind", KINDS)
def test_infos_tell_each_agent_its_own_outcome_in_plain_numbers(kind):
    env = sotopia_v0.raw_env(**options(kind, 3, "round-robin", max_turns=40))
    for seed in range(5):
        for _ in turns_of(env, seed):
            pass
        result = env.episode().evaluations[-1].outcome
        for seat, agent in enumerate(env.possible_agents):
            outcome = env.infos[agent]["outcome"]
            assert json.loads(json.dumps(outcome)) == outcome
            assert outcome == {
                "agreed": result.agreed, "payoff": result.payoffs[seat], "share": result.shares[seat],
                "efficiency": result.efficiency, "fairness": result.fairness,
            }  # fmt: skip
            assert np.isclose(env.infos[agent]["reward_vector"][6], 10 * min(max(outcome["share"], 0), 1))


def test_the_outcome_is_in_the_infos_with_every_evaluator():
    env = sotopia_v0.raw_env(**options("ballot", 3, "round-robin", evaluator=FixedEvaluator()))
    for _ in turns_of(env, 3):
        pass
    assert env.episode().evaluations[-1].outcome is None
    assert set(env.infos["agent_2"]["outcome"]) == {"agreed", "payoff", "share", "efficiency", "fairness"}


@pytest.mark.parametrize("kind", ["agreement", "secret ballot"])
def test_a_copy_of_an_environment_samples_its_own_moves(kind):
    env = sotopia_v0.raw_env(
        **options(kind, 3, "round-robin", max_turns=30, max_silent_turns=0, action_types=["speak"])
    )
    env.reset(seed=2)
    for agent in env.possible_agents:
        env.action_space(agent).seed(4)
    for twin in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        original = copy.deepcopy(env)
        for _ in range(12):
            if original.episode_state.stop is not None:
                break
            samples = [which.action_space(which.agent_selection).sample() for which in (original, twin)]
            assert data_equivalence(*samples)
            original.step(samples[0])
            twin.step(samples[1])
        assert original.episode_state == twin.episode_state
        assert any(turn.action.move for turn in twin.episode_state.turns)
    alone = copy.deepcopy(env.action_space("agent_0"))
    assert alone == env.action_space("agent_0")
    assert all(alone.sample()["move"] == "" for _ in range(20))
