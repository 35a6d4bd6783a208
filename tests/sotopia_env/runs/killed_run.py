"""The run that ``test_resume`` kills: 100 quick episodes into the directory given as the only argument."""

from __future__ import annotations

import sys

from sotopia_env.runs import plan_episodes, run_episodes
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task

PLANS = plan_episodes([make_task(f"s{i}") for i in range(50)], [(Speaker("a", wait=0.001), Speaker("b", wait=0.001))])

if __name__ == "__main__":
    print("ready", flush=True)
    result = run_episodes(PLANS, evaluator=FixedEvaluator(), run_dir=sys.argv[1], concurrency=4)
    print("repaired" if result.repaired else "whole", flush=True)
