"""Runs against providers with limits: a rate limit fails no episode, and a request that always fails ends one only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sotopia_env.cli.app import app
from sotopia_env.storage import read_run
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.chat_model.test_window import Throttle


def rollout(server: LoopbackServer, path: Path, *more: object) -> Any:
    words = ["--policy", "local/tiny", "--api-base", server.api_base, "--tasks", "bargaining", "--max-turns", 4]
    arguments = ["rollout", *words, "--set", "models.retries=1", "--out", path, *more]
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_rate_limit_fails_none_of_24_episodes(tmp_path: Path) -> None:
    with LoopbackServer(script=Throttle(60, "rate_limit_after"), retry_after="0.05") as server:
        result = rollout(server, tmp_path / "run", "-n", 24)
        assert server.happened["rate_limit_after"]
    assert result.exit_code == 0, result.output
    episodes = list(read_run(tmp_path / "run"))
    assert len(episodes) == 24
    assert {episode.stop.value for episode in episodes} == {"turn limit"}


def test_a_request_that_always_fails_ends_its_episode_and_the_run_goes_on(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        assert rollout(server, tmp_path / "first", "-n", 6, "--concurrency", 1).exit_code == 0
        prompts = [str(request.body["messages"]) for request in server.requests]
        # A word that is in the prompts of one episode only.
        server.fails_on = sorted(set(prompts[0].split()) - set(" ".join(prompts[4:]).split()))[0]
        server.latency = 0.02
        result = rollout(server, tmp_path / "run", "-n", 6)
        assert "HTTP 500" in result.output
        assert len(list(read_run(tmp_path / "run"))) == 5
        server.fails_on = ""
        assert rollout(server, tmp_path / "run", "-n", 6).exit_code == 0
        assert len(list(read_run(tmp_path / "run"))) == 6
