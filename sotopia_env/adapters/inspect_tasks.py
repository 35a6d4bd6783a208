"""Inspect's task: the evaluated model has one seat, a policy the others. ``inspect eval sotopia_env/sotopia``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from sotopia_env.adapters.inspect_logs import CLUSTER, chat_messages
from sotopia_env.adapters.rows import refuse_unknown, rows
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.adapters.seat_reward import TurnRewardKind, check_kind
from sotopia_env.envs.episode_reward import EpisodeReward
from sotopia_env.foundation.extras import extra
from sotopia_env.naming import make_evaluator, make_policy, task_set
from sotopia_env.policies.function_calls import action_text
from sotopia_env.reports.transcript import to_text
from sotopia_env.world import Task as SocialTask
from sotopia_env.world.observation import FunctionCall
from sotopia_env.world.reward import DIMENSIONS, Scalarisation

with extra("inspect"):
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageAssistant, ModelOutput
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver

METRICS = [mean(), stderr(cluster=CLUSTER)]


@solver
def seat(
    evaluator: str | None = None,
    scalarisation: str | None = None,
    reasks: int = 2,
    turns: TurnRewardKind = "standing",
) -> Solver:
    """Plays the episode of a sample, whose metadata are the arguments of :meth:`TextSeat.against`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        # Epochs differ in the partners' draws, too.
        row = {**state.metadata, "seed": state.metadata["seed"] + state.epoch - 1}
        own = TextSeat.of(row, evaluator=evaluator, scalarisation=scalarisation, reasks=reasks, turns=turns)
        state.messages = chat_messages(await own.begin())
        state.tools = []
        while not own.done:
            # Without "none", Inspect asks a model that calls tools again and again, also one that is offered none.
            state = await generate(state, tool_calls="none")
            text = _text(state.output)
            if state.output.message.tool_calls:  # calls without results are refused by servers
                state.messages[-1] = ChatMessageAssistant(content=text, model=state.output.model)
            news, _ = await own.say(text, state.output.stop_reason)
            state.messages += chat_messages(news)
        state.store.set("reward", own.result.paid())
        state.store.set("scores", dict(own.scores))
        state.store.set("facts", {**own.info, "turn_rewards": own.turn_rewards})
        state.store.set("transcript", to_text(own.episode()))
        return state

    return solve


def _text(output: ModelOutput) -> str:
    """The text of the model; of one that only called functions, the actions that the calls stand for."""
    calls = [FunctionCall(call.function, json.dumps(call.arguments)) for call in output.message.tool_calls or ()]
    return output.completion if output.completion.strip() else action_text(calls)


@scorer(metrics={"*": METRICS})
def dimensions(names: Sequence[str]) -> Scorer:
    """The scores on the dimensions ``names``, each in its native range."""

    async def score(state: TaskState, target: Target) -> Score:
        # There are no scores if a limit of Inspect's ended the episode, and fewer where a task measures fewer.
        scores = state.store.get("scores", {})
        return _score(state, {name: scores.get(name, math.nan) for name in names})

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
    turns: str = "standing",
    **others: Any,
) -> Task:
    """Every seat of ``n`` tasks is a sample; errors are clustered by scenario, or by task if there is only one.

    Args:
        tasks: the source of the tasks, as in ``sotopia rollout --tasks``.
        n: the number of tasks.
        level: the difficulty of generated tasks.
        partner: the policy in the other seats.
        seed: the seed of the tasks and of the episodes.
        evaluator: the evaluator, such as ``judge:openai/gpt-4o``; by default the moves.
        scalarisation: how the reward is computed; by default as in the environments.
        turns: what the rewards of turns are changes of, ``standing`` or ``belief``; the latter needs an evaluator that
            asks for it, such as ``verified+facts:probe=turns``.
        others: nothing; for a misspelt argument, Inspect would warn and play with the default.

    Raises:
        InvalidValueError: an argument is invalid, or nothing measures the reward of one of the tasks.
        UnknownNameError: a name is unknown.
    """
    names = ("tasks", "n", "level", "partner", "seed", "evaluator", "scalarisation", "turns")
    refuse_unknown("-T", others, names)
    kind = check_kind(turns)
    make_policy(partner)  # a misspelt name is one error here, and not one for every sample
    selection = list(task_set(tasks, n, seed, level))
    scored = _measured(selection, evaluator, scalarisation)
    several = len({item.scenario.id for item in selection}) > 1
    samples = []
    seats = [(item, agent) for item in selection for agent in item.agents]
    for row, (item, agent) in zip(rows(selection, partner, seed), seats, strict=True):
        cluster = item.scenario.id if several else item.id
        metadata = {**row, CLUSTER: cluster}
        samples.append(Sample(id=f"{item.id}/{agent}", input=item.scenario.context, metadata=metadata))
    dataset = MemoryDataset(samples, name=tasks)
    return Task(
        dataset=dataset, solver=seat(evaluator, scalarisation, turns=kind), scorer=[dimensions(scored), reward()]
    )


def _measured(tasks: Iterable[SocialTask], evaluator: str | None, scalarisation: str | None) -> list[str]:
    """The dimensions that the evaluator scores in any of the tasks: Inspect averages every name of a sample."""
    judge = None if evaluator is None else make_evaluator(evaluator)
    kind = None if scalarisation is None else Scalarisation.of(scalarisation)
    bases = [EpisodeReward.of(item, judge, kind).bases for item in tasks]
    return [dimension.value for dimension in DIMENSIONS if any(dimension in of_task for of_task in bases)]
