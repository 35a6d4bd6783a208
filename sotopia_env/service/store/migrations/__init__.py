"""The schema of the database, brought up to date when a server or a worker starts.

A change of :mod:`~sotopia_env.service.store.tables` needs a revision; ``python -m sotopia_env.service.store.migrations
MESSAGE`` writes one, to be read and corrected. A test compares the tables with the revisions.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from sotopia_env.service.store.engine import Database

_LOCK = 0x50701A
"""Key of the lock that one process holds while it changes the schema of a PostgreSQL database."""


def config_of(connection: Connection) -> Config:
    """Returns Alembic's configuration for a connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


async def upgrade(database: Database) -> None:
    """Brings the schema up to date; processes that start at the same time wait for each other."""
    async with database.write() as connection:
        if not database.is_sqlite:
            # SQLite needs no lock here: BEGIN IMMEDIATE has excluded other writers.
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = config_of(connection)
    heads = ScriptDirectory.from_config(config).get_heads()
    # Servers and workers start often, and most find the schema up to date; then Alembic does not run at all.
    if set(MigrationContext.configure(connection).get_current_heads()) != set(heads):
        command.upgrade(config, "head")
