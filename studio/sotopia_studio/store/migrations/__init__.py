"""The schema of the database, which a server or a worker updates when it starts.

A new database gets the current tables; an older database gets the revisions since its own. A change of
:mod:`~sotopia_studio.store.tables` therefore needs a revision: ``python -m sotopia_studio.store.migrations FILE
MESSAGE`` writes a revision from a database without the change; read and correct it. A test updates a database of the
first release and compares it with the tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from sotopia_env.foundation.errors import SotopiaError, first_line
from sotopia_studio.store import tables
from sotopia_studio.store.engine import UNREACHABLE, Database

_LOCK = 0x50701A
"""Key of the lock that one process holds while it changes the schema of a PostgreSQL database."""


def config_of(connection: Connection) -> Config:
    """Returns Alembic's configuration for a connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


class DatabaseError(SotopiaError):
    """The database cannot be used; the message says why and what to do."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Opens a database with an up-to-date schema, and closes it.

    Raises:
        DatabaseError: it does not answer, refuses the login, is not a database, or belongs to another version.
        InvalidValueError: ``url`` is not the address of a database.
    """
    database = _usable(url)
    try:
        await checked_upgrade(database)
        yield database
    finally:
        await database.close()


def _usable(url: str) -> Database:
    try:
        return Database(url)
    except OSError as error:
        raise DatabaseError(f"the folder of {url} cannot be used: {error.strerror}") from error


async def checked_upgrade(database: Database) -> None:
    """Like :func:`upgrade`; every failure is a :class:`DatabaseError`."""
    hint = "is the server running, and are name and password right?"
    if database.is_sqlite:
        hint = "is it a database of the studio, and may it be written?"
    try:
        await upgrade(database)
    except CommandError as error:
        raise DatabaseError(
            f"the database {database.url} belongs to another version of sotopia-env ({first_line(error)}); "
            "install that version, or choose another database"
        ) from error
    except UNREACHABLE as error:
        raise DatabaseError(f"the database {database.url} cannot be used: {_reason(error)}; {hint}") from error


def _reason(error: BaseException) -> str:
    """The driver's message, without the statement and the link that SQLAlchemy appends."""
    return first_line(getattr(error, "orig", None) or error)


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
    present = MigrationContext.configure(connection).get_current_heads()
    if not present:
        # Tables that are there already belong to another program: creating ours beside them fails, as it should.
        tables.metadata.create_all(connection, checkfirst=False)
        command.stamp(config, "head")
    # Servers and workers start often, and most find the schema up to date; then Alembic does not run at all.
    elif set(present) != set(heads):
        command.upgrade(config, "head")
