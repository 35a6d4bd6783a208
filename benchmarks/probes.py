"""Probes after every turn: CPU time of play and probes over that of play alone, in games of Mini-Mafia.

``measures`` are those of the evaluator without any probe, so that the difference to the others is what asking costs.
Scripts answer exactly. With ``SOTOPIA_BENCH_LARGE=1`` also SmolLM2-135M, by its probabilities, in a game of six turns.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable

from benchmarks.measure import Figure, cpu_rounds
from sotopia_env import tasks
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.naming import make_policy
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.play.policy import Policy
from sotopia_env.world.play.table import Table

GAMES = 20
SMOL = "smol:format=brief,max_length=3000"


async def _play(policy: Policy, number: int, evaluator: FactsEvaluator | None, rules: Rules) -> None:
    table = Table(_TASKS[number % GAMES], rules, seed=number)
    await table.play(policy)
    if evaluator is not None:
        await table.evaluate(evaluator)


_TASKS = tasks.generate("mini_mafia", GAMES, 0)


def _program(policy: Policy, evaluator: FactsEvaluator | None) -> Callable[[], int]:
    numbers = itertools.count()

    def run() -> int:
        asyncio.run(_play(policy, next(numbers), evaluator, Rules()))
        return 1

    return run


def _smol() -> Figure:
    """One game: the answers to all questions over the turns."""
    policy = make_policy(SMOL)
    evaluator = FactsEvaluator(policies=[policy], probe="turns")
    asyncio.run(_play(policy, 0, None, Rules(max_turns=1)))  # loads the weights
    seconds = []
    for one in (None, evaluator):
        start = time.process_time()
        asyncio.run(_play(policy, 0, one, Rules(max_turns=6)))
        seconds.append(time.process_time() - start)
    note = f"{seconds[0]:.1f} s of play"
    return Figure("probes after every turn, SmolLM2, over play", seconds[1] / seconds[0], "×", 1.15, note=note)


def figures() -> list[Figure]:
    """The ratios."""
    policy = make_policy("bayesian")
    times = cpu_rounds(
        {
            "play": _program(policy, None),
            "none": _program(policy, FactsEvaluator(policies=[policy], probe="none")),
            "end": _program(policy, FactsEvaluator(policies=[policy])),
            "turns": _program(policy, FactsEvaluator(policies=[policy], probe="turns")),
        },
        rounds=5,
    )
    note = f"{times['play'] / 1000:.1f} ms of play"
    results = [
        Figure("measures without probes, scripts, over play", times["none"] / times["play"], "×", 2, note=note),
        Figure("probes at the end, scripts, over play", times["end"] / times["play"], "×", 2, note=note),
        Figure("probes after every turn, scripts, over play", times["turns"] / times["play"], "×", 2, note=note),
    ]
    return [*results, _smol()] if os.environ.get("SOTOPIA_BENCH_LARGE") else results
