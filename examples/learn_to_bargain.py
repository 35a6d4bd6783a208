"""Learns when to accept and what to ask for, by Q-learning on a table, in a quarter of a minute and with numpy alone.

    python examples/learn_to_bargain.py --episodes 1000

The state is the remaining time and the worth of the best open offer, each in a few steps. It is trained against one
partner and tested on new tasks.
"""

import argparse

import gymnasium
import numpy as np

import sotopia_env  # noqa: F401 - registers the environments

STEPS = 8


def state(observation: np.ndarray) -> tuple[int, int]:
    """Returns the share of time that is left, and the utility of the best open offer, in ``STEPS`` steps each."""
    left, has_offer, best = observation[:3]
    offer = 0 if has_offer <= 0 else 1 + int(np.clip(best, 0, 0.999) * (STEPS - 1))
    return int(np.clip(left, 0, 0.999) * STEPS), offer


def play(env: gymnasium.Env, table: np.ndarray, rng: np.random.Generator, seed: int, explore: float) -> float:
    """Plays one episode and learns from it if ``explore`` is positive; returns its reward."""
    observation, info = env.reset(seed=seed)
    visited, over, reward = [], False, 0.0
    while not over:
        values = np.where(info["action_mask"], table[state(observation)], -np.inf)
        legal = np.flatnonzero(info["action_mask"])
        action = int(rng.choice(legal)) if rng.random() < explore else int(values.argmax())
        visited.append((*state(observation), action))
        observation, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    for entry in visited if explore else ():  # the one reward of the episode is the return of all its turns
        table[entry] += 0.1 * (float(reward) - table[entry])
    return float(reward)


def main() -> None:
    """Trains, and prints the mean reward on new tasks before and after."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=1000, help="number of training episodes")
    parser.add_argument("--partner", default="linear", help="the partner, in training and in the test")
    options = parser.parse_args()
    train, test = (
        gymnasium.make("sotopia_env/SotopiaMoves-v0", task=f"bargaining:seed={seed}", partner=options.partner)
        for seed in (1, 2)
    )
    rng = np.random.default_rng(0)
    table = np.zeros((STEPS, STEPS, train.action_space.n))

    def tested() -> float:
        return float(np.mean([play(test, table, rng, seed, explore=0.0) for seed in range(100)]))

    before = tested()
    for number in range(options.episodes):
        play(train, table, rng, number, explore=0.2)
    print(f"mean reward on 100 new bargains: {before:.2f} before, {tested():.2f} after {options.episodes} episodes")


if __name__ == "__main__":
    main()
