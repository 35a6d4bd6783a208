"""``kill -9`` of the commands that evaluate and write: nothing that was answered is asked again, or lost."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

from sotopia_env import tasks
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage import read_run
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.cli.test_command_write import reply
from tests.sotopia_env.runs.model_runs import start, table_server
from tests.sotopia_env.writing.test_script import SCRIPT
from tests.sotopia_env.writing.test_writer import inspiration_files

AT_ONCE = 4
KILLS = 2


def kill_twice_and_finish(server: LoopbackServer, command: list[object], answers: int) -> None:
    """Kills the command at moments counted in requests, then lets it end; checks how often the server was asked."""
    generator = random.Random(3)
    for _ in range(KILLS):
        process = start(*command)
        wanted, deadline = server.total + generator.randint(3, answers // (KILLS + 1)), time.monotonic() + 240
        while server.total < wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it had ended before it was killed"
    process = start(*command)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert answers <= server.total <= answers + KILLS * AT_ONCE  # what was in progress is asked again


def test_a_killed_evaluation_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    asyncio.run(run_episodes(plan_episodes(tasks.generate("bargaining", 40, seed=1), [("silent",)]), run_dir=run))
    before = [episode.key for episode in read_run(run)]
    with table_server(latency=0.05) as server:
        command = ["evaluate", run, "--evaluator", "judge:local/tiny", "--api-base", server.api_base]
        kill_twice_and_finish(server, [*command, "--concurrency", AT_ONCE], len(before))
    assert [episode.key for episode in read_run(run)] == before
    assert all(episode.evaluations[-1].scores for episode in read_run(run))
    assert not list(run.glob("evaluations-*"))


def test_killed_writing_of_scenarios_continues(tmp_path: Path) -> None:
    (themes,) = inspiration_files(tmp_path, {"themes": 30})
    with LoopbackServer(reply=reply, latency=0.05) as server:
        command = ["tasks", "write", "scenarios", "--inspirations", themes, "-n", 30, "--castings", 1]
        command += ["--model", "local/tiny", "--api-base", server.api_base, "--set", f"models.concurrency={AT_ONCE}"]
        kill_twice_and_finish(server, [*command, "--out", tmp_path / "out"], 30)
    assert len(tasks.load(tmp_path / "out" / "tasks.jsonl")) == 30


def test_killed_writing_of_templates_continues(tmp_path: Path) -> None:
    script = tmp_path / "mill.txt"
    script.write_text(SCRIPT, encoding="utf-8")
    with LoopbackServer(reply=reply, latency=0.05) as server:
        command = ["tasks", "write", "templates", "--script", script, "--castings", 2]
        command += ["--model", "local/tiny", "--api-base", server.api_base, "--set", f"models.concurrency={AT_ONCE}"]
        kill_twice_and_finish(server, [*command, "--out", tmp_path / "out"], 21)
    assert len(tasks.load(tmp_path / "out" / "tasks.jsonl")) == 4
