"""The library: characters, relationships, scenarios, tasks and lists of dimensions.

An item is identified by its content, so equal content is stored once. Items are immutable: they can only be archived,
and only while no other item refers to them. Lists read columns, never records::

    identity, is_new = await put(connection, SCENARIOS, scenario, tags=["pilot"])
    page = await items(connection, SCENARIOS, {"seats": 3}, tags=["pilot"], limit=20)
    scenario = (await get(connection, SCENARIOS, identity)).read()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal

from sqlalchemy import JSON, ColumnElement, Select, cast, delete, func, or_, select, type_coerce, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import tasks
from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.records import read_record
from sotopia_env.world import Scenario, Task
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.taskset import Cast
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import tables
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.engine import insert_for
from sotopia_studio.store.kinds import (
    CHARACTERS,
    DIMENSION_LISTS,
    RELATIONSHIPS,
    SCENARIOS,
    TASKS,
    DimensionList,
    Kind,
    KnownPair,
    RecordT,
)

PAGE = 50
"""The number of items on a page of a list, unless another number is requested."""
_SHORTEST_PREFIX = 6


@dataclass(frozen=True, slots=True)
class LibraryItem(Generic[RecordT]):
    """An item of the library, with its record as JSON text.

    Attributes:
        kind: its kind.
        id: sorts by time of creation.
        hash: hash of its content.
        name: display name.
        columns: values that lists show beside the name.
        tags: in alphabetical order.
        record: the exact JSON of the record.
        created: seconds since the epoch.
        archived: the time at which it was archived; ``None`` while it is in use.
    """

    kind: Kind[RecordT]
    id: str
    hash: str
    name: str
    columns: Mapping[str, Any]
    tags: tuple[str, ...]
    record: str
    created: float
    archived: float | None

    def read(self) -> RecordT:
        """Returns the record."""
        return read_record(self.kind.record, self.record, f"{self.kind.name} {self.id}")


async def put(
    connection: AsyncConnection,
    kind: Kind[RecordT],
    record: RecordT,
    *,
    tags: Iterable[str] = (),
    uses: Iterable[tuple[str, str]] = (),
) -> tuple[str, bool]:
    """Adds a record to the library, unless an item with equal content exists.

    Relationships, tasks and lists of dimensions have functions of their own, which check their references.

    Args:
        connection: a writing transaction.
        kind: the kind of the item.
        record: its content.
        tags: added to the item, whether it is new or not.
        uses: kind and id of each item that it refers to.

    Returns:
        The item's id, and whether it is new in the library (or was archived before).
    """
    return (await put_all(connection, kind, [(record, tags, uses)]))[0]


async def put_all(
    connection: AsyncConnection,
    kind: Kind[RecordT],
    entries: Sequence[tuple[RecordT, Iterable[str], Iterable[tuple[str, str]]]],
) -> list[tuple[str, bool]]:
    """Adds records, each with its tags and the items that it uses, as :func:`put` does, in few statements."""
    if not entries:
        return []
    row = kind.table
    digests = [kind.digest(record) for record, _, _ in entries]
    # Ids of one millisecond are random in their last digits; sorted ones list the items in the order of the entries.
    drawn = sorted(tables.new_id() for _ in entries)
    rows = {
        digest: {
            "id": identity,
            "hash": digest,
            "name": "",
            **kind.columns(record),
            "record": record.model_dump_json(),
            "created": time.time(),
        }
        for identity, digest, (record, _, _) in zip(drawn, digests, entries, strict=True)
    }
    # The unique hash decides, and not a query before the insert: two requests may add equal content at once.
    await connection.execute(
        insert_for(connection, row).on_conflict_do_nothing(index_elements=["hash"]), [*rows.values()]
    )
    query = select(row.c.hash, row.c.id, row.c.archived).where(row.c.hash.in_(rows))
    items = {item.hash: item for item in await connection.execute(query)}
    archived = [item.id for item in items.values() if item.archived is not None]
    if archived:
        await connection.execute(update(row).where(row.c.id.in_(archived)).values(archived=None))
    ids = [items[digest].id for digest in digests]
    await tag_store.add_all(connection, kind.name, zip(ids, (tags for _, tags, _ in entries), strict=True))
    references = [
        {"kind": used, "item": key, "user_kind": kind.name, "user": user}
        for user, (_, _, uses) in zip(ids, entries, strict=True)
        for used, key in uses
    ]
    if references:
        await connection.execute(insert_for(connection, tables.reference).on_conflict_do_nothing(), references)
    # An item that was there before has another id than the one that was drawn for it.
    fresh = {*drawn, *archived}
    return [(identity, identity in fresh) for identity in ids]


async def put_relationship(
    connection: AsyncConnection, pair: KnownPair, *, tags: Iterable[str] = ()
) -> tuple[str, bool]:
    """Adds the relationship of two characters; returns the same as :func:`put`.

    Raises:
        MissingError: a character is not in the library.
        ConflictError: the library has another relationship of these two characters.
    """
    first, second = [await get(connection, CHARACTERS, character) for character in (pair.first, pair.second)]
    # The pair is unordered: sorted ids give both orders one hash and one row.
    ids = sorted((first.id, second.id))
    pair = pair.model_copy(update={"first": ids[0], "second": ids[1]})
    present = await relationship_of(connection, *ids)
    if present is not None and present.hash != RELATIONSHIPS.digest(pair):
        raise ConflictError(
            f"{first.name} and {second.name} have a relationship already ({present.columns['kind']}, {present.id}); "
            "delete it first"
        )
    uses = [("character", character) for character in ids]
    return await put(connection, RELATIONSHIPS, pair, tags=tags, uses=uses)


async def relationship_of(connection: AsyncConnection, first: str, second: str) -> LibraryItem[KnownPair] | None:
    """Returns the relationship of two characters, in either order; ``None`` for strangers."""
    ids = sorted((first, second))
    matches = await items(connection, RELATIONSHIPS, {"first": ids[0], "second": ids[1]}, limit=1)
    return matches[0] if matches else None


async def put_task(
    connection: AsyncConnection,
    task: Task,
    *,
    tags: Iterable[str] = (),
    rules: str = "",
    dimensions: tuple[CustomDimension, ...] = (),
) -> tuple[str, bool]:
    """Adds a task with its scenario and characters.

    Args:
        connection: a writing transaction.
        task: the task.
        tags: tags of the task.
        rules: the default rules of play of its simulations, as JSON text.
        dimensions: its own dimensions, which are added as a list with the task's name.

    Returns:
        The same as :func:`put`.

    Raises:
        ConflictError: another list of dimensions has the task's name.
    """
    scenario, _ = await put(connection, SCENARIOS, task.scenario, tags=task.scenario.tags)
    characters = await put_all(connection, CHARACTERS, [(character, (), ()) for character in task.characters])
    uses = [("scenario", scenario), *(("character", identity) for identity, _ in characters)]
    own = ""
    if dimensions:
        own, _ = await put_dimensions(connection, DimensionList(name=task.id, dimensions=dimensions), tags=tags)
        uses.append(("dimension_list", own))
    identity, is_new = await put(connection, TASKS, task, tags=tags, uses=uses)
    if rules or own:
        change = update(tables.task).where(tables.task.c.id == identity)
        await connection.execute(change.values(rules=rules, dimensions=own))
    return identity, is_new


async def put_dimensions(
    connection: AsyncConnection, dimensions: DimensionList, *, tags: Iterable[str] = ()
) -> tuple[str, bool]:
    """Adds a list of dimensions; returns the same as :func:`put`.

    Raises:
        ConflictError: another list in use has this name.
    """
    same = await items(connection, DIMENSION_LISTS, {"name": dimensions.name}, limit=1)
    if same and same[0].hash != DIMENSION_LISTS.digest(dimensions):
        raise ConflictError(f"name: another list of dimensions is called {dimensions.name!r}; delete it first")
    return await put(connection, DIMENSION_LISTS, dimensions, tags=tags)


async def put_cast(
    connection: AsyncConnection, cast: Cast, scenarios: Sequence[Scenario] = (), *, tags: Iterable[str] = ()
) -> int:
    """Adds characters, their relationships and scenarios, such as the built-in ones; returns how many items are new.

    A relationship is skipped when the library has one for the same pair.
    """
    labels = list(tags)
    characters = await put_all(connection, CHARACTERS, [(character, labels, ()) for character in cast.characters])
    ids = [identity for identity, _ in characters]
    pairs = {tuple(sorted(ids[seat] for seat in tie.seats)): tie for tie in cast.relationships}
    row = tables.relationship.c
    query = select(row.first, row.second).where(row.archived.is_(None), row.first.in_(ids), row.second.in_(ids))
    for first, second in await connection.execute(query):
        pairs.pop((first, second), None)
    relationships = await put_all(
        connection,
        RELATIONSHIPS,
        [
            (
                KnownPair(first=first, second=second, kind=tie.kind, backstory=tie.backstory, facts=tie.facts),
                (),
                [("character", first), ("character", second)],
            )
            for (first, second), tie in pairs.items()
        ],
    )
    entries = [(scenario, [*labels, *scenario.tags], ()) for scenario in scenarios]
    added = [*characters, *relationships, *await put_all(connection, SCENARIOS, entries)]
    return len({identity for identity, is_new in added if is_new})


async def put_shipped(connection: AsyncConnection, name: Literal["starter", "everyday"]) -> int:
    """Adds a built-in set, tagged with its name; returns how many items are new."""
    if name == "starter":
        return await put_cast(connection, tasks.starter_cast(), tasks.starter_scenarios(), tags=[name])
    return await put_cast(connection, tasks.everyday_cast(), tasks.everyday_scenarios(), tags=[name])


async def get(
    connection: AsyncConnection, kind: Kind[RecordT], key: str, *, archived: bool = False
) -> LibraryItem[RecordT]:
    """Returns an item by its id, or by the beginning of its hash.

    Args:
        connection: a transaction.
        kind: the kind of the item.
        key: the id, or at least six characters of the hash.
        archived: whether an archived item is returned, too.

    Raises:
        MissingError: the library has no item with this id or hash.
        ConflictError: the hashes of several items begin with ``key``.
    """
    row = kind.table.c
    # A short prefix would match an item by accident, such as a key that was cut off.
    by_hash = row.hash.startswith(key, autoescape=True) if len(key) >= _SHORTEST_PREFIX else row.hash == key
    query = select(kind.table).where(or_(row.id == key, by_hash)).order_by(row.id)
    if not archived:
        query = query.where(row.archived.is_(None))
    # Two rows suffice to tell an ambiguous prefix.
    matches = await _items(connection, kind, query.limit(2))
    exact = [item for item in matches if key in (item.id, item.hash)]
    if len(exact or matches) > 1:
        raise ConflictError(f"{kind.name} {key}: the hashes of several items begin with it; use more characters")
    if not matches:
        raise MissingError(f"{kind.name} {key}: not in the library")
    return (exact or matches)[0]


async def items(
    connection: AsyncConnection,
    kind: Kind[RecordT],
    filters: Mapping[str, Any] | None = None,
    *,
    tags: Iterable[str] = (),
    text: str = "",
    after: str = "",
    limit: int = PAGE,
) -> list[LibraryItem[RecordT]]:
    """Returns a page of items in use, the newest first.

    Args:
        connection: a transaction.
        kind: the kind of the items.
        filters: values of indexed columns (``kind.filters``).
        tags: tags that the items must all have.
        text: part of the name, or of the text that describes the situation; case-insensitive.
        after: id of the last item of the previous page.
        limit: the maximum number of items to return.

    Raises:
        UnknownNameError: lists of this kind cannot be filtered by a given column.
    """
    query = _filtered(connection, select(kind.table), kind, filters, tags, text).order_by(kind.table.c.id.desc())
    if after:
        query = query.where(kind.table.c.id < after)
    return await _items(connection, kind, query.limit(limit))


async def ids_of(connection: AsyncConnection, kind: Kind[RecordT], records: Iterable[RecordT]) -> list[str]:
    """Returns the id of each record in the library; empty for one that is not there."""
    digests = [kind.digest(record) for record in records]
    row = kind.table.c
    query = select(row.hash, row.id).where(row.hash.in_(digests))
    ids = {item.hash: item.id for item in await connection.execute(query)}
    return [ids.get(digest, "") for digest in digests]


async def count(
    connection: AsyncConnection,
    kind: Kind[Any],
    filters: Mapping[str, Any] | None = None,
    *,
    tags: Iterable[str] = (),
    text: str = "",
) -> int:
    """Returns the total number of items of a list; the arguments are those of :func:`items`."""
    query = _filtered(connection, select(func.count()).select_from(kind.table), kind, filters, tags, text)
    return int((await connection.execute(query)).scalar_one())


async def archive(connection: AsyncConnection, kind: Kind[Any], key: str) -> str:
    """Archives an item and returns its id.

    Raises:
        MissingError: the library has no such item in use.
        ConflictError: other items refer to it; the message names them.
    """
    item = await get(connection, kind, key)
    row = tables.reference.c
    query = select(row.user_kind, row.user).where(row.kind == kind.name, row.item == item.id).limit(4)
    users = [f"{user_kind} {user}" for user_kind, user in await connection.execute(query)]
    if users:
        names = ", ".join(users[:3]) + (" and others" if len(users) > 3 else "")
        raise ConflictError(f"{kind.name} {item.id} is used by {names}; delete that first")
    # An archived item holds nothing back: the items that it refers to can be archived after it.
    await connection.execute(delete(tables.reference).where(row.user_kind == kind.name, row.user == item.id))
    await connection.execute(update(kind.table).where(kind.table.c.id == item.id).values(archived=time.time()))
    return item.id


async def values(connection: AsyncConnection, kind: Kind[Any], column: str) -> dict[str, int]:
    """Returns the different values of an indexed column, each with its number of items, for menus of filters."""
    row = _column(kind, column)
    query = select(row, func.count()).where(kind.table.c.archived.is_(None), row.is_not(None)).group_by(row)
    return {str(value): number for value, number in await connection.execute(query.order_by(row))}


async def cast_of(connection: AsyncConnection, characters: Sequence[str]) -> Cast:
    """Returns characters of the library, in this order, with their relationships.

    Raises:
        MissingError: a character is not in the library.
    """
    people = [await get(connection, CHARACTERS, key, archived=True) for key in characters]
    index = {item.id: number for number, item in enumerate(people)}
    row = tables.relationship.c
    query = select(tables.relationship).where(row.archived.is_(None), row.first.in_(index), row.second.in_(index))
    pairs = [item.read() for item in await _items(connection, RELATIONSHIPS, query.order_by(row.id))]
    ties = tuple(pair.between(index[pair.first], index[pair.second]) for pair in pairs)
    return Cast(characters=tuple(item.read() for item in people), relationships=ties)


def _column(kind: Kind[Any], name: str) -> Any:
    if name not in kind.filters:
        raise UnknownNameError(field="filter", got=name, valid=kind.filters)
    return kind.table.c[name]


def _filtered(
    connection: AsyncConnection,
    query: Select[Any],
    kind: Kind[Any],
    filters: Mapping[str, Any] | None,
    tags: Iterable[str],
    text: str,
) -> Select[Any]:
    row = kind.table.c
    query = query.where(row.archived.is_(None))
    for name, value in (filters or {}).items():
        query = query.where(_column(kind, name) == value)
    for tag in tags:
        tagged = select(tables.tag.c.item).where(tables.tag.c.kind == kind.name, tables.tag.c.tag == tag)
        query = query.where(row.id.in_(tagged))
    return query.where(_contains(connection, kind, text)) if text else query


def _contains(connection: AsyncConnection, kind: Kind[Any], text: str) -> ColumnElement[bool]:
    row = kind.table.c
    by_name = row.name.icontains(text, autoescape=True)
    if not kind.prose:
        return by_name
    # SQLite reads JSON in a text; a cast to its JSON would make a number of it. PostgreSQL needs the cast.
    is_sqlite = connection.dialect.name == "sqlite"
    record: ColumnElement[Any] = type_coerce(row.record, JSON) if is_sqlite else cast(row.record, JSON)
    return or_(by_name, record[kind.prose].as_string().icontains(text, autoescape=True))


async def _items(connection: AsyncConnection, kind: Kind[RecordT], query: Select[Any]) -> list[LibraryItem[RecordT]]:
    rows = (await connection.execute(query)).mappings().all()
    tags = await tag_store.of(connection, kind.name, [row["id"] for row in rows])
    common = ("id", "hash", "name", "record", "created", "archived")
    return [
        LibraryItem(
            kind=kind,
            columns={name: value for name, value in row.items() if name not in common},
            tags=tags[row["id"]],
            **{name: row[name] for name in common},
        )
        for row in rows
    ]
