"""A toy family of one number, and observations of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sotopia_env.policies import Decision, Policy
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.observation import Observation, observe
from sotopia_env.world.scenario import Task
from tests.sotopia_env.factories import scenario, task

STEPS = 20


class ToyProblem:
    """Seat 0 wants the number to be 20, seat 1 wants 0; "offer N" offers, "accept N" settles."""

    def __init__(self, observation: Observation) -> None:
        self._agent = observation.agent
        self._acts = [
            (turn.actor, *turn.action.argument.split())
            for turn in observation.turns
            if turn.action.action_type is ActionType.SPEAK
        ]

    def candidates(self) -> Sequence[tuple[Mapping[str, Any], float]]:
        numbers = range(STEPS, -1, -1) if self._agent == "agent_0" else range(STEPS + 1)
        return [({"n": n}, self.value({"n": n})) for n in numbers]

    def value(self, terms: Mapping[str, Any]) -> float:
        share = float(terms["n"]) / STEPS
        return share if self._agent == "agent_0" else 1 - share

    def _offers(self, own: bool) -> list[Mapping[str, Any]]:
        return [{"n": int(n)} for actor, word, n in self._acts if word == "offer" and (actor == self._agent) is own]

    def incoming(self) -> Mapping[str, Any] | None:
        offers = self._offers(own=False)
        return offers[-1] if offers else None

    def outgoing(self) -> Sequence[Mapping[str, Any]]:
        return self._offers(own=True)

    def settled(self) -> bool:
        return any(word == "accept" for _, word, _ in self._acts)

    def phrase_offer(self, terms: Mapping[str, Any], seed: int) -> str:
        return f"offer {terms['n']}"

    def phrase_accept(self, terms: Mapping[str, Any], seed: int) -> str:
        return f"accept {terms['n']}"


class HopelessProblem(ToyProblem):
    """Nothing that could be agreed is better than nothing."""

    def candidates(self) -> Sequence[tuple[Mapping[str, Any], float]]:
        return [({"n": 0}, -0.2)]


class FactsProblem(ToyProblem):
    """Tells two facts before it offers."""

    def phrase_share(self, seed: int) -> str | None:
        told = sum(word == "fact" and actor == self._agent for actor, word, _ in self._acts)
        return f"fact {told}" if told < 2 else None


class ToyFamily:
    def __init__(self, problem: type[ToyProblem] = ToyProblem) -> None:
        self.problem = problem


def toy_task(seats: int = 2, **fields: Any) -> Task:
    return task(seats, scenario=scenario(seats, shared_data={"family": "toy"}, **fields))


def observed(of: Task, *said: Action | str, rules: Rules | None = None) -> Observation:
    """What the seat whose turn it is observes after these actions."""
    state = initial_state(of, rules or Rules(), 0)
    for action in said:
        state = transition(state, action if isinstance(action, Action) else Action(ActionType.SPEAK, action))
    assert state.actor is not None
    return observe(state, state.actor)


def act(policy: Policy, observation: Observation, seed: int = 0) -> Action:
    return decide(policy, observation, seed).action


def decide(policy: Policy, observation: Observation, seed: int = 0) -> Decision:
    return asyncio.run(policy.act(observation, seed))


def play(first: Policy, second: Policy, of: Task, rules: Rules | None = None) -> list[Action]:
    """All actions of an episode of two seats."""
    state = initial_state(of, rules or Rules(), 0)
    while state.actor is not None:
        policy = (first, second)[of.agents.index(state.actor)]
        state = transition(state, act(policy, observe(state, state.actor), seed=len(state.turns)))
    return [turn.action for turn in state.turns]
