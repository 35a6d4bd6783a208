"""512 episodes, and a vector of 16 environments, with a policy that waits 50 ms per action: makespan and memory."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np

from benchmarks.measure import Figure
from sotopia_env import tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision

EPISODES, TURNS, DELAY = 512, 20, 0.05
ENVIRONMENTS = 16
NAME = "waits"


class Waiting:
    """A policy that reads its prompt, waits as long as a model would, and speaks."""

    name = NAME
    parameters: Mapping[str, Any] = MappingProxyType({})

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Waits 50 ms."""
        size = len(observation.text)
        await asyncio.sleep(DELAY)
        return Decision(Action(ActionType.SPEAK, f"I have read {size} characters, number {seed % 1000}."))


def waiting_plans(seed: int) -> list[EpisodePlan]:
    """The plans of all episodes, with waiting policies in both seats."""
    task_set = tasks.generate("bargaining", EPISODES, seed=seed)
    return list(plan_episodes(task_set, [(Waiting(), Waiting())], rules=Rules(max_turns=TURNS), both_seats=False))


def makespan(evaluate: bool) -> float:
    """Seconds until all episodes have ended, over the ideal of turns × delay."""
    plans = waiting_plans(seed=3)
    start = time.perf_counter()
    result = asyncio.run(
        run_episodes(plans, evaluator=VerifiedOutcome() if evaluate else None, concurrency=EPISODES, progress=False)
    )
    seconds = time.perf_counter() - start
    if len(result.episodes) != EPISODES or any(len(e.turns) != TURNS for e in result.episodes):
        raise RuntimeError(f"expected {EPISODES} episodes of {TURNS} turns, got {len(result.episodes)}")
    return seconds / (TURNS * DELAY)


def vector_makespan() -> float:
    """Seconds of an episode in each of 16 Gymnasium environments that step together, over the ideal."""
    envs = gymnasium.make_vec(
        "sotopia_env/Sotopia-v0",
        num_envs=ENVIRONMENTS,
        task=tasks.generate("bargaining", ENVIRONMENTS, seed=5),
        partner=Waiting(),
        evaluator=VerifiedOutcome(),
        max_turns=TURNS,
    )
    envs.reset(seed=0)
    # One batched action for all steps: type 1 is ``speak``, and an empty mask addresses everybody.
    kinds, to = np.ones(ENVIRONMENTS, np.int64), np.zeros((ENVIRONMENTS, 2), np.int8)
    words, moves = ("I have a price in mind.",) * ENVIRONMENTS, ("",) * ENVIRONMENTS
    start = time.perf_counter()
    for _ in range(TURNS // 2):
        *_, truncated, _ = envs.step({"action_type": kinds, "argument": words, "to": to, "move": moves})
    seconds = time.perf_counter() - start
    envs.close()
    if not truncated.all():
        raise RuntimeError(f"expected {ENVIRONMENTS} episodes of {TURNS} turns")
    return seconds / (TURNS // 2 * DELAY)


def memory_per_episode() -> float:
    """Kilobytes of Python memory per episode at the peak of a run of 512 (with the finished episodes)."""
    plans = waiting_plans(seed=4)
    # Warm-up, so that imports and caches are not counted.
    asyncio.run(run_episodes(plans[:2], evaluator=VerifiedOutcome(), concurrency=2, progress=False))
    tracemalloc.start()
    asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), concurrency=EPISODES, progress=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / EPISODES / 1024


def figures() -> list[Figure]:
    """Makespans and memory; best of three runs each, since the wall clock is shared with the machine."""
    return [
        Figure("512 episodes, 50 ms a turn: makespan / ideal", min(makespan(False) for _ in range(3)), "x", 2),
        Figure("the same with verified scores", min(makespan(True) for _ in range(3)), "x", 3),
        Figure(
            f"vector of {ENVIRONMENTS} environments, 50 ms a partner's turn: makespan / ideal",
            min(vector_makespan() for _ in range(3)),
            "x",
            2,
        ),
        Figure("memory per concurrent episode", memory_per_episode(), "KB", 100),
    ]
