"""RLlib 2.60: its PPO on the environment of moves, and its wrappers of PettingZoo. `make soak` runs this."""

import re
import subprocess
import sys

import pytest

from sotopia_env import sotopia_v0
from tests.adapters.libraries import need
from tests.test_docs import ROOT

need("ray")
need("tree")  # one of the packages of ray[rllib]

from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv


def test_the_example_trains():
    command = [sys.executable, ROOT / "examples" / "rllib_moves.py", "--iterations", "2", "--episodes", "8"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    means = re.findall(r"mean reward (-?\d\.\d+)", result.stdout)
    assert len(means) == 4
    assert all(0 <= float(mean) <= 1 for mean in means)


@pytest.mark.parametrize(
    ("wrapper", "make"), [(PettingZooEnv, sotopia_v0.env), (ParallelPettingZooEnv, sotopia_v0.parallel_env)]
)
def test_the_wrappers_of_pettingzoo_play_an_episode(wrapper, make):
    env = wrapper(make(max_turns=6))
    observations, _ = env.reset(seed=1)
    turns, ended, seen = 0, {"__all__": False}, set(observations)
    while not ended["__all__"]:
        actions = {agent: {"action_type": "speak", "argument": "Well?"} for agent in observations}
        observations, rewards, terminated, truncated, _ = env.step(actions)
        ended = {name: terminated[name] or truncated[name] for name in terminated}
        seen |= set(observations)
        turns += 1
        for agent, observation in observations.items():
            assert env.observation_space[agent].contains(observation)
    assert seen == {"agent_0", "agent_1"}
    assert set(rewards) == seen
    assert turns <= 6
