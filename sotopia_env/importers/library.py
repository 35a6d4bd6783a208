"""The profiles read so far, by their foreign ids, for the episodes and combinations that refer to them."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task

# Consecutive episodes of a file mostly share their task; a bound keeps files of millions of tasks from filling memory.
_MOST_TASKS = 1_024
RELATIONSHIP, CASTING = "contradicts: relationship", "contradicts: constraints"
"""Tags of tasks whose files contradict each other; they are played as the reference code plays them."""
_RecordT = TypeVar("_RecordT")


@dataclass(slots=True)
class Library:
    """Characters, scenarios and relationships by id, and tasks that several episodes share.

    Attributes:
        characters: characters by id, in the order of their file.
        scenarios: scenarios by id.
        kinds: the relationship that each scenario prescribes, by scenario id.
        relationships: the profiles of each pair of character ids.
        combinations: scenario id and character ids to the id of their task.
        order: the keys of ``combinations``, in the order of their file.
    """

    characters: dict[str, Character] = field(default_factory=dict)
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    kinds: dict[str, RelationshipKind] = field(default_factory=dict)
    relationships: dict[frozenset[str], list[Relationship]] = field(default_factory=dict)
    combinations: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    order: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    _tasks: OrderedDict[tuple[object, ...], Task] = field(default_factory=OrderedDict)

    def add(self, records: dict[str, _RecordT], key: str, record: _RecordT) -> None:
        """Adds a record to one of the library's mappings; adding an equal record twice is allowed.

        Raises:
            DamagedRecordError: a different record has this id.
        """
        if records.setdefault(key, record) != record:
            raise DamagedRecordError(field="pk", expected="a unique id", got=key, hint="change the id of one record")

    def knows(self, scenario: str, characters: Sequence[str]) -> bool:
        """Whether all profiles of a task have been read."""
        return scenario in self.scenarios and all(name in self.characters for name in characters)

    def task(self, scenario_id: str, character_ids: Sequence[str], private: bool = False) -> Task:
        """Returns the task of these profiles.

        Args:
            scenario_id: id of the environment's profile.
            character_ids: ids of the agents' profiles, in seat order.
            private: whether private messages occur in the task's episodes.

        Raises:
            DamagedRecordError: one of the profiles has not been read.
        """
        return self.shared(
            (scenario_id, *character_ids, private), lambda: self._task(scenario_id, character_ids, private)
        )

    def shared(self, key: tuple[object, ...], make: Callable[[], Task]) -> Task:
        """Returns the task for ``key`` from the cache of the latest tasks, or calls ``make`` and caches the result."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = make()
            if len(self._tasks) > _MOST_TASKS:
                self._tasks.popitem(last=False)
        return task

    def _task(self, scenario_id: str, character_ids: Sequence[str], private: bool) -> Task:
        scenario = _profile(self.scenarios, scenario_id, "env_id", "environments")
        contradictions = self.contradictions(scenario_id, character_ids)
        if contradictions:
            scenario = scenario.model_copy(update={"tags": (*scenario.tags, *contradictions)})
        # ``Task`` refuses characters outside of the constraints, and the file's episodes were played all the same.
        if CASTING in contradictions:
            constraints = scenario.constraints.model_copy(update={"ages": (), "occupations": ()})
            scenario = scenario.model_copy(update={"constraints": constraints})
        if private and not scenario.private_messages:
            scenario = scenario.model_copy(update={"private_messages": True})
        characters = tuple(_profile(self.characters, name, "agent_ids", "agents") for name in character_ids)
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
        """Returns the contradictions between scenario and cast: by the task's tag, a sentence that says what is played.

        The reference code plays the environment's relationship even if the pair's profile differs, and seats the
        characters of a combination even if the environment's constraints exclude them.
        """
        kind = self.kinds.get(scenario_id, RelationshipKind.STRANGER)
        # A pair may have several profiles; it contradicts the scenario only if none of them has the scenario's kind.
        others = {tie.kind.value: None for ties in self._ties(character_ids) for tie in ties if tie.kind is not kind}
        agreeing = all(not ties or any(tie.kind is kind for tie in ties) for ties in self._ties(character_ids))
        people = [self.characters[name] for name in character_ids if name in self.characters]
        scenario = self.scenarios[scenario_id]
        # Not strict: a combination with too many or too few characters is refused in ``_task``, with its own message.
        seated = zip(range(len(scenario.seats)), people, strict=False)
        outside = [
            f"{person.name} ({person.age}, {person.occupation})"
            for seat, person in seated
            if not scenario.constraints.admits(seat, person)
        ]
        sentences = {}
        if not agreeing:
            sentences[RELATIONSHIP] = (
                f"relationship: played as {kind.value!r}, from the environment; the pair's profile has "
                f"{', '.join(others)}"
            )
        if outside:
            sentences[CASTING] = (
                f"agent_ids: {', '.join(outside)} outside the environment's ages and occupations; played without "
                "these constraints"
            )
        return sentences

    def _ties(self, ids: Sequence[str]) -> list[list[Relationship]]:
        return [self.relationships.get(frozenset(pair), []) for pair in itertools.combinations(ids, 2)]

    def _between(self, scenario_id: str, ids: Sequence[str]) -> list[Relationship]:
        """The environment's relationship for every pair, with the backstory of a profile of the same kind."""
        kind = self.kinds.get(scenario_id, RelationshipKind.STRANGER)
        pairs = zip(itertools.combinations(range(len(ids)), 2), self._ties(ids), strict=True)
        return [
            Relationship(seats=pair, kind=kind, backstory=next((tie.backstory for tie in ties if tie.kind is kind), ""))
            for pair, ties in pairs
        ]


def _profile(records: Mapping[str, _RecordT], key: str, field: str, file: str) -> _RecordT:
    if key not in records:
        raise DamagedRecordError(
            field=field, got=key, valid=records, hint=f"import it together with the file of its {file}"
        )
    return records[key]


def content_id(*parts: object) -> str:
    """Returns a hash of the parts (16 hexadecimal digits), as the id of a record that has none."""
    return hashlib.sha256(canonical_json(list(map(str, parts))).encode()).hexdigest()[:16]
