"""A test that those who sleep notice nothing of the night, by pairs of worlds that differ in hidden matters alone.

    python -m studies.role_games.night --observations 1000000

In the second world two seats have exchanged their roles, goals and worths, and all that is said, inspected and
protected by night is drawn anew; the same is said and voted by day, and the same seat dies by night. So a villager who
is none of the two must read the same, letter by letter, whenever something happens in public and at the end.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.table import TableView
from sotopia_env.tasks.families.registry import family
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.observation import SeatView
from sotopia_env.world.scenario import Task

VILLAGER, WOLF = "villager", "wolf"


class Twins(NamedTuple):
    """Two tasks that are alike to the villagers who are not ``exchanged``."""

    tasks: tuple[Task, Task]
    exchanged: tuple[str, str]
    observers: tuple[str, ...]
    mortal: bool
    """Whether an exchanged seat may be eliminated: its team is the same in both worlds."""


def twins(index: int, generator: random.Random) -> Twins:
    """Returns a task of the family ``werewolf``, where nothing is revealed, and its twin."""
    task = family("werewolf").generate(index, 0, "hard")
    roles = {agent: task.scenario.role_of(agent) for agent in task.agents}
    special = generator.choice([agent for agent in task.agents if roles[agent] != VILLAGER])
    plain = generator.choice([agent for agent in task.agents if roles[agent] == VILLAGER])
    observers = tuple(agent for agent in task.agents if roles[agent] == VILLAGER and agent != plain)
    other = _exchanged(task, task.seat_of[special], task.seat_of[plain])
    return Twins((task, other), (special, plain), observers, roles[special] != WOLF)


def _exchanged(task: Task, one: int, two: int) -> Task:
    scenario = task.scenario
    assert scenario.outcome is not None
    assert scenario.facts is not None
    order = [two if seat == one else one if seat == two else seat for seat in range(len(task.agents))]
    values = {f"agent_{seat}": scenario.role_of(f"agent_{source}") for seat, source in enumerate(order)}
    variables = tuple(v.model_copy(update={"value": values[v.of]}) for v in scenario.facts.variables)
    changes = {
        "seats": tuple(scenario.seats[source] for source in order),
        "outcome": scenario.outcome.model_copy(
            update={"worth": tuple(scenario.outcome.worth[source] for source in order)}
        ),
        "facts": scenario.facts.model_copy(update={"variables": variables}),
    }
    # Validated again, so that nothing that was derived from the first world remains.
    return Task.model_validate(
        task.model_copy(update={"scenario": scenario.model_copy(update=changes)}).model_dump(mode="json")
    )


class World:
    """One of the two worlds, with the views of the observers."""

    def __init__(self, task: Task, observers: tuple[str, ...], seed: str) -> None:
        self.state: EpisodeState = initial_state(task, Rules(), 0)
        self.roles = {agent: task.scenario.role_of(agent) for agent in task.agents}
        self.views = {agent: SeatView(task, Rules(), agent) for agent in observers}
        self._hidden = random.Random(seed)

    def table(self, seat: str | None = None) -> TableView:
        """The table as a seat sees it."""
        protocol = self.state.task.protocol
        assert protocol is not None
        return protocol.table(self.state.table, seat)

    def run_to_public(self, victim: str) -> None:
        """Plays hidden turns until somebody acts in public, or the game is over."""
        protocol = self.state.task.protocol
        assert protocol is not None
        while (actor := self.state.actor) is not None and protocol.audience(self.state.table, actor) is not None:
            self.state = transition(self.state, self._night(actor, victim))

    def _night(self, actor: str, victim: str) -> Action:
        protocol, names = self.state.task.protocol, self.state.task.names
        assert protocol is not None
        menu = protocol.menu(self.state.table, actor)
        words = f"hidden {self._hidden.random()}"
        if menu.vote:
            return Action(ActionType.SPEAK, words, move=Move(MoveKind.VOTE, names[victim]))
        options = [name for name in menu.choose if name != names[victim]]
        return Action(
            ActionType.SPEAK, words, move=Move(MoveKind.CHOOSE, self._hidden.choice(options)) if options else None
        )

    def reads(self) -> list[object]:
        """Everything that the observers read now."""
        rows: list[object] = []
        for view in self.views.values():
            observation = view.observe(self.state)
            assert observation.table is not None
            rows.append((observation.text, observation.messages, observation.table.to_json(), observation.turn))
        return rows


def compared(pair: Twins, generator: random.Random) -> Iterator[bool]:
    """Yields whether each observation of a game is the same in both worlds."""
    first, second = (World(task, pair.observers, f"{n}{generator.random()}") for n, task in enumerate(pair.tasks))
    target = victim = ""
    cycle = -1
    while first.state.stop is None or second.state.stop is None:
        game = first.table().game
        assert game is not None
        if game.cycle != cycle:
            cycle = game.cycle
            target, victim = _hits(pair, first, second, game.living, generator)
        first.run_to_public(victim)
        second.run_to_public(victim)
        yield from (one == two for one, two in zip(first.reads(), second.reads(), strict=True))
        actor = first.state.actor
        if actor is None or actor != second.state.actor:
            return
        action = _public(first, actor, target, generator)
        first.state, second.state = transition(first.state, action), transition(second.state, action)


def _hits(
    pair: Twins, first: World, second: World, living: tuple[str, ...], generator: random.Random
) -> tuple[str, str]:
    """Whom the day and the night hit: seats that are of one team in both worlds, and by night no wolf."""
    free = [agent for agent in living if pair.mortal or agent not in pair.exchanged]
    prey = [agent for agent in free if WOLF not in (first.roles[agent], second.roles[agent])]
    victim = generator.choice(prey or [agent for agent in living if first.roles[agent] != WOLF])
    return generator.choice([agent for agent in free if agent != victim] or [victim]), victim


def _public(world: World, actor: str, target: str, generator: random.Random) -> Action:
    protocol, names = world.state.task.protocol, world.state.task.names
    assert protocol is not None
    options = protocol.menu(world.state.table, actor).vote
    move = None
    if options:
        move = Move(MoveKind.VOTE, names[target] if names[target] in options else generator.choice(options))
    return Action(ActionType.SPEAK, f"public {generator.random()}", move=move)


def count(observations: int, seed: int = 0) -> Mapping[str, int]:
    """Returns how many observations were compared, and how many of them differ."""
    generator, result, index = random.Random(seed), {"observations": 0, "different": 0}, 0
    while result["observations"] < observations:
        for same in compared(twins(index, generator), generator):
            result["observations"] += 1
            result["different"] += not same
        index += 1
    return {**result, "games": index}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=1_000_000)
    sys.stdout.write(f"{count(parser.parse_args().observations)}\n")
