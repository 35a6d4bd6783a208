"""Forks an episode: what would have happened if the buyer had accepted earlier?

python examples/what_if.py
"""

import asyncio

from sotopia_env import Action, Table, tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.naming import make_policy

POLICIES = {"agent_0": make_policy("boulware"), "agent_1": make_policy("conceder")}


async def main() -> None:
    """Plays one bargain, then each of its continuations in which the buyer accepts the latest offer instead."""
    table = Table(tasks.generate("bargaining", 1, seed=3)[0], seed=3)
    await table.play(POLICIES)
    result = await table.evaluate(VerifiedOutcome())
    print("played:", result.outcome.shares)
    for turn in range(2, len(table.turns), 2):
        menu = table.fork(turn).observe("agent_0").moves
        if not menu.accept:
            continue
        branch = table.fork(turn, Action(argument="Deal.", move={"accept": menu.accept[-1]}))
        result = await branch.evaluate(VerifiedOutcome())
        print(f"accepting at turn {turn + 1}: {tuple(round(share, 2) for share in result.outcome.shares)}")


if __name__ == "__main__":
    asyncio.run(main())
