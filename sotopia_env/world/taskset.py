"""Many tasks together: reading and checking files, splitting by scenario, drawing tasks from scenarios and characters.

A task file is a JSON array of tasks, JSON Lines with one task a line, or YAML: a list of tasks, or an object with
:data:`YAML_KEYS`. A *cast* (characters and their known relationships) with scenarios is turned into tasks by
:func:`sample_tasks`.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from pydantic import BaseModel, Field, ValidationError, model_validator

from sotopia_env.foundation.errors import (
    ConstraintError,
    InvalidTaskError,
    InvalidValueError,
    UnknownNameError,
    Where,
    check_whole,
)
from sotopia_env.foundation.files import read_text, write_text_atomically
from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.foundation.records import MOST_CHARACTERS, Record
from sotopia_env.foundation.validation import invalid
from sotopia_env.world.custom_dimensions import custom_dimensions_of, with_dimensions
from sotopia_env.world.interview import GoalTest, Interview, Question
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task

if TYPE_CHECKING:
    from sotopia_env.foundation.yaml_text import YamlDocument

Split = Literal["train", "dev", "test"]
YAML_SUFFIXES = (".yaml", ".yml")
YAML_KEYS = ("tasks", "scenarios", "rules", "dimensions")
"""Parts of a YAML file: tasks or scenarios, fields of ``Rules``, and the dimensions that judges score in addition."""
_SHARES: dict[Split, float] = {"train": 0.8, "dev": 0.1, "test": 0.1}
_RecordT = TypeVar("_RecordT", bound=BaseModel)


class TaskSet(Sequence[Task]):
    """An immutable, ordered collection of tasks with unique ids."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Keeps ``tasks`` in order.

        Raises:
            InvalidTaskError: two tasks share an id, or one of them is not a task.
        """
        if isinstance(tasks, str) or not isinstance(tasks, Iterable):
            raise InvalidTaskError(field="tasks", expected="a sequence of tasks", got=tasks)
        self._tasks = tuple(tasks)
        ids: set[str] = set()
        for index, task in enumerate(self._tasks):
            if not isinstance(task, Task):
                raise InvalidTaskError(field="tasks", expected=f"a Task at index {index}", got=task)
            if task.id in ids:
                raise InvalidTaskError("task ids must be unique", field="id", got=task.id)
            ids.add(task.id)

    @classmethod
    def load(cls, path: str | Path) -> TaskSet:
        """Reads a ``.json`` array, ``.jsonl`` lines or a ``.yaml`` file of tasks.

        Raises:
            InvalidTaskError: names the file, the line or index, the field, the value and the nearest valid name; or the
                file holds no task at all.
        """
        if not isinstance(path, str | PathLike):
            raise InvalidValueError(field="path", expected="the path of a task file", got=path)
        tasks = [task for _, task in read_records(Path(path), Task)]
        if not tasks:
            raise InvalidTaskError(expected="at least one task", where=path)
        return cls(tasks)

    def save(self, path: str | Path) -> None:
        """Writes the tasks as JSON Lines, atomically."""
        write_text_atomically(Path(path), "".join(task.model_dump_json() + "\n" for task in self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> TaskSet: ...
    def __getitem__(self, index: int | slice) -> Task | TaskSet:
        return TaskSet(self._tasks[index]) if isinstance(index, slice) else self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __repr__(self) -> str:
        return f"TaskSet({len(self)} tasks, {len({t.scenario.id for t in self})} scenarios, {self.content_hash})"

    def get(self, task_id: str) -> Task:
        """Returns the task with this id, or raises :class:`UnknownNameError` naming the nearest one."""
        for task in self._tasks:
            if task.id == task_id:
                return task
        raise UnknownNameError(field="task", got=task_id, valid=[task.id for task in self._tasks])

    @cached_property
    def content_hash(self) -> str:
        """Hash of the tasks' contents, independent of their order (16 hex digits)."""
        hashes = sorted(task.content_hash for task in self._tasks)
        return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]

    def split(self, name: Split, shares: Mapping[Split, float] | None = None) -> TaskSet:
        """Returns the tasks of one split; a scenario's tasks never fall into two splits.

        Membership depends on the scenario id alone, so adding tasks moves no other task.

        Args:
            name: ``"train"``, ``"dev"`` or ``"test"``.
            shares: expected share of scenarios per split, summing to 1; 0.8 / 0.1 / 0.1 by default.

        Raises:
            UnknownNameError: ``name`` is not a split.
            InvalidValueError: the shares are not three that sum to 1.
        """
        parts = dict(_SHARES if shares is None else shares)
        if set(parts) != set(_SHARES) or abs(sum(parts.values()) - 1) > 1e-9 or min(parts.values()) < 0:
            raise InvalidValueError(field="shares", expected="train, dev and test summing to 1", got=parts)
        if not isinstance(name, str) or name not in parts:
            raise UnknownNameError(field="split", got=name, valid=parts)
        return TaskSet([task for task in self._tasks if _split_of(task.scenario.id, parts) == name])

    def sample(self, n: int, seed: int) -> TaskSet:
        """Returns ``n`` different tasks, the same for the same seed.

        Raises:
            InvalidValueError: there are fewer than ``n`` tasks, or ``n`` is not a whole number.
        """
        check_whole("n", n, 0, len(self))
        return TaskSet(random.Random(seed).sample(self._tasks, n))


