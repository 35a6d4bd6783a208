"""Plays one seat through Gymnasium, against partners that the environment plays, and counts deals.

python examples/one_seat.py
"""

import gymnasium

import sotopia_env  # noqa: F401 - registers the environments


def main() -> None:
    """Plays twenty bargains in each seat with random legal moves of the numeric environment."""
    for seat in (0, 1):
        env = gymnasium.make("sotopia_env/SotopiaMoves-v0", task="bargaining", partner="linear", focal_seat=seat)
        env.action_space.seed(seat)
        rewards = []
        for number in range(20):
            _, info = env.reset(seed=number)
            over = False
            while not over:
                _, reward, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
                over = terminated or truncated
            rewards.append(float(reward))
        print(f"seat {seat}: mean reward {sum(rewards) / len(rewards):.2f}, {sum(r > 0 for r in rewards)} of 20 gained")


if __name__ == "__main__":
    main()
