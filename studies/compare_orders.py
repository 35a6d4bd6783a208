"""Measures whether the turn order changes outcomes: ``python studies/compare_orders.py -n 200``.

Every policy plays itself in the same tasks, with the same seeds, in every order. The first table has the share of
episodes with a decision, efficiency, and the difference in efficiency from round-robin, paired by task. The second one
is about pace in reactive order: agent_0 sets the same wait in all of its actions, and the table has its turns, its
share of its best outcome, and the difference from setting no wait. Intervals are 95 %, by Student's t over tasks.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sotopia_env.naming import make_policy
from sotopia_env.policies import Decision, Policy
from sotopia_env.reports.intervals import difference_estimate
from sotopia_env.tasks import generate
from sotopia_env.world import Observation, Rules, Task, TurnOrder
from sotopia_env.world.outcome import outcome_at
from sotopia_env.world.play.table import Table

FAMILIES = ("bargaining", "division", "group_decision", "job_committee")
POLICIES = ("boulware", "linear", "conceder")
WAITS = (1, None, 10)
RULE = "| --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True)
class Paced:
    """A policy that sets the same wait in all of its actions."""

    policy: Policy
    wait: int | None

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The policy's parameters and the wait."""
        return {**self.policy.parameters, "wait": self.wait}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the policy's decision with the wait."""
        decision = await self.policy.act(observation, seed)
        return replace(decision, action=replace(decision.action, wait=self.wait))


class Played(NamedTuple):
    """The figures of one episode: whether something was decided, efficiency, and agent_0's share and turns."""

    decided: float
    efficiency: float
    share: float
    turns: float


async def play(task: Task, seed: int, policy: str, order: TurnOrder, wait: int | None = None) -> Played:
    """Plays one episode of a policy with itself."""
    table = Table(task, Rules(turn_order=order), seed)
    policies = dict.fromkeys(task.agents, make_policy(policy))
    await table.play({**policies, "agent_0": Paced(policies["agent_0"], wait)})
    state = table.state
    result = outcome_at(task, state.table, len(state.turns) if state.settled_after is None else state.settled_after)
    assert result.efficiency is not None
    return Played(result.agreed, result.efficiency, result.shares[0], table.observe("agent_0").own_turns)


def difference(values: Sequence[float], base: Sequence[float], tasks: Sequence[Task]) -> str:
    """Returns the mean difference of two shares with its interval over tasks, as text; empty for the base itself."""
    if values is base:
        return ""
    gaps = [a - b for a, b in zip(values, base, strict=True)]
    gap = difference_estimate(gaps, [task.id for task in tasks], (0.0, 1.0))
    if gap.low is None:
        return f"{gap.mean:+.3f} [n/a: {gap.missing}]"
    same = "the same in all: " if not any(gaps) else ""
    return f"{same}{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"


def mean(values: Sequence[float]) -> float:
    """Returns the arithmetic mean."""
    return sum(values) / len(values)


async def main() -> None:
    """Plays and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=200, help="number of tasks of each family")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks")
    options = parser.parse_args()
    tasks = {family: generate(family, options.n, options.seed) for family in FAMILIES}
    head = "| family | policy | order | decided | efficiency | difference from round-robin |"
    sys.stdout.write(f"{head}\n{RULE}\n")
    for family, sample in tasks.items():
        for policy in POLICIES:
            base: list[float] = []
            for order in TurnOrder:
                games = [await play(task, seed, policy, order) for seed, task in enumerate(sample)]
                values = [game.efficiency for game in games]
                base = base or values
                decided, gap = mean([game.decided for game in games]), difference(values, base, sample)
                line = f"| {family} | {policy} | {order.value} | {decided:.3f} | {mean(values):.3f} | {gap} |"
                sys.stdout.write(f"{line}\n")
    head = "| family | policy | wait of agent_0 | turns | share | difference from none |"
    sys.stdout.write(f"\n{head}\n{RULE}\n")
    for family, sample in tasks.items():
        for policy in POLICIES:
            paced = {
                wait: [await play(task, seed, policy, TurnOrder.REACTIVE, wait) for seed, task in enumerate(sample)]
                for wait in WAITS
            }
            shares = {wait: [game.share for game in games] for wait, games in paced.items()}
            for wait, games in paced.items():
                turns, gap = mean([game.turns for game in games]), difference(shares[wait], shares[None], sample)
                line = f"| {family} | {policy} | {wait or 'none'} | {turns:.1f} | {mean(shares[wait]):.3f} | {gap} |"
                sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    asyncio.run(main())
