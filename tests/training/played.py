"""Episodes made of given words, for the tests of attribution."""

from __future__ import annotations

import asyncio

from sotopia_env import tasks
from sotopia_env.naming import make_evaluator as make
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.episode import Episode, Evaluator, PolicyInfo, RecordedTurn
from sotopia_env.world.scenario import Task

NONE, LEAVE = ActionType.NONE, ActionType.LEAVE


def haggling() -> Task:
    """A lamp listed at $100. The buyer sits in seat 0 (target 60, at most 80), the seller in seat 1 (90, at least 50).

    What a price is worth to the seller is (price - 50) / 55 up to 90, and its share of the best deal (price - 50) / 30.
    To the buyer it is (80 - price) / 50 from 60 on, and its share (80 - price) / 35.
    """
    made = tasks.generate("bargaining", 1, seed=0)[0]
    sides = (
        {"role": "buyer", "target_price": 60, "walk_away_price": 80},
        {"role": "seller", "target_price": 90, "walk_away_price": 50},
    )
    found = made.scenario.model_copy(
        update={
            "seats": tuple(
                seat.model_copy(update={"private_data": side})
                for seat, side in zip(made.scenario.seats, sides, strict=True)
            ),
            "shared_data": {**made.scenario.shared_data, "listed_price": 100},
            "outcome": made.scenario.outcome.model_copy(
                update={"parameters": {"listed_price": 100, "sides": list(sides)}}
            ),
        }
    )
    return Task.model_validate(made.model_copy(update={"scenario": found}).model_dump())


def played(
    task: Task, *acts: str | Action | ActionType, judge: Evaluator | str | None = "verified+rules", **rules: object
) -> Episode:
    """Plays the acts in turn: texts are spoken, types are done without words; then evaluates."""
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
    evaluator = make(judge) if isinstance(judge, str) else judge
    return asyncio.run(evaluate_episode(episode, evaluator, None))


def _action(act: str | Action | ActionType) -> Action:
    if isinstance(act, Action):
        return act
    return Action(act) if isinstance(act, ActionType) else Action(ActionType.SPEAK, act)
