"""What a seat sees of a game: nothing that is hidden, in games with drawn rules and drawn play."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from sotopia_env import Rules
from sotopia_env.tasks.families.registry import FAMILIES
from sotopia_env.world.action import Action
from sotopia_env.world.dynamics import EpisodeState, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task

HISTORIES = ("partners", "strangers", "none")


def with_rules(task: Task, **rules: Any) -> Task:
    spec = task.scenario.outcome
    assert spec is not None
    protocol = spec.protocol.model_copy(update=rules)
    scenario = task.scenario.model_copy(update={"outcome": spec.model_copy(update={"protocol": protocol})})
    return task.model_copy(update={"scenario": scenario})


def twins(task: Task, rng: random.Random, order: str, seat: int) -> tuple[EpisodeState, EpisodeState, int]:
    """Two plays that differ in the choices of one seat alone; and how many choices of it differ in closed rounds."""
    states = [initial_state(task, Rules(turn_order=order, max_silent_turns=0), 3) for _ in range(2)]  # type: ignore[arg-type]
    for _ in range(rng.randrange(2, 14)):
        if any(state.stop for state in states) or states[0].actor != states[1].actor:
            break
        agent = states[0].actor or ""
        menus = [observe(state, agent).moves for state in states]
        options = [menu.choose if menu else () for menu in menus]
        draw = rng.random()
        for number, state in enumerate(states):
            if not options[number]:
                move: dict[str, Any] | None = None
            elif agent == task.agents[seat]:
                pick = int(draw * len(options[number]))
                move = {"choose": options[number][(pick + number) % len(options[number])]}
            else:
                move = {"choose": options[number][int(draw * len(options[number]))]}
            states[number] = transition(state, Action(argument="Well.", move=move))
    rounds = observe(states[0], task.agents[seat]).table
    assert rounds is not None
    assert rounds.rounds is not None
    return states[0], states[1], len(rounds.rounds.played)


@pytest.mark.parametrize("order", ["round-robin", "random", "simultaneous"])
def test_no_observation_depends_on_a_choice_before_its_round_is_over(order: str) -> None:
    rng, compared, revealed = random.Random(order), 0, 0
    names = ("dilemma", "volunteer", "grid", "traveller")
    for number in range(90):
        task = FAMILIES[names[number % 4]].generate(number, 1, "easy")
        history = HISTORIES[number % 3]
        task = with_rules(task, history=history, payoffs="own")
        seat = rng.randrange(len(task.agents))
        first, second, closed = twins(task, rng, order, seat)
        for other in set(range(len(task.agents))) - {seat}:
            agent = task.agents[other]
            pair = observe(first, agent), observe(second, agent)
            if closed == 0:
                # Byte for byte: nothing depends on a hidden choice.
                assert pair[0].text == pair[1].text
                assert pair[0].messages == pair[1].messages
                compared += 1
            elif history == "partners":
                revealed += pair[0].text != pair[1].text
    assert compared > 10
    assert revealed > 5


def test_strangers_are_counted_and_not_named() -> None:
    counts = FAMILIES["volunteer"].generate(0, 0, "hard")
    spec = counts.scenario.outcome
    assert spec is not None
    options = spec.protocol.options  # type: ignore[union-attr]
    texts = set()
    for row in set(itertools.permutations((0, 0, 1, 1))):  # the same numbers of others' choices, in every order
        state = initial_state(counts, Rules(), 0)
        for _ in counts.agents:
            state = transition(state, Action(argument="Hm."))
        for choice in (0, *row):
            state = transition(state, Action(argument="So.", move={"choose": options[choice]}))
        text = observe(state, "agent_0").text
        texts.add(text)
        assert f"{options[0]} 3 times in all" in text
    assert len(texts) == 1
