"""Episodes of given words and moves, for the tests of attribution."""

from __future__ import annotations

import asyncio

from sotopia_env import tasks
from sotopia_env.naming import make_evaluator
from sotopia_env.outcomes import Move, MoveKind, OutcomeSpec
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.episode import Episode, Evaluator, PolicyInfo, RecordedTurn
from sotopia_env.world.scenario import Task

NONE, LEAVE = ActionType.NONE, ActionType.LEAVE
ACCEPT = Action(ActionType.SPEAK, "Agreed.", move=Move(MoveKind.ACCEPT, True))


def haggling() -> Task:
    """A lamp. The buyer sits in seat 0 (at most $80), the seller in seat 1 (at least $50): a share is 1 per $30."""
    task = tasks.starter_tasks()[0]
    outcome = OutcomeSpec.model_validate(
        {
            "protocol": {"kind": "agreement"},
            "issues": [{"name": "price", "kind": "number", "low": 0, "high": 200, "step": 1, "unit": "$"}],
            "worth": [
                {"constant": 80, "issues": {"price": {"per_unit": -1}}},
                {"constant": -50, "issues": {"price": {"per_unit": 1}}},
            ],
        }
    )
    scenario = {**task.scenario.model_dump(), "id": "lamp", "outcome": outcome}
    return Task.model_validate({**task.model_dump(), "id": "lamp/0", "scenario": scenario})


def offer(price: int) -> Action:
    """An offer with words beside it."""
    return Action(ActionType.SPEAK, "How about this?", move=Move(MoveKind.PROPOSE, {"price": price}))


def played(
    task: Task,
    *acts: int | str | Action | ActionType,
    judge: Evaluator | str | None = "verified+sotopia_env.testing:FixedEvaluator",
    **rules: object,
) -> Episode:
    """Plays the acts in turn: numbers are offers, texts are spoken, types are done without words; then evaluates."""
    state = initial_state(task, Rules(**rules), 0)
    for act in acts:
        state = transition(state, _action(act))
    episode = Episode(
        key=f"{task.id}.played",
        task=task,
        rules=Rules(**rules),
        policies=tuple(PolicyInfo(agent=agent, name=f"policy {agent}") for agent in task.agents),
        turns=tuple(RecordedTurn(turn=turn) for turn in state.turns),
        stop=state.stop,
    )
    if judge is None:
        return episode
    evaluator = make_evaluator(judge) if isinstance(judge, str) else judge
    return asyncio.run(evaluate_episode(episode, evaluator, None))


def _action(act: int | str | Action | ActionType) -> Action:
    if isinstance(act, Action):
        return act
    if isinstance(act, int):
        return offer(act)
    return Action(act) if isinstance(act, ActionType) else Action(ActionType.SPEAK, act)
