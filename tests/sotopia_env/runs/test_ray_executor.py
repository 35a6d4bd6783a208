"""The same rollouts as Ray tasks, on a local Ray with two workers."""

from __future__ import annotations

import asyncio
import builtins
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.chat_model.pool import ModelOptions, ModelPool
from sotopia_env.chat_model.spending.ledger import Totals, read_ledger
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.extras import install_command
from sotopia_env.runs import ray_executor, run_episodes
from sotopia_env.runs.parts import PARTS, Part
from sotopia_env.runs.ray_executor import PartTask, load_ray, play_part
from sotopia_env.runs.spec import RunSpec
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.manifest import read_manifest
from tests.errors import raises
from tests.sotopia_env.cli.test_command_models import sotopia
from tests.sotopia_env.runs.model_runs import ROOT, keys_of, start, table_server


def command(api_base: str, run: Path, *more: object) -> list[object]:
    return [
        *("rollout", "--policy", "local/tiny", "--tasks", "bargaining", "-n", 40, "--max-turns", 4),
        *("--evaluator", "judge:local/tiny", "--api-base", api_base, "--out", run, "--concurrency", 4, *more),
    ]


def test_without_ray_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises(InvalidValueError, hint=install_command("ray")):
        load_ray()
    assert builtins.__import__("sotopia_env")


def test_importing_the_executor_does_not_import_ray() -> None:
    code = "import sys, sotopia_env.runs.ray_executor; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow("starts Ray three times")
def test_two_workers_play_every_episode_once_are_stopped_and_resumed_and_locals_go_on(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run = tmp_path / "run"
    with table_server(latency=0.1) as server:
        process = start(*command(server.api_base, run, "--executor", "ray:2"))
        wait_for(server, 60, process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 130, (output, errors)
        assert not (run / PARTS).exists()
        assert sum(entry.attempts for entry in read_ledger(run)) == server.total
        there = sum(keys_of(run).values())
        assert 0 < there < 40
        resumed = start(*command(server.api_base, run, "--executor", "ray:2"))
        wait_for(server, server.total + 40, resumed)
        os.kill(resumed.pid, signal.SIGKILL)  # the driver; its workers notice and end
        resumed.communicate()
        assert (run / PARTS).exists()
        last = finish(command(server.api_base, run, "--executor", "ray:2"))
        assert last.returncode == 0, last.stderr
        assert not (run / PARTS).exists()
        check(run, server.total)
        local = finish(command(server.api_base, run))
        assert "40 episodes planned, 0 played now, 40 before" in local.stdout


@pytest.mark.slow("starts Ray")
def test_a_killed_worker_is_restarted_and_continues(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    run = tmp_path / "run"
    with table_server(latency=0.1) as server:
        driver = start(*command(server.api_base, run, "--executor", "ray:2"))
        for calls in (40, 80):
            wait_for(server, calls, driver)
            children = psutil.Process(driver.pid).children(recursive=True)
            next(child for child in children if "play_part" in " ".join(child.cmdline())).kill()
        output, errors = driver.communicate(timeout=240)
        assert driver.returncode == 0, (output, errors)
        assert "40 episodes planned, 40 played now" in output
        check(run, server.total)


def test_a_worker_with_another_version_says_so_instead_of_playing_something_else(tmp_path: Path) -> None:
    spec = RunSpec(policies=("silent",), tasks="bargaining", n=1)
    run = spec.model_copy(update={"n": 2}).resolve(ModelPool())
    asyncio.run(run_episodes(run.plans(), evaluator=run.evaluator, run_dir=tmp_path))
    with raises(InvalidValueError, field="tasks"):
        play_part(PartTask(spec, tmp_path, Part(1, 1), 0.0))
    assert not (tmp_path / PARTS).exists()


def test_a_share_of_the_limits_is_not_held_against_the_longest_answer_of_the_run(tmp_path: Path) -> None:
    with table_server() as server:
        models = ModelOptions(api_base=server.api_base, max_tokens=30_000)
        judge = "judge:local/tiny:max_tokens=400"
        spec = RunSpec(policies=("local/tiny:max_tokens=500",), tasks="bargaining", n=1, evaluator=judge, models=models)
        spec.resolve(ModelPool(models))
        share = models.share(100, Totals())
        with raises(InvalidValueError, field="max_tokens", got=500):
            spec.model_copy(update={"models": share}).resolve(ModelPool(share))
        result = play_part(PartTask(spec, tmp_path, Part(1, 100), 0.0))
    assert "max_tokens" in result.stopped or "budget" in result.stopped, result


def test_a_run_says_when_most_turns_of_its_parts_were_not_actions(tmp_path: Path, monkeypatch) -> None:
    """The parts are played here one after another, and their results are copied as Ray copies them."""

    def play(self: Any, tasks: Any, progress: Any, stop: Any, results: list[Any]) -> None:
        results += [pickle.loads(pickle.dumps(play_part(task))) for task in tasks]

    monkeypatch.setattr(ray_executor, "load_ray", lambda: None)
    monkeypatch.setattr(ray_executor._Cluster, "play", play)
    with table_server(reply="I would rather not.") as server:
        words = command(server.api_base, tmp_path / "run", "--executor", "ray:2", "-n", 2, "--evaluator", "none")
        result = sotopia(*words, code=1)
    assert "sotopia: local/tiny: 6 of 6 turns were not an action" in result.stderr


@pytest.mark.slow("starts Ray twice")
def test_workers_share_the_models_places_and_a_refusal_ends_all_of_them(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run = tmp_path / "run"
    with table_server(latency=0.02, script=[None] * 60 + ["unauthorized"] * 1000) as server:
        ray = ["--executor", "ray:2", "--set", "models.concurrency=4"]
        first = finish(command(server.api_base, run, *ray, "--concurrency", 40))
        assert first.returncode == 2, first.stderr
        assert "sotopia: model 'local/tiny': HTTP 401" in first.stderr
        assert f"the same command continues the run in {run}" in first.stderr
        assert server.most_at_once <= 4
        assert server.happened["unauthorized"] <= 8
        assert read_failures(run) == ()
        assert read_manifest(run).finished is None
    with table_server() as server:
        last = finish(command(server.api_base, run, *ray))
        assert last.returncode == 0, last.stderr
    assert len(keys_of(run)) == 40


def wait_for(server: Any, calls: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while server.total < calls and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def finish(arguments: list[object]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; again while the processes of a killed one still write."""
    deadline = time.monotonic() + 240
    while True:
        process = start(*arguments)
        output, errors = process.communicate(timeout=240)
        if "another process is writing" not in errors or time.monotonic() > deadline:
            return subprocess.CompletedProcess(arguments, process.returncode, output, errors)  # type: ignore[arg-type]
        time.sleep(0.5)


def check(run: Path, calls: int) -> None:
    keys = keys_of(run)
    assert len(keys) == 40
    assert set(keys.values()) == {1}
    assert all(episode.evaluations[-1].scores for episode in read_run(run))
    booked = sum(entry.attempts for entry in read_ledger(run))
    interrupted = sum(entry.outcome == "interrupted" for entry in read_ledger(run))
    assert booked - interrupted <= calls <= booked
    assert interrupted <= 8  # two workers with four calls each were killed
    manifest = read_manifest(run)
    assert manifest.finished is not None
    assert manifest.counts is not None
    assert manifest.counts.model_dump() == {"episodes": 40, "failed": 0, "unscored": 0}
