"""The schema of the database, brought up to date when a server or a worker starts."""

from __future__ import annotations

from sotopia_env.service.store import tables
from sotopia_env.service.store.engine import Database


async def upgrade(database: Database) -> None:
    """Creates the tables that are missing."""
    async with database.write() as connection:
        await connection.run_sync(tables.metadata.create_all)
