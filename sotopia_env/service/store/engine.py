"""Connections to the service's database: SQLite in a file, or PostgreSQL by URL.

SQLite needs care: with the driver's defaults two transactions that read and then write lose updates without an error.
Writers therefore begin with ``BEGIN IMMEDIATE``, one at a time, and readers have an engine of their own, which the
write-ahead log keeps out of the writers' way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event as events
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sotopia_env.errors import InvalidValueError

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_PRAGMAS = ("journal_mode=wal", "busy_timeout=10000", "foreign_keys=on", "synchronous=normal")


class Database:
    """A database of the service.

    Attributes:
        url: where it is, without its password.
    """

    def __init__(self, url: str) -> None:
        """Opens nothing yet.

        Args:
            url: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/NAME``.

        Raises:
            InvalidValueError: another kind of database, or no URL.
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
            self._writer = self._reader = create_async_engine(parsed, pool_size=10, max_overflow=10)
            return
        if not parsed.database or parsed.database == ":memory:":
            raise InvalidValueError(field="database", expected="a file", got=url, hint="sqlite:///studio.db")
        Path(parsed.database).absolute().parent.mkdir(parents=True, exist_ok=True)
        self._writer = _sqlite(create_async_engine(parsed, pool_size=1, max_overflow=0, pool_timeout=60), "IMMEDIATE")
        self._reader = _sqlite(create_async_engine(parsed, pool_size=5, max_overflow=10), "DEFERRED")

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may change something; committed at the end, rolled back by an exception."""
        async with self._writer.begin() as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads: one consistent state."""
        async with self._reader.begin() as connection:
            yield connection

    async def close(self) -> None:
        """Closes all connections."""
        await self._writer.dispose()
        await self._reader.dispose()


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