def _split_of(scenario_id: str, shares: Mapping[Split, float]) -> Split:
    # The first 64 bits of the hash as a number in [0, 1), the same on every machine.
    point = int.from_bytes(hashlib.sha256(scenario_id.encode()).digest()[:8], "big") / 2**64
    if point < shares["train"]:
        return "train"
    return "dev" if point < shares["train"] + shares["dev"] else "test"


class Cast(Record):
    """Characters who can be seated, with their relationships; unlisted pairs are strangers."""

    characters: tuple[Character, ...]
    relationships: tuple[Relationship, ...] = Field(
        default=(), description="``seats`` are indices into ``characters`` here"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        count = len(self.characters)
        pairs: set[tuple[int, int]] = set()
        for number, pair in enumerate(relationship.seats for relationship in self.relationships):
            where = f"relationships.{number}.seats"
            # Pairs are stored as (i, j) with i < j.
            if pair[1] >= count:
                raise InvalidValueError(
                    field=where, expected=f"indices below {count}, the number of characters", got=pair
                )
            if pair in pairs:
                raise InvalidValueError(f"the pair {pair} occurs twice", field=where, hint="keep one")
            pairs.add(pair)
        return self

    @cached_property
    def _by_pair(self) -> Mapping[tuple[int, int], Relationship]:
        return {relationship.seats: relationship for relationship in self.relationships}

    def between(self, first: int, second: int) -> Relationship:
        """The relationship of two characters by index, in either order."""
        pair = (min(first, second), max(first, second))
        return self._by_pair.get(pair) or Relationship(seats=pair, kind=RelationshipKind.STRANGER)


def casting_id(scenario_id: str, number: int) -> str:
    """Returns the id of a scenario's casting: ``scenario/number``.

    Raises:
        InvalidTaskError: it would be longer than an id may be.
    """
    task_id = f"{scenario_id}/{number}"
    if len(task_id) > MOST_CHARACTERS:
        raise InvalidTaskError(
            field="id",
            expected=f"at most {MOST_CHARACTERS} characters with the number of the casting",
            got=task_id,
            hint="shorten the id of the scenario",
        )
    return task_id


def seat_characters(scenario: Scenario, cast: Cast, seating: Sequence[int], task_id: str) -> Task:
    """Returns the task in which character ``seating[i]`` of the cast sits in seat ``i``."""
    relationships = []
    for i, j in itertools.combinations(range(len(seating)), 2):
        # Relationships are symmetric, so only the indices change: from the cast's to seats.
        tie = cast.between(seating[i], seating[j])
        relationships.append(tie.model_copy(update={"seats": (i, j)}))
    return Task(
        id=task_id,
        scenario=scenario,
        characters=tuple(cast.characters[index] for index in seating),
        relationships=tuple(relationships),
    )


def admissible_seatings(scenario: Scenario, cast: Cast) -> list[tuple[int, ...]]:
    """All seatings of the cast that satisfy the scenario's constraints, in index order."""
    constraints = scenario.constraints
    # Tested once for all pairs that the cast does not list.
    strangers = constraints.admits_pair(Relationship(seats=(0, 1), kind=RelationshipKind.STRANGER))
    admitted = {relationship.seats: constraints.admits_pair(relationship) for relationship in cast.relationships}

    def fit(first: int, second: int) -> bool:
        return admitted.get((first, second) if first < second else (second, first), strangers)

    # Seat by seat, dropping misfits at once: all combinations of a large cast would not fit into memory.
    seatings: list[tuple[int, ...]] = [()]
    for seat in range(len(scenario.seats)):
        indices = [index for index, character in enumerate(cast.characters) if constraints.admits(seat, character)]
        seatings = [
            (*seating, index)
            for seating in seatings
            for index in indices
            if index not in seating and all(fit(other, index) for other in seating)
        ]
    return seatings


def draw_seatings(scenario: Scenario, cast: Cast, count: int, generator: random.Random) -> list[tuple[int, ...]]:
    """Draws ``count`` different seatings of the cast that satisfy the scenario's constraints.

    Prefers a different set of people to the same people in other seats, and people who are not in any seating yet.

    Raises:
        ConstraintError: the constraints admit fewer; the message says for which scenario, and how many.
    """
    seatings = admissible_seatings(scenario, cast)
    if len(seatings) < count:
        raise ConstraintError(
            f"{count} castings asked for, but the constraints of {scenario.id!r} admit {len(seatings)} of this cast of "
            f"{len(cast.characters)} characters",
            field="constraints",
            hint=_fact_hint(scenario, cast),
        )
    # ``min`` takes the first of equally good seatings, so the shuffle decides between them.
    generator.shuffle(seatings)
    groups: Counter[frozenset[int]] = Counter()
    uses = [0] * len(cast.characters)

    def repetition(seating: tuple[int, ...]) -> tuple[int, int]:
        # First how often these people have met, then how often each of them was seated.
        return groups.get(frozenset(seating), 0), sum(map(uses.__getitem__, seating))

    draws: list[tuple[int, ...]] = []
    for _ in range(count):
        draws.append(min(seatings, key=repetition))
        seatings.remove(draws[-1])
        groups[frozenset(draws[-1])] += 1
        for index in draws[-1]:
            uses[index] += 1
    return draws


def sample_tasks(scenarios: Sequence[Scenario], cast: Cast, per_scenario: int, seed: int) -> TaskSet:
    """Draws ``per_scenario`` different castings for each scenario (SOTOPIA uses 5 pairs for each of 90 scenarios).

    Raises:
        ConstraintError: a scenario's constraints admit fewer castings; the message says which scenario, and how many.
    """
    tasks = []
    for scenario in scenarios:
        # A generator per scenario: adding or removing a scenario leaves the castings of the others unchanged.
        generator = random.Random(f"{seed}:{scenario.id}")
        for number, seating in enumerate(draw_seatings(scenario, cast, per_scenario, generator)):
            tasks.append(seat_characters(scenario, cast, seating, casting_id(scenario.id, number)))
    return TaskSet(tasks)


def _fact_hint(scenario: Scenario, cast: Cast) -> str:
    """The nearest name for a fact that no relationship of the cast states; empty where all are stated."""
    names = sorted({name for relationship in cast.relationships for name in relationship.facts})
    unknown = [name for name in scenario.constraints.facts if name not in names]
    return str(ConstraintError(field="facts", got=unknown[0], valid=names)) if unknown else ""


# Names of fields in task files; used only to suggest the nearest one for a misspelt name.
_MODELS = (Task, Scenario, Character, Relationship, Cast, Interview, Question, GoalTest)
FIELD_NAMES = sorted(
    {name for model in _MODELS for name in model.model_fields}
    | {"goals", "hints", "private_info", "private_data", "ages", "occupations"}
    | {"protocol", "issues", "worth", "needs", "standing", "quorum", "veto", "options", "rule", "secret", "candidates"}
    | {"answer", "tries", "kind", "low", "high", "step", "unit", "count", "constant", "per_unit", "each", "table"}
    | {"no_agreement", "no_decision", "per_turn", "right", "wrong", "none", "terms", "value"}
)


RECORD_KEYS = ("scenario", "ties", "context", "characters")
"""Fields that identify a task, a template, a scenario and a cast: each is missing in the kinds before it."""
_FIELD_SEPARATORS = re.compile(r"[.\[\]]+")


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a record in a file.

    Attributes:
        where: the file, with the line or the number of the record.
        document: the YAML text that holds the record.
        path: the path of the record in ``document``.
    """

    where: Where
    document: YamlDocument | None = None
    path: tuple[str | int, ...] = ()

    def of(self, field: str) -> Where:
        """Returns the location of a field of the record, by a dotted path: in YAML with its own line."""
        if self.document is None:
            return self.where
        return Where(self.where.file, self.document.line((*self.path, *_FIELD_SEPARATORS.split(field))))


def read_records(
    path: Path, record: type[_RecordT], names: Iterable[str] = FIELD_NAMES
) -> Iterator[tuple[Location, _RecordT]]:
    """Yields location and record from a file of JSON, JSON Lines or YAML.

    ``names`` are the valid names of fields, for hints at misspelt ones.

    Raises:
        InvalidTaskError: the file is missing, is not JSON, or holds something that is not a valid record.
    """
    for location, raw in read_values(path):
        yield location, to_record(raw, record, location, names)


def to_record(raw: Any, record: type[_RecordT], location: Location, names: Iterable[str] = FIELD_NAMES) -> _RecordT:
    """Returns a value as a record; raises as :func:`read_records` does."""
    try:
        return record.model_validate(raw)
    except ValidationError as error:
        problem = invalid(error, names, raw)
        raise InvalidTaskError.of(problem, where=location.of(problem.field)) from None


def read_values(path: Path, refused: list[str] | None = None) -> Iterator[tuple[Location, Any]]:
    """Yields location and value from a file of JSON, JSON Lines or YAML; raises as :func:`read_records` does.

    A ``.json`` or ``.yaml`` file may also hold one record alone. If ``refused`` is a list, lines that are not
    JSON are skipped, and their errors are appended to it.
    """
    text = read_text(path, InvalidTaskError)
    if path.suffix in YAML_SUFFIXES:
        yield from _yaml_values(text, path)
    elif path.suffix == ".json":
        raw = parse_json(text, path, InvalidTaskError)
        # A file may hold one record without the brackets of an array.
        items = [raw] if _is_record(raw) else raw
        if not isinstance(items, list):
            raise InvalidTaskError(expected="a JSON array of records", got=type(raw), where=path)
        yield from (
            (Location(Where(path, record=f"record {index}")), item) for index, item in enumerate(items, start=1)
        )
    elif path.suffix == ".jsonl":
        # Not splitlines(): it also splits at characters such as U+2028, which may occur inside a JSON string.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    value = parse_json(line, Where(path, number), InvalidTaskError)
                except InvalidTaskError as error:
                    if refused is None:
                        raise
                    refused.append(str(error))
                    continue
                yield Location(Where(path, number)), value
    else:
        raise InvalidTaskError(expected="a .json, .jsonl or .yaml file", got=path.suffix or "no suffix", where=path)


def _is_record(raw: Any) -> bool:
    return isinstance(raw, dict) and any(key in raw for key in RECORD_KEYS)


def _yaml_values(text: str, path: Path) -> Iterator[tuple[Location, Any]]:
    # Imported lazily: only YAML files need it.
    from sotopia_env.foundation.yaml_text import parse_document

    try:
        document = parse_document(text, path)
    except InvalidValueError as error:
        raise InvalidTaskError.of(error) from None
    raw = document.value

    def location(*keys: str | int) -> Location:
        return Location(Where(path, document.line(keys)), document, keys)

    if _is_record(raw):
        yield location(), raw
        return
    if isinstance(raw, dict) and (unknown := [str(key) for key in raw if key not in YAML_KEYS]):
        where = location(unknown[0]).where
        raise InvalidTaskError("unknown key", field=unknown[0], got=unknown[0], valid=YAML_KEYS, where=where)
    try:
        entries = raw.get("dimensions") if isinstance(raw, dict) else None
        own = () if entries in (None, []) else custom_dimensions_of(entries, path)
    except InvalidValueError as error:
        raise InvalidTaskError.of(error) from None
    lists = {(key,): raw[key] for key in YAML_KEYS[:2] if key in raw} if isinstance(raw, dict) else {(): raw}
    # An object with neither key fails below, like a document that is not a list.
    for keys, items in lists.items() or [((), None)]:
        if not isinstance(items, list):
            raise InvalidTaskError(expected="a list of records", got=type(items), where=location(*keys).where)
        yield from ((location(*keys, index), with_dimensions(item, own)) for index, item in enumerate(items))


__all__ = [
    "RECORD_KEYS",
    "Cast",
    "Location",
    "Split",
    "TaskSet",
    "admissible_seatings",
    "canonical_json",
    "casting_id",
    "draw_seatings",
    "read_records",
    "read_values",
    "sample_tasks",
    "seat_characters",
    "to_record",
]
