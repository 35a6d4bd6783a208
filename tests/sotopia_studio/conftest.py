"""A database of each kind: a SQLite file, and a real PostgreSQL server that the tests start and stop."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sotopia_studio import live
from sotopia_studio.store.engine import Database
from sotopia_studio.store.migrations import upgrade

from sotopia_env.world import Action


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def act(database: Database, episode: str, agent: str, action: Action, *, turn: int, key: str) -> None:
    """A person's action, as the page and the API carry it out."""
    async with database.write() as connection:
        state = await live.LiveEpisode.load(connection, episode, lock=True)
        await live.act(connection, state, agent, lambda _: action, turn=turn, key=key)


def _binaries() -> Path | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return folders[-1] if folders else Path(on_path).parent if on_path else None


def _unprivileged() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.getuid():
        return {}
    user = pwd.getpwnam("postgres") if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else None
    identity = (user.pw_uid, user.pw_gid) if user else (65534, 65534)
    return {"user": identity[0], "group": identity[1], "extra_groups": []}


@pytest.fixture(scope="session", autouse=True)
def _passwords_are_hashed_quickly():
    """Hashes are slow on purpose: a tenth of a second each, which the tests would pay hundreds of times."""
    from argon2 import PasswordHasher
    from sotopia_studio import auth

    with pytest.MonkeyPatch.context() as patch:
        hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        patch.setattr(auth, "_HASHER", hasher)
        auth._decoy.cache_clear()
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server of this process, without a database's name."""
    binaries = _binaries()
    if binaries is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed; CI installs it")
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder, port = Path(tempfile.mkdtemp(prefix="sotopia-postgres-")), free_port()
    options = {**_unprivileged(), "cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, "check": True}
    if "user" in options:
        os.chown(folder, options["user"], options["group"])  # type: ignore[call-overload]
    data, log = str(folder / "data"), str(folder / "log")
    initdb = [str(binaries / "initdb"), "-D", data, "-A", "trust", "-U", "sotopia", "--no-locale", "-E", "UTF8"]
    subprocess.run([*initdb, "--no-sync"], stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    server = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    control = [str(binaries / "pg_ctl"), "-D", data, "-w", "-s"]
    subprocess.run([*control, "-l", log, "-o", server, "start"], **options)  # type: ignore[call-overload]
    try:
        yield f"postgresql://sotopia@127.0.0.1:{port}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **options)  # type: ignore[call-overload]
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database with all tables, of each kind."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/studio.db"
        asyncio.run(create_tables(address))
        yield address
        return
    server = request.getfixturevalue("postgres_server")
    name = f"test_{os.getpid()}_{free_port()}"
    asyncio.run(_execute(server, f"CREATE DATABASE {name}"))
    asyncio.run(create_tables(f"{server}/{name}"))
    yield f"{server}/{name}"
    asyncio.run(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an empty SQLite database with all tables."""
    address = f"sqlite:///{tmp_path}/studio.db"
    asyncio.run(create_tables(address))
    return address


async def create_tables(url: str) -> None:
    database = Database(url)
    await upgrade(database)
    await database.close()


async def _execute(server: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(f"{server}/postgres")
    await connection.execute(statement)
    await connection.close()
