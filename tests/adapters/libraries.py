"""Skipping without a library, and running the blocks of an adapter's page."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_docs import PORT, ROOT, Shell, blocks, command_lines


def need(library: str) -> None:
    """Skips a test module in an environment without ``library``, where `make adapters` does not run it."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed; make adapters", allow_module_level=True)


@contextmanager
def serving(*arguments: str, python: Path | str = sys.executable, cwd: Path = ROOT) -> Iterator[str]:
    """Runs a server, ``python`` with ``arguments`` and a free port, and yields its address when it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([python, *arguments, str(port)], cwd=cwd)
    try:
        end = time.monotonic() + LibraryShell.patience
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class LibraryShell(Shell):
    """Also runs the commands of the library, from the environment of the tests."""

    patience = 120  # OpenEnv's server imports for many seconds

    def __init__(self, *commands: str) -> None:
        super().__init__()
        self.commands = commands

    def run(self, line: str) -> None:
        word = line.split()[0]
        if word not in self.commands:
            super().run(line)
            return
        folder = Path(sys.executable).parent
        result = subprocess.run(f"{folder}/{line}", shell=True, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, (line, result.stdout, result.stderr)


def run_page(name: str, *commands: str) -> None:
    """Runs the sh and python blocks of ``docs/adapters/NAME.md`` in order; ``commands`` are the library's own."""
    shell = LibraryShell(*commands)
    try:
        for block in blocks((ROOT / "docs" / "adapters" / f"{name}.md").read_text(encoding="utf-8"), "sh", "python"):
            if block.reason:
                continue
            if block.language == "python":
                code = block.code.replace(PORT, shell.port)
                exec(compile(code, f"docs/adapters/{name}.md", "exec"), {"__name__": "__main__"})
            for line in command_lines(block.code) if block.language == "sh" else ():
                shell.run(line)
    finally:
        for process in shell.processes:
            process.terminate()
            process.wait()
