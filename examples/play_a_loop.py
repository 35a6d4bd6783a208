"""Plays one episode in a PettingZoo loop, a rule against a scripted policy, and prints the transcript.

python examples/play_a_loop.py
"""

import asyncio

from sotopia_env import sotopia_v0
from sotopia_env.naming import make_policy
from sotopia_env.reports.transcript import to_text


def act(env: sotopia_v0.SotopiaEnv) -> dict[str, object]:
    """Accepts the latest offer from the eighth turn on; asks for an offer before."""
    observation = env.observation("agent_0")
    if observation.turn > 8 and observation.moves.accept:
        return {"action_type": "speak", "argument": "Deal.", "move": {"accept": observation.moves.accept[-1]}}
    return {"action_type": "speak", "argument": "What would you offer?"}


def main() -> None:
    """Plays and prints."""
    partner = make_policy("conceder")
    env = sotopia_v0.env(task="bargaining")
    env.reset(seed=7)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        if terminated or truncated:
            print(agent, "is paid", reward)
            env.step(None)
        elif agent == "agent_0":
            env.step(act(env.unwrapped))
        else:
            env.step(asyncio.run(partner.act(env.unwrapped.observation(agent), seed=7)).action)
    print(to_text(env.unwrapped.episode()))


if __name__ == "__main__":
    main()
