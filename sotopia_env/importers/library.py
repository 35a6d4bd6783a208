"""Profiles read so far, by their foreign ids: what episodes and combinations refer to."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sotopia_env.errors import DamagedRecordError
from sotopia_env.records import canonical_json
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task

_MOST_TASKS = 1_024
RELATIONSHIP, CASTING = "contradicts: relationship", "contradicts: constraints"
"""Tags of tasks that are played as the reference code plays them, although the files contradict each other."""
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
    relationships: dict[frozenset[str], list[Relationship]] = field(default_factory=dict)
    combinations: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    order: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    _tasks: OrderedDict[tuple[object, ...], Task] = field(default_factory=OrderedDict)

    def add(self, table: dict[str, _RecordT], key: str, record: _RecordT) -> None:
        """Adds a record; one that is there and equal is added once.

        Raises:
            DamagedRecordError: another record has this id.
        """
        if table.setdefault(key, record) != record:
            raise DamagedRecordError(field="pk", expected="an id of its own", got=key, hint="give one another id")

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
        contradictions = self.contradictions(scenario_id, character_ids)
        if contradictions:
            scenario = scenario.model_copy(update={"tags": (*scenario.tags, *contradictions)})
        if CASTING in contradictions:
            constraints = scenario.constraints.model_copy(update={"ages": (), "occupations": ()})
            scenario = scenario.model_copy(update={"constraints": constraints})
        if private and not scenario.private_messages:
            scenario = scenario.model_copy(update={"private_messages": True})
        characters = tuple(_known(self.characters, name, "agent_ids", "agents") for name in character_ids)
        if len(characters) != len(scenario.seats):
            raise DamagedRecordError(
                field="agent_ids",
                expected=f"{len(scenario.seats)}, one per goal of {scenario_id!r}",
                got=len(characters),
            )
        key = (scenario_id, tuple(character_ids))
        return Task(
            id=self.combinations.get(key) or f"{scenario_id[:60]}/{content_id(*character_ids)}",
            scenario=scenario,
            characters=characters,
            relationships=tuple(self._between(scenario_id, character_ids)),
        )

    def contradictions(self, scenario_id: str, character_ids: Sequence[str]) -> dict[str, str]:
        """Returns what contradicts the scenario in this cast, as the tags of its task: what is played, in a sentence.

        The reference code plays the relationship of the environment, whatever the pair's profile says, and seats whom
        a combination names, whatever the environment's constraints say.
        """
        kind = self.kinds.get(scenario_id, RelationshipKind.STRANGER)
        others = {tie.kind.value: None for ties in self._ties(character_ids) for tie in ties if tie.kind is not kind}
        agreeing = all(not ties or any(tie.kind is kind for tie in ties) for ties in self._ties(character_ids))
        people = [self.characters[name] for name in character_ids if name in self.characters]
        scenario = self.scenarios[scenario_id]
        seated = zip(range(len(scenario.seats)), people, strict=False)
        outside = [
            f"{person.name} ({person.age}, {person.occupation})"
            for seat, person in seated
            if not scenario.constraints.admits(seat, person)
        ]
        sentences = {}
        if not agreeing:
            sentences[RELATIONSHIP] = (
                f"relationship: played as {kind.value!r}, as the environment says; the pair's profile says "
                f"{', '.join(others)}"
            )
        if outside:
            sentences[CASTING] = (
                f"agent_ids: {', '.join(outside)} outside of the environment's ages and occupations; played without "
                "these constraints"
            )
        return sentences

    def _ties(self, ids: Sequence[str]) -> list[list[Relationship]]:
        return [self.relationships.get(frozenset(pair), []) for pair in itertools.combinations(ids, 2)]

    def _between(self, scenario_id: str, ids: Sequence[str]) -> list[Relationship]:
        """The environment's relationship for every pair, with the story of a profile that says the same."""
        kind = self.kinds.get(scenario_id, RelationshipKind.STRANGER)
        pairs = zip(itertools.combinations(range(len(ids)), 2), self._ties(ids), strict=True)
        return [
            Relationship(seats=pair, kind=kind, backstory=next((tie.backstory for tie in ties if tie.kind is kind), ""))
            for pair, ties in pairs
        ]


def _known(table: Mapping[str, _RecordT], key: str, field: str, file: str) -> _RecordT:
    if key not in table:
        raise DamagedRecordError(
            field=field, got=key, valid=table, hint=f"import it together with the file of its {file}"
        )
    return table[key]


def content_id(*parts: object) -> str:
    """Returns 16 characters that depend on the parts alone, for records without an id of their own."""
    return hashlib.sha256(canonical_json(list(map(str, parts))).encode()).hexdigest()[:16]
