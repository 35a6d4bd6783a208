"""Commands of the studio: ``serve``, ``worker``, ``login``, ``user``, ``token`` and ``db import``.

The commands import their dependencies when they run, so without the extra ``serve`` they exist, and their error names
it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import typer

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.extras import install_command

if TYPE_CHECKING:
    from sotopia_studio.settings import ServiceSettings
    from sotopia_studio.store.engine import Database

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_PACKAGES = ("aiosqlite", "alembic", "argon2", "fastapi", "jinja2", "sqlalchemy", "uvicorn")
"""Modules of the extra that every command of the studio needs."""
_GRACE = 5.0
"""Seconds in which a worker without its server gives its jobs back."""
_BEFORE = Path("studio/studio.db")
"""The default database of earlier versions, which shared its folder."""
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
        raise SotopiaError(f"the studio needs {', '.join(missing)}: {install_command('serve')}")
    from sotopia_env.foundation.settings import overridden, read_values, settings_of
    from sotopia_studio.settings import ServiceSettings

    values: dict[str, Any] = overridden({} if config is None else read_values(config), changes, "--set")
    if database is not None:
        values["database"] = database
    settings = settings_of(values, ServiceSettings, "" if config is None else str(config))
    new = ServiceSettings().database
    # A new database would be opened instead of the one with the user's work.
    if settings.database == new and _BEFORE.exists() and not Path(new.removeprefix("sqlite:///")).exists():
        flags = f"--database sqlite:///{_BEFORE} --set data={_BEFORE.parent}"
        raise SotopiaError(f"the studio's data is in {new.rpartition('/')[0]} now, not {_BEFORE}: add {flags}")
    return settings


def _with_database(settings: ServiceSettings, work: Callable[[Database], Awaitable[_T]]) -> _T:
    """Returns the result of ``work`` on the open database; if it cannot be opened, prints only that error."""
    from sotopia_studio.store.migrations import opened

    async def run() -> _T:
        async with opened(settings.database) as database:
            return await work(database)

    return asyncio.run(run())


async def _login_secret(database: Database, role: Literal["admin", "viewer"] = "admin") -> str:
    """Creates the secret of a one-time address."""
    from sotopia_studio.auth import add_login

    async with database.write() as connection:
        return await add_login(connection, role)


async def _no_secret(_: Database) -> str:
    """With accounts, people log in with a password."""
    return ""


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
    secret = _with_database(settings, _no_secret if settings.accounts else _login_secret)
    listener = _listener(host, port)
    port = listener.getsockname()[1]
    # Processes and not threads: a worker computes, and the server must answer meanwhile; a killed worker ends alone.
    command = [sys.executable, "-m", "sotopia_env.cli.app", "worker", "--attached", "--database", settings.database]
    command += [] if config is None else ["--config", str(config)]
    command += [part for change in changes for part in ("--set", change)]
    _exit_on_sigterm()
    with Workers(command, workers):
        _run(settings, listener, f"http://{host}:{port}/login/{secret}" if secret else "")


def _exit_on_sigterm() -> None:
    """Makes SIGTERM raise SystemExit: the default action would leave workers and temporary files behind.

    It is installed before anything is started. uvicorn raises the signal again once its server has stopped.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def _run(settings: ServiceSettings, listener: socket.socket, address: str) -> None:
    """Serves until a signal ends it; prints ``address``, unless it is empty."""
    from sotopia_studio.app import create_app
    from sotopia_studio.entrance.connections import Server, raise_file_limit, server_config

    if address:
        typer.echo(f"Open {address} (it works once)")
        sys.stdout.flush()
    raise_file_limit()
    Server(server_config(create_app(settings), settings)).run([listener])


