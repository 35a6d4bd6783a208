"""Profiles read so far, by their foreign ids: what episodes and combinations refer to."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sotopia_env.errors import DamagedRecordError, name_hint
from sotopia_env.importers.foreign import content_id
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task

_MOST_TASKS = 1_024
_RecordT = TypeVar("_RecordT")


@dataclass(slots=True)
class Library:
    """Characters, scenarios and relationships by id, and tasks that several episodes share.

    Attributes:
        combinations: scenario id and character ids to the id of their task.
        order: these, in the order of their file.
    """

    characters: dict[str, Character] = field(default_factory=dict)
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    kinds: dict[str, RelationshipKind] = field(default_factory=dict)
    relationships: dict[tuple[str, str], Relationship] = field(default_factory=dict)
    combinations: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    order: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    _tasks: OrderedDict[tuple[object, ...], Task] = field(default_factory=OrderedDict)

    def add(self, table: dict[str, _RecordT], key: str, record: _RecordT) -> None:
        """Adds a record; one that is there and equal is added once.

        Raises:
            DamagedRecordError: another record has this id.
        """
        if table.setdefault(key, record) != record:
            raise DamagedRecordError(f"pk: expected an id of its own, got {key!r} twice; give one of them another id")

    def knows(self, scenario: str, characters: Sequence[str]) -> bool:
        """Whether all profiles of a task were read."""
        return scenario in self.scenarios and all(name in self.characters for name in characters)

    def task(self, scenario_id: str, character_ids: Sequence[str], private: bool = False) -> Task:
        """Returns the task of these profiles.

        Args:
            scenario_id: of the environment's profile.
            character_ids: of the agents' profiles, in seat order.
            private: whether private messages occur in its episodes.

        Raises:
            DamagedRecordError: one of them was not read.
        """
        return self.shared(
            (scenario_id, *character_ids, private), lambda: self._task(scenario_id, character_ids, private)
        )

    def shared(self, key: tuple[object, ...], make: Callable[[], Task]) -> Task:
        """Returns the task that was made for ``key``, one of the latest, or makes it: episodes share tasks."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = make()
            if len(self._tasks) > _MOST_TASKS:
                self._tasks.popitem(last=False)
        return task

    def _task(self, scenario_id: str, character_ids: Sequence[str], private: bool) -> Task:
        scenario = _known(self.scenarios, scenario_id, "env_id", "environments")
        if private and not scenario.private_messages:
            scenario = scenario.model_copy(update={"private_messages": True})
        characters = tuple(_known(self.characters, name, "agent_ids", "agents") for name in character_ids)
        if len(characters) != len(scenario.seats):
            raise DamagedRecordError(
                f"agent_ids: expected {len(scenario.seats)}, one per goal of {scenario_id!r}, got {len(characters)}"
            )
        key = (scenario_id, tuple(character_ids))
        return Task(
            id=self.combinations.get(key) or f"{scenario_id[:60]}/{content_id(*character_ids)}",
            scenario=scenario,
            characters=characters,
            relationships=tuple(self._between(scenario_id, character_ids)),
        )

    def _between(self, scenario_id: str, ids: Sequence[str]) -> list[Relationship]:
        kind = self.kinds.get(scenario_id, RelationshipKind.STRANGER)
        relationships = []
        for i, j in itertools.combinations(range(len(ids)), 2):
            listed = self.relationships.get((ids[i], ids[j])) or self.relationships.get((ids[j], ids[i]))
            if listed is None:
                relationships.append(Relationship(seats=(i, j), kind=kind))
            else:
                relationships.append(listed.model_copy(update={"seats": (i, j), "origin": {}}))
        return relationships


def _known(table: Mapping[str, _RecordT], key: str, field: str, file: str) -> _RecordT:
    if key not in table:
        raise DamagedRecordError(f"{field}: {name_hint(key, table)}; import it together with the file of its {file}")
    return table[key]
