"""The library of the studio, on both databases: equal content once, filters, pages, archived, references."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import library
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.engine import Database
from sotopia_studio.store.kinds import (
    CHARACTERS,
    DIMENSION_LISTS,
    RELATIONSHIPS,
    SCENARIOS,
    TASKS,
    DimensionList,
    KnownPair,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming, tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.scenario import RelationshipKind


def run(url: str, act: Callable[[AsyncConnection], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        database = Database(url)
        try:
            async with database.write() as connection:
                await act(connection)
        finally:
            await database.close()

    asyncio.run(all_of_it())


def test_equal_content_is_one_item_and_comes_back_byte_for_byte(url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        character = tasks.starter_cast().characters[0]
        identity, is_new = await library.put(connection, CHARACTERS, character, tags=["pilot"])
        assert is_new
        assert await library.put(connection, CHARACTERS, character, tags=["second"]) == (identity, False)
        item = await library.get(connection, CHARACTERS, identity)
        assert item.read() == character
        assert item.record == character.model_dump_json()
        assert item.tags == ("pilot", "second")
        assert (await library.get(connection, CHARACTERS, item.hash[:8])).id == identity
        with pytest.raises(MissingError):
            await library.get(connection, CHARACTERS, "%%%%%%%%")

    run(url, act)


def test_lists_are_filtered_by_every_indexed_column_and_paged_without_gaps(url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        cast, scenarios = tasks.everyday_cast(), tasks.everyday_scenarios()
        count = await library.put_cast(connection, cast, scenarios)
        assert count == len(cast.characters) + len(cast.relationships) + len(scenarios)
        assert await library.put_cast(connection, cast, scenarios) == 0
        ids: list[str] = []
        while page := await library.items(connection, SCENARIOS, after=ids[-1] if ids else "", limit=7):
            ids += [item.id for item in page]
        assert ids == sorted(set(ids), reverse=True)
        assert len(ids) == len(scenarios) == await library.count(connection, SCENARIOS)
        for kind in (CHARACTERS, SCENARIOS, RELATIONSHIPS):
            for column in kind.filters:
                sample = (await library.items(connection, kind, limit=1))[0]
                value = sample.name if column == "name" else sample.columns[column]
                matches = await library.items(connection, kind, {column: value}, limit=1000)
                assert sample.id in {item.id for item in matches}
                assert len(matches) == await library.count(connection, kind, {column: value})
                assert (await library.values(connection, kind, column))[str(value)] == len(matches)
        first = cast.characters[0]
        named = await library.items(connection, CHARACTERS, text=first.first_name.upper())
        assert first.name in {item.name for item in named}
        with pytest.raises(UnknownNameError):
            await library.items(connection, CHARACTERS, {"secret": "x"})

    run(url, act)


def test_items_in_use_cannot_be_archived(url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
        identity, _ = await library.put_task(connection, task, tags=["mine"])
        (scenario,) = await library.items(connection, SCENARIOS)
        character = (await library.items(connection, CHARACTERS))[0]
        for kind, item in ((SCENARIOS, scenario.id), (CHARACTERS, character.id)):
            with pytest.raises(ConflictError, match=identity):
                await library.archive(connection, kind, item)
        assert await library.archive(connection, TASKS, identity) == identity
        assert await library.items(connection, TASKS) == []
        assert (await library.get(connection, TASKS, identity, archived=True)).archived is not None
        await library.archive(connection, SCENARIOS, scenario.id)
        with pytest.raises(MissingError):
            await library.get(connection, SCENARIOS, scenario.id)
        assert (await library.get(connection, SCENARIOS, scenario.id, archived=True)).read() == task.scenario
        assert await library.put_task(connection, task) == (identity, True)  # in use again, with what it uses
        with pytest.raises(ConflictError):
            await library.archive(connection, SCENARIOS, scenario.id)

    run(url, act)


def test_two_characters_have_one_relationship_in_either_order(url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        people = tasks.starter_cast().characters[:2]
        ids = [(await library.put(connection, CHARACTERS, character))[0] for character in people]
        pair = KnownPair(first=ids[0], second=ids[1], kind=RelationshipKind.FRIEND)
        identity, _ = await library.put_relationship(connection, pair)
        turned = KnownPair(first=ids[1], second=ids[0], kind=RelationshipKind.FRIEND)
        assert await library.put_relationship(connection, turned) == (identity, False)
        with pytest.raises(ConflictError, match=identity):
            await library.put_relationship(connection, pair.model_copy(update={"kind": RelationshipKind.FAMILY}))
        with pytest.raises(MissingError):
            await library.put_relationship(connection, pair.model_copy(update={"first": "unknown"}))
        with pytest.raises(ConflictError, match=identity):
            await library.archive(connection, CHARACTERS, ids[0])
        cast = await library.cast_of(connection, ids[::-1])
        assert cast.characters == people[::-1]
        assert cast.between(0, 1).kind is RelationshipKind.FRIEND
        await library.archive(connection, RELATIONSHIPS, identity)
        assert (await library.cast_of(connection, ids)).relationships == ()
        await library.archive(connection, CHARACTERS, ids[0])

    run(url, act)


def test_dimension_lists_have_different_names(url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        trust = CustomDimension(name="trust", low=0, high=10, instruction="How far does the agent trust?")
        mine = DimensionList(name="mine", dimensions=(trust,))
        identity, _ = await library.put_dimensions(connection, mine)
        other = DimensionList(name="mine", dimensions=(trust.model_copy(update={"high": 5}),))
        with pytest.raises(ConflictError):
            await library.put_dimensions(connection, other)
        await library.archive(connection, DIMENSION_LISTS, identity)
        await library.put_dimensions(connection, other)

    run(url, act)


def test_tags_are_added_removed_and_counted(url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        character = tasks.starter_cast().characters[0]
        identity, _ = await library.put(connection, CHARACTERS, character, tags=["a", "b"])
        assert await library.items(connection, CHARACTERS, tags=["a", "b"]) != []
        await tag_store.remove(connection, "character", identity, ["a"])
        assert await library.items(connection, CHARACTERS, tags=["a", "b"]) == []
        assert await tag_store.names(connection, "character") == {"b": 1}
        with pytest.raises(InvalidValueError):
            await tag_store.add(connection, "character", identity, ["two\nlines"])

    run(url, act)
