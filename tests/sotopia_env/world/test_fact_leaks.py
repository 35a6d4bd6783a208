"""What a seat cannot know changes nothing that it observes, whatever the others say to each other."""

import itertools
import random

import pytest

from sotopia_env.outcomes.facts import Facts
from sotopia_env.world.action import Action
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task
from tests.sotopia_env.world.scenarios import facts, random_action, say, verified_task

ORDERS = ("round-robin", "random", "simultaneous", "reactive")


def with_facts(task: Task, other: Facts) -> Task:
    """The task with other true values."""
    scenario = task.scenario.model_copy(update={"facts": other})
    return Task(id=task.id, scenario=scenario, characters=task.characters, relationships=task.relationships)


def everything(state: EpisodeState, agent: str) -> tuple[object, ...]:
    """All fields and texts of an observation."""
    observation = observe(state, agent)
    table = observation.table
    assert table is not None
    return (
        *(observation.text, observation.messages, observation.turns, observation.briefing, observation.moves),
        *(observation.moves_text, observation.prospect, table.to_json(), observation.refusal),
    )


def worlds(kind: str, seats: int) -> list[Facts]:
    """The same variables with every assignment of roles, hours and codes."""
    dealt = sorted(set(itertools.permutations(["wolf", "seer", *["sheep"] * (seats - 2)])))
    return [
        facts(seats, roles, hour, code, kind == "facts")
        for roles, hour, code in itertools.product(dealt, ("one", "two", "three"), ("red", "green"))
    ]


def possible(other: Facts, state: EpisodeState, agent: str) -> bool:
    """Whether the values that a seat knows by now are the same in another world."""
    table = observe(state, agent).table
    assert table is not None
    assert table.knowledge is not None
    return table.knowledge.items() <= other.truth.items()


def played(task: Task, rules: Rules, seed: int, actions: list[Action]) -> EpisodeState:
    state = initial_state(task, rules, seed)
    for action in actions:
        state = transition(state, action)
    return state


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["facts", "discussion"])
def test_worlds_that_a_seat_cannot_tell_apart_look_alike_to_it(kind: str, order: str) -> None:
    """Non-interference: the same actions in every world that agrees with what a seat knows give equal observations."""
    rules, compared = Rules(turn_order=order, max_turns=14, max_silent_turns=0), 0
    for seed in range(4):
        seats = 3 + seed % 2
        base, every = verified_task(kind, seats, True), worlds(kind, seats)
        rng = random.Random(seed)
        task, actions = with_facts(base, rng.choice(every)), []
        state = initial_state(task, rules, seed)
        while state.stop is None:
            actions.append(random_action(state, rng))
            state = transition(state, actions[-1])
            for agent in task.agents:
                alike = [other for other in every if possible(other, state, agent)]
                other = rng.choice(alike)
                twin = played(with_facts(base, other), rules, seed, actions)
                # Whoever knows other things there may be refused what it shows here; then the actions were others.
                if [turn.violation is None for turn in twin.turns] == [turn.violation is None for turn in state.turns]:
                    assert everything(twin, agent) == everything(state, agent)
                    compared += other != task.scenario.facts
    assert compared > 60


def test_a_value_appears_from_the_moment_that_it_is_proved_and_to_those_who_saw_it_alone() -> None:
    task = verified_task("facts", 3, True)
    state = initial_state(task, Rules(max_silent_turns=0), 0)
    hidden = observe(state, "agent_1").text
    assert "hour" in hidden  # the variable and its options, but no value
    assert "hour = two" not in hidden
    assert "code" not in hidden  # a secret that it may not know is not even named
    state = transition(state, say("Look.", "agent_1", show="hour"))
    assert "Proved to you: hour = two" in observe(state, "agent_1").text
    assert "hour = two" not in observe(state, "agent_2").text
    state = transition(state, say("Hm."))
    state = transition(state, say("It is red.", "agent_1", state={"code": "red"}))
    table = observe(state, "agent_1").table
    assert table is not None
    assert table.knowledge is not None
    assert "code" not in table.knowledge  # what is stated is not known


def test_conclusions_follow_from_the_deal() -> None:
    task = verified_task("facts", 3, True)
    state = initial_state(task, Rules(max_silent_turns=0), 0)
    seer, sheep = observe(state, "agent_1").table, observe(state, "agent_2").table
    assert seer is not None
    assert sheep is not None
    roles = {"role of seat 0": "wolf", "role of seat 1": "seer", "role of seat 2": "sheep"}
    assert roles.items() <= (seer.knowledge or {}).items()
    assert sheep.knowledge == {"role of seat 2": "sheep", "code": "red"}
    state = transition(state, say("I am it.", show="role of seat 0"))
    after = observe(state, "agent_2").table
    assert after is not None
    assert roles.items() <= (after.knowledge or {}).items()
