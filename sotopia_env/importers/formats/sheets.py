"""Importers of tables that people write: a row for each person, and a row for each scenario or task.

Columns for a seat end with its number, as in ``agent_0``: ``goal_0``, ``goal_1``, ``private_info_1``. A row with
``character_0``, ``character_1`` (names or ids of people that are imported with it) is a task, any other one a scenario.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    converted,
    one_line,
    plain_name,
)
from sotopia_env.importers.formats.profiles import character_id, whole
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import (
    BigFive,
    Character,
    Constraints,
    Relationship,
    RelationshipKind,
    Scenario,
    Seat,
    Task,
)

_TRAITS = tuple(BigFive.model_fields)
_BY_SEAT = ("goal", "private_info", "hint", "character")
_LEAST_SEATS, _MOST_SEATS = 2, 20
_SIMILAR = 0.8  # similarity from which an unknown column counts as a misspelt one


class PersonRow(Foreign):
    """A person; further columns become private attributes, which nobody else reads."""

    one_of = (("name", "first_name"), ("age", "gender", "pronouns", "occupation"))

    id: Identity | None = None
    name: Text = ""
    first_name: Text = ""
    last_name: Text = ""
    age: Annotated[int | None, BeforeValidator(whole)] = None
    gender: Text = ""
    pronouns: Text = ""
    occupation: Text = ""
    public_info: Text = ""
    personality: Text = ""
    secret: Text = ""


def read_person(row: PersonRow, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the person of a row."""
    name = plain_name(row.name)
    first, _, last = name.partition(" ")
    columns = {str(column): value for column, value in (row.model_extra or {}).items() if value is not None}
    extra = {column.replace("_", " "): one_line(str(value)) for column, value in columns.items()}
    traits = {name: extra.pop(name).casefold() for name in _TRAITS if name in extra}
    record = converted(
        lambda: Character(
            id=one_line(row.id or ""),
            first_name=row.first_name or first,
            last_name=row.last_name or last,
            age=row.age,
            gender=one_line(row.gender),
            pronouns=one_line(row.pronouns),
            occupation=one_line(row.occupation),
            public_info=one_line(row.public_info),
            personality=one_line(row.personality),
            secret=one_line(row.secret),
            big_five=BigFive.model_validate(traits) if traits else None,
            private_attributes=extra,
        )
    )
    library.add(library.characters, character_id(record), record)
    notes = (
        [f"further columns: {', '.join(extra)} are private attributes, which only this person reads"] if extra else []
    )
    notes += [f"name: {row.name!r} is read as {name!r}"] if name != row.name else []
    yield Product(ProductKind.CHARACTER, record, tuple(notes))


class SituationRow(Foreign):
    """A scenario, or a task if it names its characters; columns of seats after the second are further fields."""

    id: Identity | None = None
    context: str
    goal_0: str
    goal_1: str
    relationship: Text = ""
    tags: Text = ""
    source: Text = ""
    max_turns: Annotated[int | None, BeforeValidator(whole)] = None

    def column(self, name: str, seat: int) -> str:
        """The text of a seat's column; empty if there is none."""
        value = getattr(self, f"{name}_{seat}", None)
        return "" if value is None else one_line(str(value))


def read_situation(row: SituationRow, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the scenario or task of a row."""
    count = next((seat for seat in range(_LEAST_SEATS, _MOST_SEATS) if not row.column("goal", seat)), _MOST_SEATS)
    notes = _further_columns(row, count)
    kind = _kind(row.relationship)
    scenario = converted(lambda: _scenario(row, count, kind))
    names = [row.column("character", seat) for seat in range(count)]
    if not any(names):
        library.add(library.scenarios, scenario.id, scenario)
        yield Product(ProductKind.SCENARIO, scenario, notes)
        return
    characters = tuple(_character(library, seat, name) for seat, name in enumerate(names))
    ties = tuple(
        Relationship(seats=pair, kind=kind or RelationshipKind.STRANGER)
        for pair in itertools.combinations(range(count), 2)
    )
    task = converted(lambda: Task(id=scenario.id, scenario=scenario, characters=characters, relationships=ties))
    yield Product(ProductKind.TASK, task, notes)


def _further_columns(row: SituationRow, seats: int) -> tuple[str, ...]:
    """A note on the columns that are left out; raises :class:`DamagedRecordError` for one that seems misspelt."""
    valid = [f"{name}_{seat}" for name in _BY_SEAT for seat in range(seats)]
    unknown = [str(name) for name, value in (row.model_extra or {}).items() if str(name) not in valid and value]
    for name in unknown:
        if difflib.get_close_matches(name, [*valid, *SituationRow.model_fields], n=1, cutoff=_SIMILAR):
            hint = f"columns of seats are {', '.join(_BY_SEAT)} with a number from 0 to {seats - 1}"
            valid_names = [*valid, *SituationRow.model_fields]
            raise DamagedRecordError("unknown column", field=name, got=name, valid=valid_names, hint=hint)
    return (f"further columns: {', '.join(unknown)} are left out",) if unknown else ()


def _kind(word: str) -> RelationshipKind | None:
    if not word.strip():
        return None
    name = word.strip().casefold().replace(" ", "-")
    kinds = [kind.value for kind in RelationshipKind]
    if name not in kinds:
        raise DamagedRecordError(field="relationship", got=word, valid=kinds)
    return RelationshipKind(name)


def _scenario(row: SituationRow, seats: int, kind: RelationshipKind | None) -> Scenario:
    goals = [row.column("goal", seat) for seat in range(seats)]
    return Scenario(
        id=row.id or content_id(row.context, *goals),
        context=row.context,
        seats=tuple(
            Seat(
                goals=(goal,),
                private_info=row.column("private_info", seat),
                hints=tuple(filter(None, (row.column("hint", seat),))),
            )
            for seat, goal in enumerate(goals)
        ),
        constraints=Constraints(relationships=() if kind is None else (kind,)),
        tags=tuple(filter(None, map(str.strip, one_line(row.tags).split(";")))),
        source=one_line(row.source),
        max_turns=row.max_turns,
    )


def _character(library: Library, seat: int, name: str) -> Character:
    names: Sequence[Any] = [*library.characters, *(person.name for person in library.characters.values())]
    person = library.characters.get(name)
    person = person or next((other for other in library.characters.values() if other.name == name), None)
    if person is None:
        hint = "import the tasks together with the table of their people"
        raise DamagedRecordError(field=f"character_{seat}", got=name, valid=names, hint=hint)
    return person


SHEETS = (
    Format("people", "tables of people: name, age, gender, pronouns, …", ProductKind.CHARACTER, PersonRow, read_person),
    Format(
        "situations",
        "tables of scenarios, or tasks: context, goal_0, goal_1, …",
        ProductKind.SCENARIO,
        SituationRow,
        read_situation,
    ),
)
