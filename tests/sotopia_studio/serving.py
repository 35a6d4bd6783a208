"""A real server with a worker, in a thread of this process: for streams, sockets and programs that use HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from sotopia_studio import auth
from sotopia_studio.app import create_app
from sotopia_studio.entrance.connections import server_config
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store.engine import Database
from sotopia_studio.store.migrations import upgrade
from sotopia_studio.worker import Worker

from tests.sotopia_studio.conftest import free_port


@contextmanager
def serving(url: str, data: Path, **settings: object) -> Iterator[tuple[str, str]]:
    """The address of a server and a token for it."""
    parts = ServiceSettings(database=url, data=data, **settings)  # type: ignore[arg-type]
    port, ready, ending, secrets = free_port(), threading.Event(), threading.Event(), []

    async def serve() -> None:
        database = Database(url)
        await upgrade(database)
        async with database.write() as connection:
            secrets.append(await auth.add_token(connection, "lab", "test", frozenset({"read", "run"})))
        worker = Worker(parts, database)
        config = server_config(create_app(parts), parts, port=port, log_level="error")
        server = uvicorn.Server(config)
        working = asyncio.create_task(worker.run())
        listening = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        ready.set()
        while not ending.is_set():
            await asyncio.sleep(0.02)
        server.should_exit = True
        worker.stop()
        await asyncio.gather(working, listening)
        await database.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(240)
    try:
        yield f"http://127.0.0.1:{port}", secrets[0]
    finally:
        ending.set()
        thread.join(10)
