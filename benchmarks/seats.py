"""150 seats in one episode, the acting seat's observation rendered on every turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from benchmarks.measure import Figure
from sotopia_env.outcomes import Move, MoveKind, OutcomeSpec
from sotopia_env.tasks.builtin import starter_cast
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.observation import SeatView
from sotopia_env.world.scenario import Relationship, RelationshipKind, Scenario, Seat, Task
from sotopia_env.world.turn_order import TurnOrder

SEATS = 150
FRIEND, STRANGER = RelationshipKind.FRIEND, RelationshipKind.STRANGER


OPTIONS = ("garden", "hall", "roof")


def crowd(outcome: OutcomeSpec | None = None) -> Task:
    """A task with 150 seats; every third pair are friends."""
    models = starter_cast().characters
    characters = tuple(models[i % len(models)].model_copy(update={"first_name": f"Guest {i}"}) for i in range(SEATS))
    pairs = itertools.combinations(range(SEATS), 2)
    relationships = tuple(Relationship(seats=pair, kind=FRIEND if sum(pair) % 3 == 0 else STRANGER) for pair in pairs)
    seats = tuple(Seat(goals=(f"Talk to guest {i + 1}.",)) for i in range(SEATS))
    scenario = Scenario(id="crowd", context="A large reception.", seats=seats, outcome=outcome)
    return Task(id="crowd", scenario=scenario, characters=characters, relationships=relationships)


def ballot() -> OutcomeSpec:
    """A vote of all seats among three options."""
    worth = [{"options": dict.fromkeys(OPTIONS, 1)}] * SEATS
    return OutcomeSpec.model_validate({"protocol": {"kind": "ballot", "options": OPTIONS}, "worth": worth})


def vote(turn: int) -> Move | None:
    """The vote on a turn: every seat votes in every round except the last seat, so that the ballot stays open."""
    seat = turn % SEATS
    return None if seat == SEATS - 1 else Move(MoveKind.VOTE, OPTIONS[(seat + turn // SEATS) % len(OPTIONS)])


def nothing(turn: int) -> Move | None:
    """No move on any turn."""
    return None


def round_rates(task: Task, order: TurnOrder, move: Callable[[int], Move | None], rounds: int = 10) -> list[float]:
    """Actions per second of CPU in every round; the first one renders 150 briefings."""
    rules = Rules(turn_order=order, max_rounds=rounds, max_silent_turns=0)
    lines: list[str] = []
    times = [time.process_time()]
    views = {agent: SeatView(task, rules, agent, lines) for agent in task.agents}
    state = initial_state(task, rules, 0)
    while state.stop is None:
        actor, turn = state.waiting[0], len(state.turns)
        prompt = views[actor].observe(state).text
        words = f"I have read {len(prompt)} characters."
        state = transition(state, Action(ActionType.SPEAK, words, (), move(turn)))
        # Each round is timed by itself: a cost that grows with the history would show in the later ones.
        if len(state.turns) % SEATS == 0:
            times.append(time.process_time())
    return [SEATS / (end - start) for start, end in itertools.pairwise(times)]


def figures() -> list[Figure]:
    """Actions a second, round-robin and simultaneous, in talk and on a ballot: the first round and the slowest later.

    The best of three runs on tasks of their own, so that no briefing is rendered before.
    """
    results = []
    programs = (("talk", None, nothing), ("ballot", ballot(), vote))
    for order, (name, outcome, move) in itertools.product((TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS), programs):
        runs = [round_rates(crowd(outcome), order, move) for _ in range(3)]
        first, later = max(run[0] for run in runs), max(min(run[1:]) for run in runs)
        label = f"150 seats, {name}, {order.value}"
        results.append(Figure(f"{label}: first round", first, "1/CPU s", 1000, at_most=False))
        results.append(Figure(f"{label}: slowest later round", later, "1/CPU s", 1000, at_most=False))
    return results
