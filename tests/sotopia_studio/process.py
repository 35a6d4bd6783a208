"""`sotopia serve` as a process of its own, for what only a process shows: its memory, its death, its libraries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.sotopia_studio.conftest import free_port

MB = 2**20


@dataclass
class Server:
    """A running server."""

    port: int
    process: psutil.Process
    token: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    def page(self) -> httpx.Response:
        return httpx.get(f"{self.address}/login", timeout=60)


@contextmanager
def served(folder: Path, *options: str, workers: int = 0) -> Iterator[Server]:
    """A server, which the end of the test stops."""
    port, database = free_port(), ["--database", f"sqlite:///{folder}/studio.db"]
    line = [sys.executable, "-m", "sotopia_env.cli.app"]
    token = subprocess.run([*line, "token", "t", *database], capture_output=True, text=True, check=True).stdout.strip()
    command = [
        *line,
        "serve",
        "--workers",
        str(workers),
        "--port",
        str(port),
        *database,
        "--set",
        f"data={folder}",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        server = Server(port, psutil.Process(process.pid), token)
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=60) as http:
            http.get(f"{server.address}/login")
        yield server
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
