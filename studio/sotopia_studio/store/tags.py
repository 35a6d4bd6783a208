"""Tags of any object in the database: free words by which people find it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.records import MOST_CHARACTERS
from sotopia_studio.store import tables
from sotopia_studio.store.engine import insert_for


async def add(connection: AsyncConnection, kind: str, item: str, tags: Iterable[str]) -> None:
    """Adds tags to an item; existing tags are kept.

    Args:
        connection: a writing transaction.
        kind: the name of the table that holds the item.
        item: its id.
        tags: words without line breaks.

    Raises:
        InvalidValueError: a tag is empty or longer than a name may be.
    """
    await add_all(connection, kind, [(item, tags)])


async def add_all(connection: AsyncConnection, kind: str, tags: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Adds tags to several items of a kind, given as pairs of an item's id and its tags; as :func:`add`."""
    rows = [{"kind": kind, "item": item, "tag": _checked(tag)} for item, words in tags for tag in words]
    if rows:
        await connection.execute(insert_for(connection, tables.tag).on_conflict_do_nothing(), rows)


def _checked(tag: str) -> str:
    if not tag.strip() or len(tag) > MOST_CHARACTERS or not tag.isprintable():
        expected = f"1 to {MOST_CHARACTERS} characters on one line"
        raise InvalidValueError(field="tag", expected=expected, got=tag)
    return tag.strip()


async def remove(connection: AsyncConnection, kind: str, item: str, tags: Collection[str]) -> None:
    """Removes tags from an item."""
    row = tables.tag.c
    await connection.execute(delete(tables.tag).where(row.kind == kind, row.item == item, row.tag.in_(tags)))


async def of(connection: AsyncConnection, kind: str, items: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Returns the tags of each of these items, in alphabetical order."""
    row = tables.tag.c
    query = select(row.item, row.tag).where(row.kind == kind, row.item.in_(items)).order_by(row.tag)
    # Items without tags get an entry, so callers can index by any id they have asked for.
    tags: dict[str, tuple[str, ...]] = dict.fromkeys(items, ())
    for item, tag in await connection.execute(query):
        tags[item] += (tag,)
    return tags


async def names(connection: AsyncConnection, kind: str, without: Select[tuple[str]] | None = None) -> dict[str, int]:
    """Returns all tags of a kind of item, each with the number of items that have it, except for those ``without``."""
    column = tables.tag.c
    query = (
        select(column.tag, func.count().label("number"))
        .where(column.kind == kind)
        .group_by(column.tag)
        .order_by(column.tag)
    )
    if without is not None:
        query = query.where(column.item.not_in(without))
    return {row.tag: row.number for row in await connection.execute(query)}
