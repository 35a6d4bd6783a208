"""RLlib 2.60: its PPO on the environment of moves, and its wrappers of PettingZoo. `make soak` runs this."""

import re
import subprocess
import sys

import gymnasium
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.foundation.errors import PolicyError
from tests.adapters import failing
from tests.adapters.libraries import need
from tests.test_docs import ROOT

need("ray")
need("tree")  # one of the packages of ray[rllib]

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv
from ray.tune.registry import register_env


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


PARTNERS: list[failing.Partner] = []
RETURNS: list[float] = []


class Bookkeeper(gymnasium.Wrapper):
    """Notes what every finished episode paid."""

    def step(self, action):
        result = super().step(action)
        if result[2]:
            RETURNS.append(result[1])
        return result


def make_failing_env(config):
    # Named by RLlib's registry, which would pickle a partner: each environment that it makes gets the same one.
    return Bookkeeper(gymnasium.make("sotopia_env/SotopiaMoves-v0", task="bargaining", partner=PARTNERS[-1]))


def iteration(partner, restart):
    PARTNERS.append(partner)
    RETURNS.clear()
    register_env("failing-moves", make_failing_env)
    algorithm = (
        PPOConfig()
        .environment("failing-moves")
        .env_runners(num_env_runners=0, batch_mode="complete_episodes")
        .fault_tolerance(restart_failed_sub_environments=restart)
        .training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
        .debugging(seed=0)
        .build_algo()
    )
    try:
        return algorithm.train()["env_runners"]
    finally:
        algorithm.stop()


@pytest.mark.parametrize("partner", [failing.Once, failing.ForGood])
def test_a_partner_that_fails_ends_training_without_a_reward(partner):
    with pytest.raises(RuntimeError) as failure:
        iteration(partner(), restart=False)
    assert isinstance(failure.value.__cause__, PolicyError)


@pytest.mark.parametrize("partner", [failing.Partner, failing.Once])
def test_an_environment_that_rllib_restarts_plays_on_without_the_failed_episode(partner):
    results = iteration(partner(), restart=True)
    assert PARTNERS[-1].calls > 3 + partner.failures
    assert results["num_episodes"] == len(RETURNS)
    assert results["episode_return_mean"] == pytest.approx(sum(RETURNS) / len(RETURNS))
