"""Commands of the studio: ``serve``, ``worker``, ``login``, ``user``, ``token`` and ``db import``.

The commands import their dependencies when they run, so without the extra ``serve`` they exist and name it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sotopia_env.errors import SotopiaError

if TYPE_CHECKING:
    from sotopia_env.service.settings import ServiceSettings

_PACKAGES = ("aiosqlite", "alembic", "argon2", "fastapi", "jinja2", "sqlalchemy", "uvicorn")
"""Modules of the extra that no command of the studio can do without."""
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML file with the settings of the service.")
]
Url = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="sqlite:///FILE or postgresql://USER@HOST/NAME.")
]
Changes = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting that overrides the file.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("serve")(serve)
    app.command("worker")(worker)
    app.command("login")(login)
    app.command("user")(user)
    app.command("token")(token)
    databases = typer.Typer(help="The database of the studio.", no_args_is_help=True)
    databases.command("import")(import_runs)
    app.add_typer(databases, name="db")
    app.command("view")(view)


def _settings(config: Path | None, database: str | None, changes: list[str]) -> ServiceSettings:
    # The settings need no package of the extra: without this check the first import of one would be a traceback.
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SotopiaError(f"the studio needs {', '.join(missing)}: pip install 'sotopia-env[serve]'")
    from sotopia_env.service.settings import ServiceSettings
    from sotopia_env.settings import overridden, read_values, settings_of

    values: dict[str, Any] = overridden({} if config is None else read_values(config), changes, "--set")
    if database is not None:
        values["database"] = database
    return settings_of(values, ServiceSettings, "" if config is None else str(config))


async def _login_secret(settings: ServiceSettings, role: Literal["admin", "viewer"] = "admin") -> str:
    """Creates the secret of a one-time address."""
    from sotopia_env.service.auth import add_login
    from sotopia_env.service.store.engine import Database
    from sotopia_env.service.store.migrations import upgrade

    database = Database(settings.database)
    await upgrade(database)
    async with database.write() as connection:
        secret = await add_login(connection, role)
    await database.close()
    return secret


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8321,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes to start.")] = 1,
    config: Config = None,
    database: Url = None,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Open the studio: pages and an API to design, play, watch, annotate and compare. Ctrl-C ends it.

    \b
    Examples:
      sotopia serve
      sotopia serve --set models.api_base=http://localhost:8000/v1 --set 'model_names=[local/my-model]'
      sotopia serve --database postgresql://sotopia@db/sotopia --workers 4
    """
    settings = _settings(config, database, changes)
    import uvicorn

    from sotopia_env.service.app import create_app

    # Processes and not threads: a worker computes, and the server must answer meanwhile; a killed worker ends alone.
    command = [sys.executable, "-m", "sotopia_env.cli.app", "worker", "--database", settings.database]
    command += [] if config is None else ["--config", str(config)]
    children = [
        subprocess.Popen([*command, *(part for change in changes for part in ("--set", change))])
        for _ in range(workers)
    ]
    if not settings.accounts:
        typer.echo(f"Open http://{host}:{port}/login/{asyncio.run(_login_secret(settings))} (it works once)")
    # The server raises the signal again once it has stopped; with the default action the workers would be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        uvicorn.run(create_app(settings), host=host, port=port, log_level="warning", timeout_graceful_shutdown=2)
    finally:
        for child in children:
            # All are told first, then awaited: they stop at the same time.
            child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait()


def worker(config: Config = None, database: Url = None, changes: Changes = []) -> None:  # noqa: B006
    """Work for a studio: play live episodes and runs, evaluate, draft. Ctrl-C or SIGTERM ends it.

    Another worker takes over the jobs of a worker that is killed.

    \b
    Example:
      sotopia worker --database postgresql://sotopia@db/sotopia
    """
    settings = _settings(config, database, changes)
    from sotopia_env.service.store.engine import Database
    from sotopia_env.service.store.migrations import upgrade
    from sotopia_env.service.worker import Worker

    async def work() -> None:
        db = Database(settings.database)
        await upgrade(db)
        process = Worker(settings, db)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, process.stop)
        await process.run()
        await db.close()

    asyncio.run(work())


