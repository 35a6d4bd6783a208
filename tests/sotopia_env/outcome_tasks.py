"""Small tasks with an outcome, one for each protocol."""

from __future__ import annotations

from typing import Any

from sotopia_env.outcomes.move import read_move
from sotopia_env.testing import state_after
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode, PolicyInfo, RecordedTurn
from sotopia_env.world.scenario import Task
from tests.sotopia_env.factories import scenario, task


def verified(outcome: dict[str, Any], **fields: Any) -> Task:
    """A task of as many seats as ``outcome`` has worths; ``fields`` are the scenario's."""
    seats = len(outcome["worth"])
    return task(seats, scenario=scenario(seats, outcome=outcome, **fields))


PRICE = {"name": "price", "kind": "number", "low": 0, "high": 394, "step": 1, "unit": "$"}
START = {"name": "start", "kind": "choice", "options": ["June 1", "June 15"]}
FIREWOOD = {"name": "firewood", "kind": "items", "count": 3}


def contract(**fields: Any) -> Task:
    """Two seats agree on a price, a date and who gets the firewood."""
    return verified(
        {
            "protocol": {"kind": "agreement"},
            "issues": [PRICE, START, FIREWOOD],
            "worth": [
                {
                    "constant": 186,
                    "issues": {
                        "price": {"per_unit": -1},
                        "start": {"June 1": 4, "June 15": 1},
                        "firewood": {"each": 5},
                    },
                },
                {
                    "constant": -86,
                    "issues": {
                        "price": {"per_unit": 1},
                        "start": {"June 1": 1, "June 15": 4.5},
                        "firewood": {"each": 2},
                    },
                },
            ],
        },
        **fields,
    )


def sale(seats: int = 2, needs: Any = "all", **fields: Any) -> Task:
    """All agree on a price; seat 0 pays it to the others."""
    gains = [-1.0, *[1.0] * (seats - 1)]
    worth = [
        {"constant": 100 if gain < 0 else 0, "issues": {"price": {"per_unit": gain}}, "no_agreement": 0.0}
        for gain in gains
    ]
    issues = [{"name": "price", "kind": "number", "low": 0, "high": 100, "step": "0.5", "unit": "$"}]
    return verified({"protocol": {"kind": "agreement", "needs": needs}, "issues": issues, "worth": worth}, **fields)


def ballot(seats: int = 3, secret: bool = False, **fields: Any) -> Task:
    """Everybody votes for the museum or the park."""
    worth = [{"options": {"museum": 5, "park": seat}} for seat in range(seats)]
    rules = {"kind": "ballot", "options": ["museum", "park"], "rule": "majority", "secret": secret}
    return verified({"protocol": rules, "worth": worth}, **fields)


def riddle(shown: bool = False, tries: int = 2, **fields: Any) -> Task:
    """Both seats claim who their common friend is."""
    rules = {"kind": "claims", "candidates": ["Ana Lee", "Bo Li"], "answer": "Bo Li", "tries": tries, "shown": shown}
    return verified({"protocol": rules, "worth": [{"right": 10, "wrong": -2}] * 2}, **fields)


def acts(words: str = "", move: Any = None, to: tuple[str, ...] = ()) -> Action:
    """Words with a move, given as JSON."""
    return Action(ActionType.SPEAK, words, to, None if move is None else read_move(move))


def episode(task: Task, *actions: Action | str, key: str = "e0") -> Episode:
    """The record of an episode with these actions, one for each turn."""
    state = state_after(task, *actions, rules=Rules(max_silent_turns=0))
    return Episode(
        key=key,
        task=task,
        rules=state.rules,
        policies=tuple(PolicyInfo(agent=agent, name=f"policy-{agent}") for agent in task.agents),
        turns=tuple(RecordedTurn(turn=turn) for turn in state.turns),
        stop=state.stop,
    )
