"""Measures what every turn of an episode was worth, exactly and by playing on.

python examples/turn_rewards.py
"""

import asyncio

from sotopia_env import Table, tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.evaluators.turn_rewards import counterfactual_rewards, standing_rewards, state_values
from sotopia_env.naming import make_policy
from sotopia_env.world.play.continuations import Continuations


async def main() -> None:
    """Plays one division, and prints both measures beside each turn of the first seat."""
    table = Table(tasks.generate("division", 1, seed=4)[0], seed=4)
    await table.play({"agent_0": make_policy("random-walk"), "agent_1": make_policy("tit-for-tat")})
    episode = table.episode()
    exact = standing_rewards(episode, "agent_0")
    continuations = Continuations(lambda info: make_policy(info.name), VerifiedOutcome())
    measured = counterfactual_rewards(episode, "agent_0", await state_values(episode, continuations, samples=8))
    for turn in sorted(exact.by_turn):
        words = episode.plain_turns[turn].action.argument
        print(f"{exact.by_turn[turn]:+.2f}  {measured.by_turn[turn]:+.2f} ± {measured.errors[turn]:.2f}  {words}")
    print(measured.episodes, "continuations")


if __name__ == "__main__":
    asyncio.run(main())
