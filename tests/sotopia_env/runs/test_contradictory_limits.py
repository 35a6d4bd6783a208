"""Limits that cannot all be meant: refused in one sentence, before anything is asked or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.spending.ledger import Totals
from sotopia_env.runs import ray_executor
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.cli.test_command_models import sotopia
from tests.sotopia_env.runs.model_runs import table_server

MODEL = ["--policy", "local/tiny"]
SCRIPTED = ["--policy", "silent", "--evaluator"]


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with table_server() as running:
        yield running


CONTRADICTIONS: list[tuple[list[object], str]] = [
    ([*MODEL, "--set", "manner.max_tokens=500", "--set", "models.tpm=499"], "tpm 499"),
    (["--policy", "local/tiny:max_tokens=500", "--set", "models.tpm=499"], "tpm 499"),
    (["--matchup", "silent vs local/tiny:max_tokens=500", "--set", "models.tpm=499"], "tpm 499"),
    (
        ["--policy", "best-of-2(local/tiny:max_tokens=500 by offer-worth)", "--set", "models.tpm=499"],
        "tpm 499",
    ),
    ([*SCRIPTED, "judge:local/tiny:max_tokens=500", "--set", "models.tpm=499"], "tpm 499"),
    ([*SCRIPTED, "verified+judge:local/tiny:max_tokens=500", "--set", "models.tpm=499"], "tpm 499"),
    (
        [*SCRIPTED, "mean(judge:local/tiny+judge:local/tiny:max_tokens=500)", "--set", "models.tpm=499"],
        "tpm 499",
    ),
    (
        [*SCRIPTED, "interview:local/tiny:views=external,max_tokens=500", "--set", "models.tpm=499"],
        "tpm 499",
    ),
    (
        [*MODEL, "--set", "manner.max_tokens=500", "--set", "models.max_tokens=499"],
        "max_tokens 499",
    ),
    (
        [*SCRIPTED, "judge:local/tiny:max_tokens=500", "--set", "models.max_tokens=499"],
        "max_tokens 499",
    ),
    (
        [*MODEL, "--set", "timeout=5", "--set", "models.timeout=10"],
        "models.timeout 10",
    ),
    ([*MODEL, "--set", "timeout=0"], "timeout: "),
    ([*MODEL, "--set", "timeout=nan"], "timeout: "),
    ([*MODEL, "--set", "models.timeout=-1"], "models.timeout: "),
    ([*MODEL, "--set", "models.timeout=inf"], "models.timeout: "),
    (
        [*MODEL, "--set", "models.rpm=100", "--set", "models.tpm=99"],
        "a token for each of rpm 100 requests",
    ),
    ([*MODEL, "--max-cost", 0], "--max-cost: "),
    ([*MODEL, "--set", "models.max_tokens=-1"], "models.max_tokens: expected a number of at least 1"),
    (
        [*MODEL, "--executor", "ray:3", "--set", "models.rpm=2"],
        "--executor: ",
    ),
    (
        [*MODEL, "--executor", "ray:3", "--set", "models.concurrency=2"],
        "--executor: ",
    ),
    (
        [*MODEL, "--executor", "ray:3", "--set", "manner.max_tokens=500", "--set", "models.tpm=1499"],
        "--executor: ",
    ),
    ([*MODEL, "--set", "models.tpm=99"], "one prompt"),
    (
        [*SCRIPTED, "judge:local/tiny", "--set", "models.tpm=99"],
        "one prompt",
    ),
    (
        [*MODEL, "--executor", "ray:10", "--set", "models.tpm=1000"],
        "one prompt",
    ),
    ([*SCRIPTED, "judge:local/tiny:temperature=2.1"], "temperature: "),
    ([*SCRIPTED, "judge:local/tiny:temperature=-0.1"], "temperature: "),
    ([*SCRIPTED, "judge:local/tiny:temperature=nan"], "temperature: "),
    ([*SCRIPTED, "interview:local/tiny:temperature=3"], "temperature: "),
]


@pytest.mark.parametrize(
    ("more", "sentence"), CONTRADICTIONS, ids=[" ".join(map(str, c[0][1:])) for c in CONTRADICTIONS]
)
def test_contradictions_are_one_sentence_and_code_2(
    server: LoopbackServer, tmp_path: Path, more: list[object], sentence: str
) -> None:
    options = ["--tasks", "bargaining", "-n", 2, "--api-base", server.api_base, "--out", tmp_path / "run"]
    result = sotopia("rollout", *more, *options, code=2)
    assert sentence in result.stderr
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert server.total == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--set", "models.rpm=0"), ("--set", "models.tpm=0"), ("--set", "models.concurrency=0"),
     ("--set", "models.retries=-1"), ("--concurrency", 0), ("--temperature", 2.1), ("--repeats", 0),
     ("--executor", "ray:0"), ("--max-turns", 0)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_by_name(
    server: LoopbackServer, tmp_path: Path, option: str, value: Any
) -> None:
    options = ["--api-base", server.api_base, "--out", tmp_path / "run", option, value]
    errors = sotopia("rollout", *MODEL, *options, code=2).stderr
    field, _, number = value.partition("=") if option == "--set" else (option, "", str(value))
    assert errors.startswith(f"sotopia: {field}")
    assert number.removeprefix("ray:") in errors
    assert errors.count("\n") == 1
    assert server.total == 0
    assert not (tmp_path / "run").exists()


def test_an_evaluation_is_held_to_the_same(server: LoopbackServer, tmp_path: Path) -> None:
    sotopia("rollout", "--policy", "silent", "--tasks", "bargaining", "-n", 1, "--out", tmp_path)
    judging = ["evaluate", tmp_path, "--evaluator", "judge:local/tiny:max_tokens=500", "--api-base", server.api_base]
    assert "tpm 499" in sotopia(*judging, "--set", "models.tpm=499", code=2).stderr
    assert "models.timeout 6" in sotopia(*judging, "--set", "timeout=5", "--set", "models.timeout=6", code=2).stderr
    assert server.total == 0
    judging[3] = "judge:local/tiny"
    assert "one prompt has about" in sotopia(*judging, "--set", "models.tpm=99", code=1).stderr
    assert server.total == 0
    sotopia(*judging, "--set", "models.tpm=100_000", "--set", "timeout=5")
    assert server.total == 1


def test_a_conversation_that_outgrows_a_minute_stops_the_run_which_continues_with_a_higher_limit(
    tmp_path: Path,
) -> None:
    command = ["rollout", *MODEL, "--tasks", "bargaining", "-n", 1, "--max-turns", 12, "--out", tmp_path]
    with table_server(reply=f'{{"action_type": "speak", "argument": "{"word " * 2000}"}}') as server:
        command += ["--api-base", server.api_base]
        stopped = sotopia(*command, "--set", "models.tpm=2_000", code=1)
        assert "one prompt" in stopped.stderr
        assert "the same command with a higher limit continues the run" in stopped.stderr
        assert read_failures(tmp_path) == ()
        sotopia(*command)
    assert len(list(read_run(tmp_path))) == 1


def test_a_short_episode_makes_requests_short_unless_they_are_said_to_be_long(tmp_path: Path) -> None:
    with table_server(latency=30.0) as slow:
        options = [
            "--tasks",
            "bargaining",
            "-n",
            1,
            "--api-base",
            slow.api_base,
            "--set",
            "models.retries=0",
            "--out",
            tmp_path,
        ]
        output = sotopia("rollout", *MODEL, "--set", "timeout=0.5", *options, code=1).output
    assert "1 failed, the first with Timeout: not finished within 0.5 s" in output or "no answer within 0.5" in output


def test_shares_of_the_limits_add_up_to_no_more_than_the_whole() -> None:
    options = ModelOptions(concurrency=10, rpm=7, tpm=100)
    share = options.share(3, Totals())
    assert (share.concurrency, share.rpm, share.tpm) == (3, 2, 33)


def test_a_run_without_models_may_have_more_workers_than_a_model_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    monkeypatch.setattr(ray_executor, "load_ray", lambda: loads.append(1))
    monkeypatch.setattr(ray_executor._Cluster, "play", lambda *_: None)
    command = ["rollout", "--policy", "silent", "--tasks", "bargaining", "-n", 1, "--out", tmp_path]
    sotopia(*command, "--executor", "ray:3", "--set", "models.concurrency=2")
    assert loads
