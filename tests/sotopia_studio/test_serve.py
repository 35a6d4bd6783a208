"""The command `sotopia serve`, as a process."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from sotopia_studio.answers import PROBLEM

from sotopia_env import naming, tasks
from sotopia_env.foundation.extras import install_command
from tests.sotopia_studio.conftest import free_port


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_terminating_a_server_ends_its_workers(sqlite_url: str) -> None:
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", str(free_port())]
    server = subprocess.Popen([*command, "--database", sqlite_url], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("Open http://")
    while not (workers := _children(server.pid)):
        time.sleep(0.1)
    assert len(workers) == 1
    server.terminate()
    server.wait(240)
    server.stdout.close()
    # The server does not wait for a worker that is still starting when the signal arrives.
    deadline = time.monotonic() + 240
    while any(map(_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_alive, workers))


@pytest.mark.parametrize("address", ["/episodes/{}/stream", "/api/v1/episodes/{}/events"])
def test_a_server_that_stops_ends_streams_without_a_word(sqlite_url: str, tmp_path: Path, address: str) -> None:
    token, port = _run("token", "t", "--scopes", "read,run", "--database", sqlite_url).stdout.strip(), free_port()
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", str(port), "--workers", "0"]
    command += ["--database", sqlite_url, "--set", f"data={tmp_path}"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    headers, retries = {"authorization": f"Bearer {token}"}, httpx.HTTPTransport(retries=8)
    base, task = f"http://127.0.0.1:{port}", next(iter(naming.task_set("bargaining", 1, 0, "medium")))
    with httpx.Client(base_url=base, headers=headers, transport=retries, timeout=60) as http:
        begun = {"task": task.model_dump(mode="json"), "policies": ["boulware"]}
        (episode,) = http.post("/api/v1/simulate", json=begun).json()["episodes"]
        with http.stream("GET", address.format(episode)) as stream:
            parts = stream.iter_text()
            assert "id: " in next(parts)
            server.terminate()
            # The episode goes on, so nobody is told that it is over.
            assert "close" not in "".join(parts)
    assert server.communicate(timeout=240)[1] == ""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_a_worker_ends_with_a_server_that_is_killed(sqlite_url: str) -> None:
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", "0", "--database", sqlite_url]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    while not (workers := _children(server.pid)):
        time.sleep(0.1)
    server.kill()
    server.wait(60)
    server.stdout.close()
    # A worker that is still starting looks for its server when it has started.
    deadline = time.monotonic() + 240
    while _alive(workers[0]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(workers[0])


def _run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "sotopia_env.cli.app", *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, **options)


def _children(pid: int) -> list[int]:
    return [int(number) for file in Path(f"/proc/{pid}/task").glob("*/children") for number in file.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_a_worker_that_is_killed_is_started_again(sqlite_url: str) -> None:
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", "0", "--database", sqlite_url]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    try:
        for _ in range(2400):
            if workers := _children(server.pid):
                break
            time.sleep(0.1)
        os.kill(workers[0], signal.SIGKILL)
        for _ in range(2400):
            again = [pid for pid in _children(server.pid) if pid != workers[0]]
            if again:
                break
            time.sleep(0.1)
        assert len(again) == 1
    finally:
        server.terminate()
        server.wait(240)
        server.stdout.close()
    assert not any(map(_alive, again))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the disk of a running process is limited by prlimit")
def test_a_full_disk_is_an_error_response_without_data_loss(sqlite_url: str, tmp_path: Path) -> None:
    token, second = (
        _run("token", name, "--scopes", "read,run", "--database", sqlite_url).stdout.strip() for name in ("a", "b")
    )
    port = free_port()
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", str(port), "--workers", "0"]
    command += ["--database", sqlite_url, "--set", f"data={tmp_path}"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    people = [person.model_dump(mode="json") for person in tasks.starter_cast().characters[:2]]
    headers, retries = {"authorization": f"Bearer {token}"}, httpx.HTTPTransport(retries=8)
    base = f"http://127.0.0.1:{port}/api/v1"
    try:
        with httpx.Client(base_url=base, headers=headers, transport=retries, timeout=30) as http:
            assert http.post("/agents", json=people[0]).status_code == 201
            task = next(iter(naming.task_set("bargaining", 1, 0, "medium"))).model_dump(mode="json")
            stored = http.post("/tasks", json=task).json()["id"]
            trust = {"name": "trust", "low": 0, "high": 10, "instruction": "How far does the agent trust the other?"}
            dimensions = http.post("/evaluation_dimensions", json={"name": "own", "dimensions": [trust]}).json()["id"]
            judged = {"dimensions": dimensions, "evaluator": "judge:local/m:api_base=http://127.0.0.1:9/v1"}
            before = http.get("/agents").json()["total"]
            limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, limits[1]))  # from now on every write fails
            run = {"spec": {"policies": ["boulware"], "tasks": "bargaining"}, "tasks": [stored]}
            answer = http.post("/agents", json=people[1])
            assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
            form, page = {"policies": "boulware", "tasks": "bargaining", "n": "1"}, {"accept": "text/html"}
            for answer in (
                http.post("/runs", json=run),  # its tasks are a file
                http.post("/runs", json=run, params={"dry_run": True}),
                http.post("/simulate", json={"task": stored, "policies": ["boulware"], **judged}),  # as are dimensions
                http.post(f"http://127.0.0.1:{port}/runs", data=form, headers=page),
            ):
                assert (answer.status_code, str(tmp_path) in answer.text) == (503, False), answer.text
            # A token whose last use cannot be recorded still reads.
            assert http.get("/agents", headers={"authorization": f"Bearer {second}"}).status_code == 200
            assert (http.get("/agents").json()["total"], http.get("/runs").json()["total"]) == (before, 0)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
            assert http.post("/agents", json=people[1]).status_code == 201
            assert http.post("/runs", json=run).status_code == 202
            assert http.get("/agents").json()["total"] == before + 1
    finally:
        server.terminate()
        server.wait(240)
        server.stdout.close()


def test_a_port_in_use_is_the_only_message(sqlite_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = _run("serve", "--port", str(listener.getsockname()[1]), "--database", sqlite_url)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["serve", "worker", "login"])
@pytest.mark.parametrize("kind", ["no database", "a newer version", "other tables", "no folder", "no server"])
def test_an_unusable_database_is_reported_in_one_sentence(command: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "studio.db"
    url = f"sqlite:///{file}"
    if kind == "no database":
        file.write_text("no database at all, but a text that is long enough to have a header of its own" * 9)
    elif kind == "no folder":
        (tmp_path / "file").write_text("")
        url = f"sqlite:///{tmp_path}/file/studio.db"
    elif kind == "no server":
        url = f"postgresql://nobody@127.0.0.1:{free_port()}/studio"
    else:
        with sqlite3.connect(file) as connection:
            if kind == "other tables":
                connection.execute("CREATE TABLE episode (id TEXT)")
            else:
                connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
                connection.execute("INSERT INTO alembic_version VALUES ('ffff')")
    result = _run(command, "--database", url, *(["--port", "0"] if command == "serve" else []))
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert url.rpartition("/")[2] in result.stderr


def test_data_of_an_earlier_version_opens_with_the_flags_in_the_message(tmp_path: Path) -> None:
    assert _run("login", cwd=tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["studio-data"]
    (tmp_path / "studio-data").rename(tmp_path / "studio")
    for command in (["login"], ["serve", "--port", "0"]):
        result = _run(*command, cwd=tmp_path)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1
    flags = result.stderr.split("add ")[1].split()
    assert _run("login", *flags, cwd=tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["studio"]


def test_a_refused_postgresql_connection_is_one_sentence(url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("of PostgreSQL")
    result = _run("login", "--database", f"{url.rpartition('/')[0]}/no_such_database")
    assert result.returncode == 2, result.stderr
    assert "no_such_database" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["serve"], ["worker"], ["login"], ["view", "runs/demo"]])
def test_without_the_extra_a_command_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    """A process in which the package's modules cannot be found, as in an installation without the extra."""
    hide = "import importlib.util as u, sys; real = u.find_spec; "
    hide += "u.find_spec = lambda name, *rest: None if name == 'uvicorn' else real(name, *rest); "
    run = f"{hide}sys.argv[1:] = {command!r}; from sotopia_env.cli.app import main; main()"
    result = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert result.returncode == 2, result.stderr
    assert install_command("serve") in result.stderr
    assert "Traceback" not in result.stderr
