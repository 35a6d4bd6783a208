"""Trains Stable-Baselines3's PPO on the numeric environment, and tests it against a known and an unknown partner.

    pip install stable-baselines3
    python examples/ppo_moves.py --partner linear

Every episode is a new bargaining task; the tasks of the test come from another seed. GOAL is verified and runs from 0
to 10.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium
import numpy as np

import sotopia_env  # noqa: F401 - makes the environments known
from sotopia_env.reports.intervals import estimate

TEST_SEED = 1_000_003


def make(task: str, partner: str, seat: int) -> gymnasium.Env:
    """Returns the numeric environment, with the learner in ``seat``."""
    return gymnasium.make("sotopia_env/SotopiaMoves-v0", task=task, partner=partner, focal_seat=seat)


def goals(act: Callable[[np.ndarray], int], task: str, partner: str, episodes: int) -> np.ndarray:
    """Returns GOAL of each of ``episodes`` games, which alternate between the two seats."""
    envs, results = [make(f"{task}:seed={TEST_SEED}", partner, seat) for seat in (0, 1)], []
    for number in range(episodes):
        env, over = envs[number % 2], False
        observation, _ = env.reset(seed=number)
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            over = terminated or truncated
        # The reward is GOAL mapped to [0, 1], paid at the end.
        results.append(10 * float(reward))
    return np.array(results)


def report(name: str, values: np.ndarray, partner: str) -> None:
    """Prints the mean with its 95 % interval over the games, each of which is another task."""
    goal = estimate(list(map(float, values)), list(map(str, range(len(values)))), (0.0, 10.0))
    interval = f"n/a: {goal.missing}" if goal.low is None else f"{goal.low:.2f}, {goal.high:.2f}"
    print(f"{name:22} against {partner:10} GOAL {goal.mean:.2f} [{interval}] ({goal.n} games)")


def main() -> None:
    """Plays uniform moves, trains, and plays the trained policy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--task", default="bargaining")
    parser.add_argument("--partner", default="linear")
    parser.add_argument("--other", default="conceder", help="a partner that is not in training")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    rng = np.random.default_rng(settings.seed)
    for partner in (settings.partner, settings.other):
        actions = make(settings.task, partner, 0).action_space.n
        values = goals(lambda _: int(rng.integers(actions)), settings.task, partner, settings.games)  # noqa: B023
        report("uniform moves", values, partner)
    try:
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError:
        raise SystemExit("to train: pip install stable-baselines3") from None
    # The network is so small that several threads would mostly wait for each other.
    torch.set_num_threads(1)
    # Sixteen environments, eight in each seat; each has its own stream of tasks.
    seats = [lambda seat=seat: make(settings.task, settings.partner, seat) for seat in (0, 1) * 8]
    model = PPO(
        "MlpPolicy",
        DummyVecEnv(seats),
        seed=settings.seed,
        n_steps=64,
        n_epochs=8,
        batch_size=256,
        learning_rate=1e-3,
        ent_coef=0.01,
        gamma=1.0,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(settings.steps)
    print(f"PPO: {settings.steps} steps in {time.perf_counter() - start:.0f} s")
    for partner in (settings.partner, settings.other):
        values = goals(lambda o: int(model.predict(o, deterministic=True)[0]), settings.task, partner, settings.games)
        report("PPO", values, partner)


if __name__ == "__main__":
    main()
