"""Gymnasium's own checks of the single-agent form."""

import functools
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from sotopia_env import sotopia_v0
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from tests.sotopia_env.envs.env_doubles import ORDERS, Partner, options

sotopia_v0.register_environments()
TABLES = [(seats, order, focal) for seats in (2, 3) for order in ORDERS for focal in (0, seats - 1)]
every_table = pytest.mark.parametrize(("seats", "order", "focal"), TABLES)


def make(seats, order, focal, **more):
    kwargs = {"partner": Partner(), "focal_seat": focal, **options(seats, turn_order=order, **more)}
    return gymnasium.make("sotopia_env/Sotopia-v0", **kwargs)


@every_table
def test_check_env(seats, order, focal, capsys, recwarn):
    env = make(seats, order, focal)
    check_env(env.unwrapped)
    problems = [str(w.message) for w in recwarn if "not within the observation space" in str(w.message)]
    assert not problems


@pytest.mark.parametrize("order", ORDERS)
def test_a_pickled_environment_plays_on_as_the_original(order):
    env = SotopiaSingleAgentEnv(partner=Partner(), **options(3, turn_order=order))
    env.reset(seed=5)
    env.step({"action_type": 1, "argument": "Hello."})
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(3):
        ours, theirs = env.step({"action_type": 1, "argument": "So?"}), copy.step({"action_type": 1, "argument": "So?"})
        assert (ours[0]["text"], ours[1:]) == (theirs[0]["text"], theirs[1:])


@pytest.mark.parametrize("vectorise", [SyncVectorEnv, functools.partial(AsyncVectorEnv, shared_memory=False)])
def test_vector_environments(vectorise):
    maker = functools.partial(SotopiaSingleAgentEnv, partner=Partner(), **options(max_turns=4))
    envs = vectorise([pickle.loads(pickle.dumps(maker)) for _ in range(2)])
    try:
        observations, _ = envs.reset(seed=[1, 2])
        assert len(observations["text"]) == 2
        assert observations["turn"].tolist() == [1, 1]
        actions = {
            "action_type": np.array([1, 1]),
            "argument": ("We share – “half” each 🙂", "No."),
            "to": np.zeros((2, 2), np.int8),
            "move": ("", ""),
        }
        observations, rewards, *_ = envs.step(actions)
        assert "“half” each 🙂" in observations["history"][0]
        assert rewards.tolist() == [0.0, 0.0]
        _, rewards, _, truncated, infos = envs.step(actions)
        assert rewards.tolist() == pytest.approx([24 / 7] * 2)
        assert truncated.all()
        assert list(infos["stop_reason"]) == ["turn limit"] * 2
        # The same actions reach both; only the partners' seeds differ.
        assert observations["history"][0].splitlines()[1] != observations["history"][1].splitlines()[1]
    finally:
        envs.close()


def test_gymnasium_make_passes_everything_on():
    env = make(2, "round-robin", 1, max_turns=7).unwrapped
    assert env.focal == "agent_1"
    assert env.spec.id == "sotopia_env/Sotopia-v0"


def test_an_environment_of_names_is_written_as_json_and_made_again():
    env = gymnasium.make("sotopia_env/Sotopia-v0", task="bargaining", evaluator="verified", partner="boulware")
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.spec.kwargs == {"task": "bargaining", "evaluator": "verified", "partner": "boulware"}
    env.reset(seed=1)
    again.reset(seed=1)
    for _ in range(3):
        action = {"action_type": "speak", "argument": "And now?"}
        assert data_equivalence(env.step(action), again.step(action))
    assert again.unwrapped.episode() == env.unwrapped.episode()


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_make_vec_in_every_mode(mode):
    more = {"vector_kwargs": {"shared_memory": False}} if mode == "async" else {}
    envs = gymnasium.make_vec(
        "sotopia_env/Sotopia-v0", num_envs=2, vectorization_mode=mode, task="bargaining", partner="boulware", **more
    )
    try:
        envs.action_space.seed(1)
        observations, _ = envs.reset(seed=0)
        assert observations["turn"].tolist() == [1, 1]
        actions = {**envs.action_space.sample(), "action_type": np.array([1, 1])}
        observations, rewards, *_ = envs.step(actions)
        assert observations["turn"].tolist() == [3, 3]
        assert rewards.tolist() == [0, 0]
    finally:
        envs.close()