def login(
    address: Annotated[str, typer.Argument(metavar="URL", help="Address of the studio.")] = "http://127.0.0.1:8321",
    config: Config = None,
    database: Url = None,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Print an address that opens one administrator's session; it works once, within a day.

    \b
    Example:
      sotopia login
    """
    secret = asyncio.run(_login_secret(_settings(config, database, changes)))
    typer.echo(f"{address.rstrip('/')}/login/{secret}")


def user(
    name: Annotated[str, typer.Argument(help="The name to log in with.")],
    role: Annotated[str, typer.Option(help="admin or researcher.")] = "researcher",
    config: Config = None,
    database: Url = None,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Add a user, or change one's password and role; asks for the password, or reads SOTOPIA_PASSWORD.

    \b
    Example:
      sotopia user rosa --role admin
    """
    settings = _settings(config, database, changes)
    from sotopia_env.service.auth import add_user
    from sotopia_env.service.store.engine import Database
    from sotopia_env.service.store.migrations import upgrade

    password = os.environ.get("SOTOPIA_PASSWORD") or typer.prompt("Password", hide_input=True, confirmation_prompt=True)

    async def add() -> None:
        db = Database(settings.database)
        await upgrade(db)
        async with db.write() as connection:
            await add_user(connection, name, password, role)  # type: ignore[arg-type]  # checked there
        await db.close()

    asyncio.run(add())
    typer.echo(f"{name}: {role}")


def token(
    name: Annotated[str, typer.Argument(help="Name of the token, such as its purpose.")],
    scopes: Annotated[str, typer.Option(help="Scopes, separated by commas: read, run, admin.")] = "read,run",
    config: Config = None,
    database: Url = None,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Print a new token for a program that uses the API; it cannot be shown again.

    \b
    Example:
      sotopia token analysis
    """
    settings = _settings(config, database, changes)
    from sotopia_env.service.auth import add_token
    from sotopia_env.service.store.engine import Database
    from sotopia_env.service.store.migrations import upgrade

    async def add() -> str:
        db = Database(settings.database)
        await upgrade(db)
        async with db.write() as connection:
            secret = await add_token(connection, "admin", name, frozenset(scopes.split(",")))
        await db.close()
        return secret

    typer.echo(asyncio.run(add()))


def import_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    config: Config = None,
    database: Url = None,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Read run directories into the database of the studio; repeat it to update changed ones.

    \b
    Example:
      sotopia db import runs/a runs/b
    """
    settings = _settings(config, database, changes)
    from sotopia_env.service.store.engine import Database
    from sotopia_env.service.store.migrations import upgrade
    from sotopia_env.service.work.batch import import_run

    async def read() -> None:
        db = Database(settings.database)
        try:
            await upgrade(db)
            for path in runs:
                run, count = await import_run(db, path)
                typer.echo(f"{path}: run {run}, {count} episodes")
        finally:
            await db.close()

    asyncio.run(read())


def view(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories, or .jsonl files of episodes.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write one file instead of a server.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8322,
) -> None:
    """Read runs as pages: transcripts, the knowledge of each seat, evaluations, comparisons. Read-only.

    With --out, all episodes go into one HTML file that needs no network and no server.

    \b
    Examples:
      sotopia view runs/demo
      sotopia view runs/demo --out demo.html
    """
    with tempfile.TemporaryDirectory(prefix="sotopia-view-") as folder:
        settings = _settings(None, f"sqlite:///{folder}/view.db", [f"data={folder}"])
        from sotopia_env.service import viewing

        if out is not None:
            typer.echo(f"{out}: {viewing.export(runs, out)} episodes")
            return
        import uvicorn

        from sotopia_env.service.app import create_app

        secret = asyncio.run(_load(settings, runs))
        port = port or _free_port(host)
        typer.echo(f"Open http://{host}:{port}/login/{secret} (it works once)")
        sys.stdout.flush()
        uvicorn.run(create_app(settings), host=host, port=port, log_level="warning", timeout_graceful_shutdown=2)


async def _load(settings: ServiceSettings, runs: list[Path]) -> str:
    """Reads runs into the database; returns the secret of a one-time address that opens it for reading."""
    from sotopia_env.service import viewing
    from sotopia_env.service.store.engine import Database

    secret = await _login_secret(settings, "viewer")
    database = Database(settings.database)
    await viewing.load(database, runs)
    await database.close()
    return secret


def _free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port
