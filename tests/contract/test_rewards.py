"""Exactly what the evaluator said leaves the environment, in every form. Guards S1, S7 and S10 of the predecessor."""

import numpy as np
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from tests.sotopia_env.envs.env_doubles import ORDERS, OVERALL, VECTORS, Partner, options, say

GOALS = {agent: vector[6] for agent, vector in VECTORS.items()}
SCALARS = [
    ("overall", OVERALL),
    (None, OVERALL),
    ("goal", GOALS),
    ({"goal": 1.0}, {agent: value / 10 for agent, value in GOALS.items()}),
    ({"SEC": 2.0, "REL": 1.0}, {"agent_0": 1.8 + 0.75, "agent_1": 0.0 + 0.2, "agent_2": 2.0 + 1.0}),
]
every_table = pytest.mark.parametrize(("seats", "order"), [(seats, order) for seats in (2, 3) for order in ORDERS])


def play(env):
    """The sum of what each agent was paid, and its last info, as an AEC learner meets them."""
    totals, infos = {}, {}
    env.reset(seed=0)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        totals[agent] = totals.get(agent, 0) + reward
        infos[agent] = info
        env.step(None if terminated or truncated else say())
    return totals, infos


@every_table
@pytest.mark.parametrize(("scalarisation", "expected"), SCALARS)
def test_scalar_aec(seats, order, scalarisation, expected):
    env = sotopia_v0.env(**options(seats, turn_order=order, max_turns=5, scalarisation=scalarisation))
    totals, infos = play(env)
    assert set(totals) == {f"agent_{seat}" for seat in range(seats)}
    for agent, reward in totals.items():
        assert type(reward) is float
        assert reward == pytest.approx(expected[agent], abs=1e-12)
        check_vector(infos[agent]["reward_vector"], agent)


@every_table
def test_vector_aec(seats, order):
    totals, infos = play(sotopia_v0.mo_env(**options(seats, turn_order=order, max_turns=5)))
    for agent, reward in totals.items():
        check_vector(reward, agent)
        check_vector(infos[agent]["reward_vector"], agent)
        assert reward is not infos[agent]["reward_vector"]


@every_table
@pytest.mark.parametrize("vector", [False, True])
def test_parallel(seats, order, vector):
    constructor = sotopia_v0.mo_parallel_env if vector else sotopia_v0.parallel_env
    env = constructor(**options(seats, turn_order=order, max_turns=6))
    env.reset(seed=0)
    steps = []
    while env.agents:
        steps.append(env.step({agent: say() for agent in env.agents}))
    state = env.unwrapped.episode_state
    assert len(steps) == len({turn.round if turn.veiled else turn.index for turn in state.turns})
    assert len(state.turns) == 6 if order != "reactive" else 6 <= len(state.turns) < 6 + seats
    for _, rewards, terminations, truncations, _ in steps[:-1]:
        assert not np.any(list(rewards.values()))
        assert not any(terminations.values())
        assert not any(truncations.values())
    _, rewards, terminations, truncations, infos = steps[-1]
    for agent in env.possible_agents:
        assert (terminations[agent], truncations[agent]) == (False, True)
        assert infos[agent]["stop_reason"] == "turn limit"
        check_vector(infos[agent]["reward_vector"], agent)
        if vector:
            check_vector(rewards[agent], agent)
        else:
            assert type(rewards[agent]) is float
            assert rewards[agent] == pytest.approx(OVERALL[agent], abs=1e-12)


@pytest.mark.parametrize("focal", [0, 1, 2])
def test_single_agent(focal):
    env = SotopiaSingleAgentEnv(partner=Partner(), focal_seat=focal, **options(3, max_turns=6))
    env.reset(seed=0)
    results = [env.step(say())]
    while not (results[-1][2] or results[-1][3]):
        results.append(env.step(say()))
    assert [reward for _, reward, *_ in results[:-1]] == [0.0] * (len(results) - 1)
    _, reward, terminated, truncated, info = results[-1]
    assert (type(reward), terminated, truncated) == (float, False, True)
    assert reward == pytest.approx(OVERALL[f"agent_{focal}"], abs=1e-12)
    check_vector(info["reward_vector"], f"agent_{focal}")


def check_vector(vector, agent):
    assert vector.dtype == np.float32
    assert tuple(vector.tolist()) == VECTORS[agent]
