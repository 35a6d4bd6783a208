"""Prints the reward vectors of an episode, which of their numbers were measured, and three scalars made of them.

python examples/reward_vectors.py
"""

import numpy as np

from sotopia_env import DIMENSIONS, Scalarisation, sotopia_v0, tasks


def main() -> None:
    """Plays a deal at a ruinous price for the buyer."""
    task = tasks.generate("bargaining", 1, seed=7)[0]
    price = int(task.protocol.space.issues[0].high)
    env = sotopia_v0.mo_env(task=task)
    env.reset(seed=0)
    env.step({"action_type": "speak", "argument": "The full price, please.", "move": {"propose": {"price": price}}})
    env.step({"action_type": "speak", "argument": "Deal.", "move": {"accept": 1}})
    np.set_printoptions(precision=2, suppress=True)
    print([dimension.value for dimension in DIMENSIONS])
    for agent in env.possible_agents:
        vector = env.unwrapped.rewards[agent]
        # The numbers of the other five are 0 in the vector; a judge would have to measure them.
        print(agent, vector, "measured:", env.unwrapped.infos[agent]["measured"])
        for weights in ("goal", {"goal": 1.0}, {"goal": 0.8, "financial_and_material_benefits": 0.2}):
            print("   ", weights, round(float(Scalarisation.of(weights)(vector)), 2))


if __name__ == "__main__":
    main()
