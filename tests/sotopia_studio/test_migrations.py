"""The schema: revisions lead to the tables as they are declared, on both databases, and back."""

from __future__ import annotations

import asyncio

from alembic import command
from sotopia_studio.store import tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.migrations import config_of, upgrade
from sqlalchemy import Connection, inspect


def test_the_revisions_make_the_tables_that_are_declared_and_can_be_taken_back(url: str) -> None:
    def check(connection: Connection) -> None:
        command.check(config_of(connection))  # raises where tables and revisions differ
        assert set(tables.metadata.tables) <= set(inspect(connection).get_table_names())
        command.downgrade(config_of(connection), "base")
        assert set(inspect(connection).get_table_names()) == {"alembic_version"}

    async def work() -> None:
        database = Database(url)
        async with database.write() as connection:
            await connection.run_sync(check)
        await upgrade(database)
        await upgrade(database)
        async with database.read() as connection:
            assert (await connection.execute(tables.episode.select())).all() == []
        await database.close()

    asyncio.run(work())


def test_processes_that_start_together_upgrade_once(url: str) -> None:
    async def work() -> None:
        databases = [Database(url) for _ in range(4)]
        async with databases[0].write() as connection:
            await connection.run_sync(lambda sync: command.downgrade(config_of(sync), "base"))
        await asyncio.gather(*(upgrade(database) for database in databases))
        for database in databases:
            await database.close()

    asyncio.run(work())
