"""TorchRL collects episodes of the game in numbers: ``pip install torchrl``.

The environment of moves has a Box of three numbers and a Discrete of levels, which TorchRL's own wrapper takes as they
are. The policy here is random; a module of yours that reads ``observation`` and writes ``action`` takes its place.
"""

from __future__ import annotations

import gymnasium
import torch
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.envs.utils import RandomPolicy

import sotopia_env  # noqa: F401 - registers the environments


def make_env() -> GymWrapper:
    """One seat of a bargain against a script that concedes."""
    return GymWrapper(gymnasium.make("sotopia_env/SotopiaMoves-v0", task="bargaining", partner="conceder"))


def main() -> None:
    """Collects 400 steps and prints the mean reward of the episodes that ended in them."""
    torch.manual_seed(0)
    env = make_env()
    collector = Collector(make_env, RandomPolicy(env.action_spec), frames_per_batch=200, total_frames=400)
    rewards = []
    for batch in collector:
        ended = batch["next", "done"].squeeze(-1)
        rewards += batch["next", "reward"].squeeze(-1)[ended].tolist()
    collector.shutdown()
    print(f"{len(rewards)} episodes, mean reward {sum(rewards) / len(rewards):.2f}")


if __name__ == "__main__":
    main()
