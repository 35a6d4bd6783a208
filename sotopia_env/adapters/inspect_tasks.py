"""Inspect's task: the evaluated model has one seat, a policy the others. ``inspect eval sotopia_env/sotopia``."""

from __future__ import annotations

import math
from typing import Any

from sotopia_env.adapters.inspect_logs import CLUSTER, chat_messages
from sotopia_env.adapters.rows import rows
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.extras import extra
from sotopia_env.naming import task_set
from sotopia_env.reports.transcript import to_text
from sotopia_env.world.reward import DIMENSIONS

with extra("inspect"):
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver

METRICS = [mean(), stderr(cluster=CLUSTER)]


@solver
def seat(evaluator: str | None = None, scalarisation: str | None = None, reasks: int = 2) -> Solver:
    """Plays the episode of a sample, whose metadata are the arguments of :meth:`TextSeat.against`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        # Epochs differ in the partners' draws, too.
        row = {**state.metadata, "seed": state.metadata["seed"] + state.epoch - 1}
        own = TextSeat.of(row, evaluator=evaluator, scalarisation=scalarisation, reasks=reasks)
        state.messages = chat_messages(await own.begin())
        while not own.done:
            state = await generate(state)
            news, _ = await own.say(state.output.completion)
            state.messages += chat_messages(news)
        state.store.set("reward", own.reward)
        state.store.set("scores", own.scores)
        state.store.set("facts", {**own.info, "turn_rewards": own.turn_rewards})
        state.store.set("transcript", to_text(own.episode()))
        return state

    return solve


@scorer(metrics={"*": METRICS})
def dimensions() -> Scorer:
    """The scores on the seven dimensions, each in its native range."""

    async def score(state: TaskState, target: Target) -> Score:
        # There are no scores if a limit of Inspect's ended the episode.
        return _score(state, {dimension.value: math.nan for dimension in DIMENSIONS} | state.store.get("scores", {}))

    return score


@scorer(metrics=METRICS)
def reward() -> Scorer:
    """The reward of the episode, as in training."""

    async def score(state: TaskState, target: Target) -> Score:
        return _score(state, state.store.get("reward", math.nan))

    return score


def _score(state: TaskState, value: Any) -> Score:
    return Score(value=value, explanation=state.store.get("transcript"), metadata=state.store.get("facts", {}))


@task
def sotopia(
    tasks: str = "bargaining",
    n: int = 10,
    level: str = "medium",
    partner: str = "boulware",
    seed: int = 0,
    evaluator: str | None = None,
    scalarisation: str | None = None,
) -> Task:
    """Every seat of ``n`` tasks is a sample; errors are clustered by scenario, or by task if there is only one.

    Args:
        tasks: the source of the tasks, as in ``sotopia rollout --tasks``.
        n: the number of tasks.
        level: the difficulty of generated tasks.
        partner: the policy in the other seats.
        seed: the seed of the tasks and of the episodes.
        evaluator: the evaluator, such as ``judge:openai/gpt-4o``; by default the moves, or rules without an outcome.
        scalarisation: how the reward is computed; by default as in the environments.
    """
    selection = list(task_set(tasks, n, seed, level))
    several = len({item.scenario.id for item in selection}) > 1
    samples = []
    seats = [(item, agent) for item in selection for agent in item.agents]
    for row, (item, agent) in zip(rows(selection, partner, seed), seats, strict=True):
        cluster = item.scenario.id if several else item.id
        metadata = {**row, CLUSTER: cluster}
        samples.append(Sample(id=f"{item.id}/{agent}", input=item.scenario.context, metadata=metadata))
    dataset = MemoryDataset(samples, name=tasks)
    return Task(dataset=dataset, solver=seat(evaluator, scalarisation), scorer=[dimensions(), reward()])
