"""The schema: new and old databases end with the tables as they are declared."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from alembic import command
from sotopia_studio.store import tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.migrations import config_of, upgrade
from sqlalchemy import Connection, text

FIRST = Path(__file__).with_name("first_schema.sql")
"""A database of revision 0001, as ``sqlite3 studio.db .dump`` writes it. It is not changed with the tables."""


def check(connection: Connection) -> None:
    command.check(config_of(connection))  # raises where the database differs from the declared tables


async def opens(url: str) -> None:
    database = Database(url)
    await upgrade(database)
    await upgrade(database)
    async with database.write() as connection:
        await connection.run_sync(check)
        assert (await connection.execute(tables.episode.select())).all() == []
    await database.close()


def test_a_new_database_has_the_tables_that_are_declared(url: str) -> None:
    asyncio.run(opens(url))


def test_a_database_of_the_first_release_is_brought_up_to_date(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.executescript(FIRST.read_text(encoding="utf-8"))
    asyncio.run(opens(f"sqlite:///{tmp_path}/old.db"))


def test_processes_that_start_together_create_the_tables_once(url: str) -> None:
    async def work() -> None:
        databases = [Database(url) for _ in range(4)]
        async with databases[0].write() as connection:
            await connection.run_sync(tables.metadata.drop_all)
            await connection.execute(text("DROP TABLE alembic_version"))
        await asyncio.gather(*(upgrade(database) for database in databases))
        for database in databases:
            await database.close()

    asyncio.run(work())
