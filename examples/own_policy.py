"""Compares a policy of one's own with scripted ones, in both seats of the same tasks.

python examples/own_policy.py
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sotopia_env import Action, Decision, Observation, tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.reports import compare_runs, comparison_report
from sotopia_env.runs import plan_episodes, run_episodes


@dataclass(frozen=True)
class FirstGood:
    """Accepts the first offer that is better for it than no agreement, and never makes one."""

    name: str = "first-good"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns its action for one observation; a policy keeps no state."""
        worth, space = observation.briefing.worth, observation.briefing.space
        for entry in observation.table.offers if observation.table else ():
            if entry.open and worth.value(space, entry.offer.terms, observation.agent) > worth.disagreement:
                return Decision(Action(argument="Fine by me.", move={"accept": entry.offer.number}))
        return Decision(Action("speak", "What would you offer?"))


def main() -> None:
    """Plays 16 bargains for every pair of policies, and prints their ranks and the comparison."""
    policies = [FirstGood(), "boulware", "conceder"]
    # A rank is over the same partners for all, so each policy also meets itself.
    pairs = itertools.combinations_with_replacement(policies, 2)
    plans = plan_episodes(tasks.generate("bargaining", 16, seed=1), pairs)
    run = Path("runs/own-policy")
    asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), run_dir=run, progress=False))
    print(comparison_report(compare_runs([run], metrics=["goal"])).text())


if __name__ == "__main__":
    main()
