"""The kinds of items in the library: the record of each, and the columns by which lists show and filter it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, Field, model_validator
from sqlalchemy import Table

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import Line, Name, Record, TextMap
from sotopia_env.world import Character, Relationship, Scenario, Task
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.scenario import RelationshipKind
from sotopia_studio.store import tables

RecordT = TypeVar("RecordT", bound=BaseModel)


class KnownPair(Record):
    """How two characters of the library are related; the pair is unordered.

    Attributes:
        first: id of a character.
        second: id of the other one.
        kind: the kind of the relationship.
        backstory: known to these two only.
        facts: the backstory as key-value pairs, for the constraints of scenarios.
    """

    first: Name
    second: Name
    kind: RelationshipKind
    backstory: Line = ""
    facts: TextMap = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.first == self.second:
            raise InvalidValueError(field="second", expected="another character than the first", got=self.second)
        # Building the relationship validates kind, backstory and facts by the rules of the world.
        self.between(0, 1)
        return self

    def between(self, first: int, second: int) -> Relationship:
        """Returns the same relationship between two seats, or between two characters of a cast by index."""
        seats = (min(first, second), max(first, second))
        return Relationship(seats=seats, kind=self.kind, backstory=self.backstory, facts=self.facts)


class DimensionList(Record):
    """Dimensions that a researcher defines and a judge scores together.

    Attributes:
        name: the name of the list, unique among the lists in use.
        dimensions: each with its range and the instruction for the judge.
    """

    name: Name
    dimensions: tuple[CustomDimension, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [dimension.name for dimension in self.dimensions]
        if len(set(names)) < len(names):
            raise InvalidValueError("names must differ", field="dimensions", got=names)
        return self


def _digest(record: BaseModel) -> str:
    return hashlib.sha256(canonical_json(record.model_dump(mode="json")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Kind(Generic[RecordT]):
    """A kind of item.

    Attributes:
        name: the name of the kind and of its table.
        table: holds the items.
        record: the class of its records.
        columns: computes from a record the columns that lists show and filter by.
        digest: computes the hash of a record's content.
        prose: the path in the record of the text that a search reads beside the name.
    """

    name: str
    table: Table
    record: type[RecordT]
    columns: Callable[[RecordT], dict[str, Any]]
    digest: Callable[[RecordT], str] = _digest
    prose: tuple[str, ...] = ()

    @property
    def filters(self) -> tuple[str, ...]:
        """The columns that a list can be filtered by."""
        # Only indexed columns: a filter by any other column would read the whole table.
        return tuple(column.name for column in self.table.columns if column.index)

    def value(self, column: str, text: str) -> str | int:
        """Returns the value of a filter that was written as text, as the column holds it.

        Raises:
            InvalidValueError: the column holds numbers, and ``text`` is not one.
        """
        if self.table.c[column].type.python_type is not int:
            return text
        if not text.isdecimal() or len(text) > 6:
            raise InvalidValueError(field=column, expected="a whole number", got=text)
        return int(text)


CHARACTERS: Kind[Character] = Kind(
    "character",
    tables.character,
    Character,
    lambda record: {
        "name": record.name,
        "age": record.age,
        "gender": record.gender,
        "occupation": record.occupation,
    },
)
SCENARIOS: Kind[Scenario] = Kind(
    "scenario",
    tables.scenario,
    Scenario,
    lambda record: {
        "name": record.id,
        "seats": len(record.seats),
        "protocol": record.outcome.protocol.kind if record.outcome else "",
        "source": record.source,
    },
    prose=("context",),
)
RELATIONSHIPS: Kind[KnownPair] = Kind(
    "relationship",
    tables.relationship,
    KnownPair,
    lambda record: {"first": record.first, "second": record.second, "kind": record.kind.value},
)
TASKS: Kind[Task] = Kind(
    "task",
    tables.task,
    Task,
    lambda record: {"name": record.id, "scenario": record.scenario.id, "seats": len(record.agents)},
    # A task has a hash of its own, which records of episodes contain; the library must agree with it.
    lambda record: record.content_hash,
    prose=("scenario", "context"),
)
DIMENSION_LISTS: Kind[DimensionList] = Kind(
    "dimension_list", tables.dimension_list, DimensionList, lambda record: {"name": record.name}
)
