"""The command `sotopia serve`, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sotopia_env.service.conftest import free_port


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_a_server_that_is_terminated_takes_its_workers_along(sqlite_url: str) -> None:
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", str(free_port())]
    server = subprocess.Popen([*command, "--database", sqlite_url], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("Open http://")
    workers = [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]
    assert len(workers) == 1
    time.sleep(3)  # the server listens, and the worker works
    server.terminate()
    server.wait(20)
    server.stdout.close()
    assert not any(map(_alive, workers))


@pytest.mark.parametrize("command", [["serve"], ["worker"], ["login"], ["view", "runs/demo"]])
def test_without_the_extra_a_command_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    """A process in which the package's modules cannot be found, as in an installation without the extra."""
    hide = "import importlib.util as u, sys; real = u.find_spec; "
    hide += "u.find_spec = lambda name, *rest: None if name == 'uvicorn' else real(name, *rest); "
    run = f"{hide}sys.argv[1:] = {command!r}; from sotopia_env.cli.app import main; main()"
    result = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert result.returncode == 2, result.stderr
    assert "sotopia-env[serve]" in result.stderr
    assert "Traceback" not in result.stderr
