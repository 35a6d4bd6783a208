"""Connections to the service's database: SQLite in a file, or PostgreSQL by URL.

SQLite needs care: with the driver's defaults two transactions that read and then write lose updates without an error.
Writers therefore begin with ``BEGIN IMMEDIATE``, one at a time, and readers use a separate engine, so that with the
write-ahead log they do not block the writers.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Table, make_url
from sqlalchemy import event as events
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sotopia_env.foundation.errors import InvalidValueError

# Every query is awaited in the server's event loop, so only asynchronous drivers are used.
_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_QUIET = {"hide_parameters": True}  # an error in a log must not repeat what people wrote
UNREACHABLE = (SQLAlchemyError, sqlite3.Error, OSError)
"""Errors of a database that is down, locked or full; loops of the service continue after them."""
# Write-ahead logging lets readers go on during a write. With it, `synchronous=normal` cannot corrupt the file; a power
# failure may lose the last transactions. Foreign keys are off in SQLite unless a connection turns them on.
_PRAGMAS = ("journal_mode=wal", "busy_timeout=10000", "foreign_keys=on", "synchronous=normal")


class Database:
    """A database of the service.

    Attributes:
        url: the address of the database, without the password.
    """

    def __init__(self, url: str) -> None:
        """Creates the engines; opens no connection.

        Args:
            url: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/NAME``.

        Raises:
            InvalidValueError: the URL names another kind of database, or is not a URL.
        """
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise _bad_url(url) from None
        driver = _DRIVERS.get(parsed.drivername.split("+")[0])
        if driver is None:
            raise _bad_url(parsed.drivername)
        parsed = parsed.set(drivername=driver)
        self.url = parsed.render_as_string(hide_password=True)
        self.is_sqlite = driver.startswith("sqlite")
        if not self.is_sqlite:
            self._writer = self._reader = create_async_engine(parsed, pool_size=10, max_overflow=10, **_QUIET)
            return
        # An in-memory database belongs to one connection, so workers and readers would each see an empty one.
        if not parsed.database or parsed.database == ":memory:":
            raise InvalidValueError(field="database", expected="a file", got=url, hint="sqlite:///studio.db")
        Path(parsed.database).absolute().parent.mkdir(parents=True, exist_ok=True)
        # SQLite admits one writer at a time. With a single connection, writers queue here in order of arrival instead
        # of polling the lock of the file until `busy_timeout`.
        one_at_a_time = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 60}
        self._writer = _sqlite(create_async_engine(parsed, **one_at_a_time, **_QUIET), "IMMEDIATE")
        self._reader = _sqlite(create_async_engine(parsed, pool_size=5, max_overflow=10, **_QUIET), "DEFERRED")

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may change something; committed at the end, rolled back by an exception."""
        with _storable():
            async with self._writer.begin() as connection:
                yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A read-only transaction, which sees one consistent state."""
        with _storable():
            async with self._reader.begin() as connection:
                yield connection

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        """Yields a function that returns the version of the data, which every commit of another connection changes.

        The connection is its own, since SQLite counts versions for each connection.
        """
        async with self._reader.connect() as connection:
            if self.is_sqlite:
                # Past SQLAlchemy, which would begin a transaction: within one, the version stays what it was.
                driver: Any = (await connection.get_raw_connection()).driver_connection
                yield lambda: driver.execute_fetchall("PRAGMA data_version")
                return
            await connection.execution_options(isolation_level="AUTOCOMMIT")

            async def snapshot() -> object:
                return (await connection.exec_driver_sql("SELECT pg_current_snapshot()::text")).scalar_one()

            yield snapshot

    async def close(self) -> None:
        """Closes all connections."""
        await self._writer.dispose()
        await self._reader.dispose()


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks and returns when they have ended, whatever they raise.

    A task that is cancelled within a query closes its connection before it ends. Without this wait, the end of the
    event loop cancels it once more, within that close, and it then waits for ever for a driver that has stopped.
    """
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def insert_for(connection: AsyncConnection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Returns an insert of the connection's dialect, which can handle conflicts."""
    kind = postgresql.Insert if connection.dialect.name == "postgresql" else sqlite.Insert
    return kind(table)


@contextmanager
def _storable() -> Iterator[None]:
    """Turns the database's error about a value that cannot be stored into an :class:`InvalidValueError`.

    PostgreSQL refuses NUL in texts; both refuse halves of surrogate pairs and whole numbers beyond the column's bits.
    """
    try:
        yield
    except (DBAPIError, OverflowError, UnicodeEncodeError) as error:
        cause = error.orig.__cause__ if isinstance(error, DBAPIError) and error.orig is not None else error
        state = getattr(cause, "sqlstate", None) or ""
        if isinstance(error, DBAPIError) and not (state.startswith("22") or isinstance(cause, ValueError)):
            raise
        expected = "text without NUL and without incomplete characters, and whole numbers of at most 64 bits"
        raise InvalidValueError("it cannot be stored", expected=expected) from error


def _bad_url(got: str) -> InvalidValueError:
    return InvalidValueError(field="database", expected="sqlite:///FILE or postgresql://USER@HOST/NAME", got=got)


def _sqlite(engine: AsyncEngine, mode: str) -> AsyncEngine:
    @events.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @events.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql(f"BEGIN {mode}")

    return engine