def _listener(host: str, port: int) -> socket.socket:
    """Listens before anything else is started, so that for an address in use this error is the only output."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValueError(
            f"nothing can listen on {host}:{port} ({reason})", field="port", hint="choose another, or 0 for a free one"
        ) from None


def worker(
    config: Config = None,
    database: Url = None,
    changes: Changes = [],  # noqa: B006
    attached: Annotated[
        bool, typer.Option("--attached", hidden=True, help="End with the process that started it.")
    ] = False,
) -> None:
    """Work for a studio: play live episodes and runs, evaluate, draft. Ctrl-C or SIGTERM ends it.

    Another worker takes over the jobs of a worker that is killed.

    \b
    Example:
      sotopia worker --database postgresql://sotopia@db/sotopia
    """
    settings = _settings(config, database, changes)
    from sotopia_studio.worker import Worker

    async def work(database: Database) -> None:
        process = Worker(settings, database)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, process.stop)
        if attached:
            _end_with_parent(asyncio.get_running_loop(), process.stop)
        await process.run()

    _with_database(settings, work)


def _end_with_parent(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Calls ``stop`` when the process that holds the other end of the standard input has died.

    A killed process tells nobody; the system closes its pipes.
    """

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # not the buffered reader, whose lock the end of the process waits for
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop)
        # A model that is being built cannot be interrupted, and nobody waits for it.
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
    secret = _with_database(_settings(config, database, changes), _login_secret)
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
    from sotopia_studio.auth import add_user

    password = os.environ.get("SOTOPIA_PASSWORD") or typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    _with_database(settings, lambda opened: add_user(opened, name, password, role))  # type: ignore[arg-type]  # checked there
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
    from sotopia_studio.auth import add_token

    async def add(database: Database) -> str:
        async with database.write() as connection:
            return await add_token(connection, "admin", name, frozenset(scopes.split(",")))

    typer.echo(_with_database(settings, add))


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
    from sotopia_studio.work.batch import import_run

    async def read(database: Database) -> None:
        for path in runs:
            run, count = await import_run(database, path)
            typer.echo(f"{path}: run {run}, {count} episodes")

    _with_database(settings, read)


def view(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories, or .jsonl files of episodes.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write one file instead of a server.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8322,
) -> None:
    """Read runs as pages: transcripts, the knowledge of each seat, evaluations, comparisons. Nothing can be changed.

    With --out, all episodes go into one HTML file that needs no network and no server.

    \b
    Examples:
      sotopia view runs/demo
      sotopia view runs/demo --out demo.html
    """
    _exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="sotopia-view-") as folder:
        settings = _settings(None, f"sqlite:///{folder}/view.db", [f"data={folder}"])
        from sotopia_studio import viewing

        if out is not None:
            typer.echo(f"{out}: {viewing.export(runs, out)} episodes")
            return

        async def load(database: Database) -> str:
            await viewing.load(database, runs)
            return await _login_secret(database, "viewer")

        secret = _with_database(settings, load)
        listener = _listener(host, port)
        _run(settings, listener, f"http://{host}:{listener.getsockname()[1]}/login/{secret}")


class Workers:
    """Worker processes; a process that ends by itself is restarted.

    The pause before a restart grows for a worker that keeps ending at once, because its cause probably persists.
    """

    PATIENCE = 60.0
    """Seconds of work after which an end counts as the first one; also the longest pause before a restart."""

    def __init__(self, command: list[str], count: int) -> None:
        """Creates the group; starts no process."""
        self._command = command
        self._children: list[subprocess.Popen[bytes] | None] = [None] * count
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(number,), daemon=True) for number in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        # All are told first, then awaited: they stop at the same time.
        for child in self._children:
            if child is not None:
                child.send_signal(signal.SIGTERM)
        for thread in self._threads:
            thread.join()

    def _keep(self, number: int) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            start = time.monotonic()
            # The pipe ends with this process, however it ends, and the worker with the pipe.
            child = self._children[number] = subprocess.Popen(self._command, stdin=subprocess.PIPE)
            if self._ended.is_set():  # it was not there when the others were told
                child.send_signal(signal.SIGTERM)
            code = child.wait()
            assert child.stdin is not None
            child.stdin.close()
            if not self._ended.is_set():
                brief = time.monotonic() - start < self.PATIENCE
                pause = min(2 * pause or 1.0, self.PATIENCE) if brief else 1.0
                logger.warning("worker %d ended (%d); it restarts in %g s", number + 1, code, pause)
