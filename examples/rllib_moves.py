"""RLlib's PPO learns the game in numbers: ``pip install 'ray[rllib]' torch``.

RLlib takes the environment of moves as it is. Every episode is a new bargaining task against a script; the reward, paid
at the end, is GOAL mapped to [0, 1]. ``--runners 8`` plays in eight processes.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

TEST_SEED = 1_000_003


def make_env(config: dict[str, Any]) -> gymnasium.Env:
    """Makes the environment; RLlib calls it in each of its processes."""
    import sotopia_env  # noqa: F401 - registers the environments in that process

    return gymnasium.make("sotopia_env/SotopiaMoves-v0", **config)


def mean_reward(module: Any, config: dict[str, Any], episodes: int) -> float:
    """Returns the mean reward of the module's most probable actions, on tasks that are not in training."""
    env, total = make_env({**config, "task": f"{config['task']}:seed={TEST_SEED}"}), 0.0
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            with torch.no_grad():
                logits = module.forward_inference({"obs": torch.from_numpy(observation)[None]})["action_dist_inputs"]
            observation, reward, terminated, truncated, _ = env.step(int(logits.argmax()))
            over = terminated or truncated
        total += float(reward)
    env.close()
    return total / episodes


def main() -> None:
    """Trains, and tests the policy before and after."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--task", default="bargaining")
    parser.add_argument("--partner", default="linear")
    parser.add_argument("--iterations", type=int, default=20, help="of 2,048 steps each")
    parser.add_argument("--runners", type=int, default=0, help="processes that play; by default this one")
    parser.add_argument("--episodes", type=int, default=200, help="of each test")
    settings = parser.parse_args()
    env_config = {"task": settings.task, "partner": settings.partner}
    register_env("sotopia-moves", make_env)
    algorithm = (
        PPOConfig()
        .environment("sotopia-moves", env_config=env_config)
        .env_runners(num_env_runners=settings.runners, num_envs_per_env_runner=16)
        .training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=8, lr=1e-3, gamma=1.0)
        .debugging(seed=0)
        .build_algo()
    )
    print(f"before: mean reward {mean_reward(algorithm.get_module(), env_config, settings.episodes):.2f}")
    for number in range(settings.iterations):
        result = algorithm.train()
        print(f"iteration {number + 1}: mean reward {result['env_runners']['episode_return_mean']:.2f}", flush=True)
    print(f"after: mean reward {mean_reward(algorithm.get_module(), env_config, settings.episodes):.2f}")
    algorithm.stop()


if __name__ == "__main__":
    main()
