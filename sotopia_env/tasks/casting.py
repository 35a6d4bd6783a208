"""Casting of scenarios: the same scenario with several sets of characters in its seats.

In SOTOPIA-π (arXiv 2403.08715, section 4) ten pairs of characters play each social task. Texts of some verified
families name the characters, so the names of a new cast replace the old ones in these texts; counts per social task use
:func:`~sotopia_env.tasks.open_scenario.task_key`, which does not depend on names.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sotopia_env.foundation.errors import ConstraintError, InvalidValueError, Where
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import read_record
from sotopia_env.tasks.builtin import everyday_cast, starter_cast
from sotopia_env.tasks.checks import check
from sotopia_env.tasks.open_scenario import OpenScenario, renamed
from sotopia_env.tasks.people import draw_characters, draw_relationship
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import Cast, TaskSet, casting_id, draw_seatings, seat_characters

DRAWN, STARTER = "drawn", "starter"
CASTS: Mapping[str, Callable[[], Cast]] = MappingProxyType({STARTER: starter_cast, "everyday": everyday_cast})
"""The casts that ship with the package, by name."""
_ATTEMPTS = 500  # draws of people before a scenario's constraints count as unsatisfiable


def read_cast(name: str) -> Cast | None:
    """Returns a cast by name.

    Args:
        name: ``drawn``, for which the result is ``None``; a name of :data:`CASTS`; or the path of a JSON file.

    Raises:
        InvalidValueError: the file cannot be read, or does not contain a cast.
    """
    if name == DRAWN:
        return None
    if name in CASTS:
        return CASTS[name]()
    if not Path(name).is_file():
        names = ", ".join(map(repr, [DRAWN, *CASTS]))
        raise InvalidValueError(field="cast", expected=f"{names} or a JSON file", got=name)
    return read_record(Cast, read_text(name), name, InvalidValueError)


def cast_scenarios(open_scenarios: Iterable[OpenScenario], cast: Cast | None, pairs: int, seed: int) -> TaskSet:
    """Returns every scenario with ``pairs`` different casts, as tasks ``SCENARIO/0``, ``SCENARIO/1`` and so on.

    Args:
        open_scenarios: the scenarios.
        cast: the available characters; ``None`` draws new ones for every task.
        pairs: number of casts per scenario (10 in SOTOPIA-π).
        seed: seed of the draws.

    Raises:
        ConstraintError: a scenario's constraints admit fewer casts; the message names the scenario.
        InvalidTaskError: a task of a verified family is invalid with its new characters.
    """
    result: list[Task] = []
    for open_scenario in open_scenarios:
        casting = _Casting.of(open_scenario, seed)
        for task in _drawn(casting, pairs) if cast is None else _from_cast(casting, cast, pairs):
            # Renaming changes the scenario's texts and seat names, so its outcome is checked again.
            if task.scenario is not open_scenario.scenario:
                check(task)
            result.append(task)
    return TaskSet(result)


@dataclass(frozen=True, slots=True)
class _Casting:
    """A scenario to be cast, with properties that are computed once per scenario.

    Attributes:
        open_scenario: the scenario.
        names_people: whether its texts name its characters.
        words: all words in its texts, without the characters' names.
        seed: seed of its draws.
    """

    open_scenario: OpenScenario
    names_people: bool
    words: frozenset[str]
    seed: str

    @classmethod
    def of(cls, open_scenario: OpenScenario, seed: int) -> _Casting:
        names_people = open_scenario.names_people
        content = open_scenario.scenario.model_dump(mode="json", exclude={"id"})
        text = canonical_json(renamed(content, dict.fromkeys(open_scenario.names, "")) if names_people else content)
        return cls(open_scenario, names_people, frozenset(re.findall(r"\w+", text)), f"{seed}:{open_scenario.key}")

    def means_another(self, person: Character) -> bool:
        """Whether a name of the person occurs in the texts with another meaning, such as a friend or a place."""
        names = [re.findall(r"\w+", name) for name in (person.first_name, person.last_name)]
        return any(name and all(word in self.words for word in name) for name in names)

    def task(self, people: Sequence[Character], relationships: Sequence[Relationship], number: int) -> Task:
        """Returns the task with these people in the scenario's seats."""
        scenario = self.open_scenario.scenario
        if self.names_people:
            scenario = self.open_scenario.played_by([person.name for person in people])
        return Task(
            id=casting_id(scenario.id, number),
            scenario=scenario,
            characters=tuple(people),
            relationships=tuple(relationships),
        )


def _from_cast(casting: _Casting, cast: Cast, pairs: int) -> Iterator[Task]:
    scenario = casting.open_scenario.scenario
    indices = [index for index, person in enumerate(cast.characters) if not casting.means_another(person)]
    # Relationships refer to characters by index, and must be renumbered for the smaller cast.
    usable = Cast(
        characters=tuple(cast.characters[index] for index in indices),
        relationships=tuple(
            relationship.model_copy(update={"seats": tuple(indices.index(seat) for seat in relationship.seats)})
            for relationship in cast.relationships
            if all(seat in indices for seat in relationship.seats)
        ),
    )
    for number, seating in enumerate(draw_seatings(scenario, usable, pairs, random.Random(casting.seed))):
        seated = seat_characters(scenario, usable, seating, scenario.id)
        yield casting.task(seated.characters, seated.relationships, number)


def _drawn(casting: _Casting, pairs: int) -> Iterator[Task]:
    rng = random.Random(casting.seed)
    previous: set[tuple[str, ...]] = set()
    for number in range(pairs):
        people = _people(casting, rng, previous)
        previous.add(tuple(person.name for person in people))
        yield casting.task(people, _relationships(casting.open_scenario.scenario, rng, people), number)


def _people(casting: _Casting, rng: random.Random, previous: set[tuple[str, ...]]) -> tuple[Character, ...]:
    """Draws people whom the scenario admits, who are not an earlier cast, and whose names its texts do not use."""
    scenario = casting.open_scenario.scenario
    for _ in range(_ATTEMPTS):
        people = draw_characters(rng, len(scenario.seats))
        admitted = all(scenario.constraints.admits(seat, person) for seat, person in enumerate(people))
        if admitted and tuple(p.name for p in people) not in previous and not any(map(casting.means_another, people)):
            return people
    raise ConstraintError(
        f"none of {_ATTEMPTS} drawn casts meets the constraints on ages and occupations",
        field="constraints",
        hint="use a cast with suitable characters",
        where=Where(record=f"scenario {scenario.id!r}"),
    )


def _relationships(scenario: Scenario, rng: random.Random, people: Sequence[Character]) -> list[Relationship]:
    kinds, facts = list(scenario.constraints.relationships or RelationshipKind), scenario.constraints.facts
    relationships = []
    for pair in itertools.combinations(range(len(people)), 2):
        relationship = draw_relationship(rng, people, pair, kinds, facts)
        if relationship.kind is RelationshipKind.ROMANTIC and len(kinds) > 1:
            kinds.remove(RelationshipKind.ROMANTIC)  # at most one couple per task
        relationships.append(relationship)
    return relationships
