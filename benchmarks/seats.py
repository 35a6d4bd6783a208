"""150 seats in one episode, the acting seat's observation rendered on every turn."""

from __future__ import annotations

import itertools
import time

from benchmarks.measure import Figure
from sotopia_env.tasks.starter import starter_cast
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, TurnOrder, initial_state, transition
from sotopia_env.world.observation import SeatView
from sotopia_env.world.scenario import Relationship, Scenario, Seat, Task

SEATS = 150


def crowd() -> Task:
    """A task with 150 seats; every third pair are friends."""
    models = starter_cast().characters
    characters = tuple(models[i % len(models)].model_copy(update={"first_name": f"Guest {i}"}) for i in range(SEATS))
    pairs = itertools.combinations(range(SEATS), 2)
    relationships = tuple(
        Relationship(seats=pair, kind="friend" if sum(pair) % 3 == 0 else "stranger") for pair in pairs
    )
    seats = tuple(Seat(goals=(f"Talk to guest {i + 1}.",)) for i in range(SEATS))
    scenario = Scenario(id="crowd", context="A large reception.", seats=seats)
    return Task(id="crowd", scenario=scenario, characters=characters, relationships=relationships)


def actions_per_second(order: TurnOrder, rounds: int = 10) -> tuple[float, float]:
    """Actions per wall second over whole rounds, and over the first round alone (which renders 150 briefings)."""
    task, rules = crowd(), Rules(turn_order=order, max_rounds=rounds, max_silent_turns=0)
    start = time.perf_counter()
    lines: list[str] = []
    views = {agent: SeatView(task, rules, agent, lines) for agent in task.agents}
    state = initial_state(task, rules, 0)
    first = 0.0
    while state.stop is None:
        actor = state.waiting[0]
        prompt = views[actor].observe(state).text
        state = transition(state, Action(ActionType.SPEAK, f"I have read {len(prompt)} characters."))
        if len(state.turns) == SEATS:
            first = SEATS / (time.perf_counter() - start)
    return len(state.turns) / (time.perf_counter() - start), first


def figures() -> list[Figure]:
    """Actions a second, round-robin and simultaneous."""
    results = []
    for order in (TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS):
        rate, first = actions_per_second(order)
        note = f"first round alone {first:,.0f}/s"
        results.append(Figure(f"150 seats, {order.value}: actions / s", rate, "1/s", 3000, at_most=False, note=note))
    return results
