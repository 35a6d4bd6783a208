"""Importers of SOTOPIA's relationships, combinations of profiles, and lists of environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    ForeignValue,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    converted,
    one_line,
    read_literal,
)
from sotopia_env.importers.formats.profiles import (
    RELATIONSHIPS,
    RelationshipNumber,
    Words,
    character_id,
    id_field,
    list_literal,
)
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Task


class RelationshipProfile(Foreign):
    """The relationship of two characters."""

    pk: Identity = id_field("relationship_id")
    agent_1_id: Identity = Field(validation_alias=AliasChoices("agent_1_id", "agent1_id"))
    agent_2_id: Identity = Field(validation_alias=AliasChoices("agent_2_id", "agent2_id"))
    relationship: RelationshipNumber
    background_story: Text = ""
    tag: Text = ""


class Combination(Foreign):
    """A scenario with the characters in its seats."""

    pk: Identity = id_field("combo_id")
    env_id: Identity
    agent_ids: Annotated[tuple[Identity, ...], BeforeValidator(list_literal)]


class EnvironmentList(Foreign):
    """Scenario ids, which may occur twice, with the seat of the tested model for each."""

    one_of = (("name", "agent_index"),)

    pk: Identity = id_field("list_id")
    name: Text = ""
    environments: Words
    agent_index: Annotated[tuple[RelationshipNumber, ...] | None, BeforeValidator(read_literal)] = None


class NamedSplit(ForeignValue[list[str]]):
    """The scenario ids of a named list."""


# The ids of the reference code are ULIDs. Any object of lists of texts is valid as :class:`NamedSplit`.
_Ulid = Annotated[str, Field(pattern="^[0-9A-HJKMNP-TV-Z]{26}$")]


class _ReferenceSplit(ForeignValue[Annotated[list[_Ulid], Field(min_length=1)]]):
    """The scenario ids of a named list of the reference code."""


def read_relationship(profile: RelationshipProfile, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the relationship of two characters of the library; ``seats`` are their positions in it."""
    pair = (profile.agent_1_id, profile.agent_2_id)
    order = list(library.characters)
    for field, name in zip(("agent_1_id", "agent_2_id"), pair, strict=True):
        if name not in library.characters:
            hint = "import the relationships together with the agents' file"
            raise DamagedRecordError(field=field, got=name, valid=order, hint=hint)
    if pair[0] == pair[1]:
        raise DamagedRecordError(field="agent_1_id, agent_2_id", expected="two different agents", got=pair)
    kind = RELATIONSHIPS[profile.relationship]
    first, second = sorted(order.index(name) for name in pair)

    # ``Relationship`` refuses a backstory between strangers, but SOTOPIA's files have some.
    story = "" if kind is RelationshipKind.STRANGER else one_line(profile.background_story)
    tie = converted(lambda: Relationship(seats=(first, second), kind=kind, backstory=story))
    ties = library.relationships.setdefault(frozenset(pair), [])
    ties.append(tie)
    yield Product(ProductKind.RELATIONSHIP, tie, () if len(ties) == 1 else (_twice(pair, ties),))


def _twice(pair: tuple[str, str], ties: Sequence[Relationship]) -> str:
    kinds = ", ".join(tie.kind.value for tie in ties)
    return (
        f"agent_1_id, agent_2_id: {' and '.join(pair)} occur again ({kinds}); tasks use the kind that their "
        f"environment has, the cast uses the first"
    )


def _relationship(entry: tuple[Relationship, Sequence[Character]]) -> dict[str, Any]:
    """The foreign record of a relationship; ``entry`` holds the characters of its cast too, for their ids."""
    record, characters = entry
    first, second = (character_id(characters[seat]) for seat in record.seats)
    return {
        "pk": content_id(first, second),
        "agent_1_id": first,
        "agent_2_id": second,
        "relationship": RELATIONSHIPS.index(record.kind),
        "background_story": record.backstory or None,
        "tag": "",
    }


def read_combination(combination: Combination, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a combination of profiles of the library."""
    pk = combination.pk or item.key
    key = (combination.env_id, combination.agent_ids)
    if pk:
        library.combinations.setdefault(key, pk)
    task = converted(lambda: library.task(combination.env_id, combination.agent_ids))
    library.order.append(key)
    notes = library.contradictions(combination.env_id, combination.agent_ids).values()
    # The cached task may have the id of an earlier combination of the same profiles.
    task = task.model_copy(update={"id": pk or task.id})
    yield Product(ProductKind.TASK, task, tuple(notes))


def _combination(task: Task) -> dict[str, Any]:
    return {"pk": task.id, "env_id": task.scenario.id, "agent_ids": [character_id(c) for c in task.characters]}


def read_list(profile: EnvironmentList, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a list of scenarios as ``{"name", "entries": [{"scenario", "seat"}]}``; an unknown ``seat`` is null."""
    seats = profile.agent_index
    if seats is not None and len(seats) != len(profile.environments):
        expected = f"{len(profile.environments)}, one per environment"
        raise DamagedRecordError(field="agent_index", expected=expected, got=len(seats))
    for name in profile.environments:
        # A list may be imported alone; beside scenarios, an id that is not among them is a mistake.
        if library.scenarios and name not in library.scenarios:
            raise DamagedRecordError(field="environments", got=name, valid=library.scenarios)
    entries = [
        {"scenario": name, "seat": None if seats is None else seats[n]} for n, name in enumerate(profile.environments)
    ]
    yield Product(ProductKind.LIST, {"name": profile.name, "entries": entries})


def read_split(split: NamedSplit, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a named list of scenarios in the form of :func:`read_list`; the scenarios need not be imported."""
    entries = [{"scenario": name, "seat": None} for name in split.root]
    absent = sum(name not in library.scenarios for name in split.root) if library.scenarios else 0
    notes = (f"environments: {absent} of {len(entries)} are not among the imported ones",) if absent else ()
    yield Product(ProductKind.LIST, {"name": item.key, "entries": entries}, notes)


def _list(value: Mapping[str, Any]) -> dict[str, Any]:
    seats = [entry["seat"] for entry in value["entries"]]
    return {
        "pk": content_id(value["name"]),
        "name": value["name"],
        "environments": [entry["scenario"] for entry in value["entries"]],
        "agent_index": None if None in seats else [str(seat) for seat in seats],
    }


RELATIONSHIP_PROFILES = Format(
    "sotopia-relationships",
    "SOTOPIA RelationshipProfile",
    ProductKind.RELATIONSHIP,
    RelationshipProfile,
    read_relationship,
    _relationship,
)
COMBINATIONS = Format(
    "sotopia-combos",
    "SOTOPIA EnvAgentComboStorage: a task each",
    ProductKind.TASK,
    Combination,
    read_combination,
    _combination,
)
LISTS = Format(
    "sotopia-lists",
    "SOTOPIA EnvironmentList",
    ProductKind.LIST,
    EnvironmentList,
    read_list,
    _list,
)
SPLITS = Format(
    "sotopia-splits",
    "SOTOPIA-π used_env.json: names with lists of environments",
    ProductKind.LIST,
    NamedSplit,
    read_split,
    lambda record: {record["name"]: [entry["scenario"] for entry in record["entries"]]},
    telling=_ReferenceSplit,
)
CASTING = (RELATIONSHIP_PROFILES, COMBINATIONS, LISTS, SPLITS)
"""The formats, each after those that it refers to."""
