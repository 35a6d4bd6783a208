"""The run that ``test_resume`` kills: 100 quick episodes into the directory given as the only argument.

Half of them are in reactive order.
"""

from __future__ import annotations

import asyncio
import sys

from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.world import Rules, TurnOrder
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task

TASKS, PAIRS = [make_task(f"s{i}") for i in range(50)], [(Speaker("a", wait=0.001), Speaker("b", wait=0.001))]
PLANS = [
    *plan_episodes(TASKS[:25], PAIRS),
    *plan_episodes(TASKS[25:], PAIRS, rules=Rules(turn_order=TurnOrder.REACTIVE)),
]

if __name__ == "__main__":
    print("ready", flush=True)
    result = asyncio.run(run_episodes(PLANS, evaluator=FixedEvaluator(), run_dir=sys.argv[1], concurrency=4))
    print("repaired" if result.repaired else "whole", flush=True)
