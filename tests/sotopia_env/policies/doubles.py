"""Small verified tasks written as a user would write them, and observations and episodes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.move import read_move
from sotopia_env.policies import Decision, Policy
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.observation import Observation, SeatView, observe
from sotopia_env.world.play.policy import turn_seed
from sotopia_env.world.scenario import OutcomeSpec, Seat, Task
from tests.sotopia_env.factories import scenario, task


def verified(outcome: Mapping[str, Any], private_data: Sequence[Mapping[str, Any]] = (), **fields: Any) -> Task:
    """A task whose outcome is given as in a scenario file."""
    spec = OutcomeSpec.model_validate(outcome)
    data = private_data or [{}] * len(spec.worth)
    seats = tuple(Seat(goals=("Do well.",), private_data=dict(entry)) for entry in data)
    return task(len(seats), scenario=scenario(len(seats), seats=seats, outcome=spec, **fields))


def number(per_unit: float, low: float = 0) -> dict[str, Any]:
    return {"constant": low, "issues": {"n": {"per_unit": per_unit}}}


def one_number(high: int = 20, **protocol: Any) -> Task:
    """Seat 0 wants the number to be high, seat 1 wants 0; either gets nothing without an agreement."""
    issue = {"name": "n", "kind": "number", "low": 0, "high": high}
    return verified(
        {
            "protocol": {"kind": "agreement", **protocol},
            "issues": [issue],
            "worth": [number(1), number(-1, high)],
        }
    )


MIXED = {
    "protocol": {"kind": "agreement"},
    "issues": [
        {"name": "price", "kind": "number", "low": 0, "high": 40, "unit": "$"},
        {"name": "start", "kind": "choice", "options": ["June 1", "June 15"]},
        {"name": "firewood", "kind": "items", "count": 3},
    ],
    "worth": [
        {
            "constant": 40,
            "issues": {"price": {"per_unit": -1}, "start": {"June 1": 8, "June 15": 0}, "firewood": {"each": 1}},
        },
        {"issues": {"price": {"per_unit": 1}, "start": {"June 1": 0, "June 15": 2}, "firewood": {"each": 6}}},
    ],
}
"""A number, a choice and items: the sides differ most on the price, and each has an issue that matters more to it."""


def mixed(price: int, start: str, firewood: int) -> dict[str, Any]:
    """Terms of :data:`MIXED`; ``firewood`` is the first seat's share."""
    return {"price": price, "start": start, "firewood": {"agent_0": firewood, "agent_1": 3 - firewood}}


def three_seats(needs: Any) -> dict[str, Any]:
    worth = {"issues": {"pieces": {"each": 1}, "day": {"Mon": 1, "Tue": 0}}}
    return {
        "protocol": {"kind": "agreement", "needs": needs},
        "issues": [
            {"name": "pieces", "kind": "items", "count": 9},
            {"name": "day", "kind": "choice", "options": ["Mon", "Tue"]},
        ],
        "worth": [worth, worth, {"issues": {"pieces": {"each": 1}, "day": {"Mon": 0, "Tue": 2}}}],
    }


def ballot(rule: str = "majority", secret: bool = False) -> dict[str, Any]:
    """Everybody likes another option best, and all like the museum better than nothing."""
    return {
        "protocol": {"kind": "ballot", "options": ["park", "museum", "zoo"], "rule": rule, "secret": secret},
        "worth": [
            {"options": {"park": 5, "museum": 3, "zoo": 0}},
            {"options": {"park": 0, "museum": 3, "zoo": 5}},
            {"options": {"park": 1, "museum": 4, "zoo": 3}, "no_decision": 2},
        ],
    }


def _friends(*rows: tuple[str, str, str]) -> dict[str, Any]:
    return {"friends": [{"name": name, "school": school, "pet": pet} for name, school, pet in rows]}


FRIENDS = (
    _friends(("Ann Lee", "Elm", "cat"), ("Cy Fox", "Elm", "dog"), ("Di Poe", "Ash", "hen")),
    _friends(("Ed Low", "Elm", "cat"), ("Cy Fox", "Oak", "cat"), ("Di Poe", "Ash", "hen")),
)
"""Di Poe is on both lists; the two Cy Fox are two people."""
CLAIMS = {
    "protocol": {"kind": "claims", "candidates": ["Ann Lee", "Cy Fox", "Di Poe", "Ed Low"], "answer": "Di Poe"},
    "worth": [{"right": 1, "wrong": -0.25}] * 2,
}


def friends_task() -> Task:
    return verified(CLAIMS, FRIENDS)


def moving(**move: Any) -> Action:
    """An action of one move, such as ``moving(propose={"n": 4})``."""
    return Action(ActionType.SPEAK, "", move=read_move(move))


def proposals(state: EpisodeState, seat: int) -> list[Any]:
    """The terms that one seat has proposed."""
    turns = [turn for turn in state.turns if turn.actor == f"agent_{seat}" and turn.action.move]
    return [turn.action.move.content for turn in turns if turn.action.move.kind is MoveKind.PROPOSE]


def moves(state: EpisodeState) -> list[Move | None]:
    return [turn.action.move for turn in state.turns]


def violations(state: EpisodeState) -> list[str]:
    return [turn.violation for turn in state.turns if turn.violation is not None]


def observed(task: Task, *actions: Action | str, rules: Rules | None = None) -> Observation:
    """What the seat whose turn it is observes after these actions."""
    state = initial_state(task, rules or Rules(), 0)
    for action in actions:
        state = transition(state, action if isinstance(action, Action) else Action(ActionType.SPEAK, action))
    assert state.actor is not None
    return observe(state, state.actor)


def act(policy: Policy, observation: Observation, seed: int = 0) -> Action:
    return decide(policy, observation, seed).action


def decide(policy: Policy, observation: Observation, seed: int = 0) -> Decision:
    return asyncio.run(policy.act(observation, seed))


def play(policies: Sequence[Policy], task: Task, rules: Rules | None = None, seed: int = 0) -> EpisodeState:
    """An episode to its end; one policy per seat."""

    async def episode() -> EpisodeState:
        state = initial_state(task, rules or Rules(), seed)
        views = [SeatView(task, state.rules, agent) for agent in task.agents]
        while state.actor is not None:
            seat = task.agents.index(state.actor)
            decision = await policies[seat].act(views[seat].observe(state), turn_seed(seed, len(state.turns), seat))
            state = transition(state, decision.action)
        return state

    return asyncio.run(episode())
