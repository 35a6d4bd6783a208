"""Models that are not there, or not for this key: said in a sentence, before the run where that can be known."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.manifest import read_manifest
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.cli.test_command_models import sotopia
from tests.sotopia_env.runs.model_runs import answer, table_server

KEY = "sk-loopback-0123456789"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_COMPATIBLE_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with table_server() as running:
        yield running


def words(out: Path, *more: object) -> list[object]:
    return ["rollout", "--tasks", "bargaining", "-n", 200, "--max-turns", 4, "--out", out, *more]


BEFORE = [
    ("openai/gpt-4o-mini", "http://127.0.0.1:9/v1", "http://127.0.0.1:9"),
    ("anthropic/claude-x", "http://127.0.0.1:9", "http://127.0.0.1:9"),
    ("openai/gpt-4o-mimi", "URL", 'did you mean "gpt-4o-mini"'),
    ("openai/gpt-4o-mini", "REFUSING", "OPENAI_API_KEY"),
    ("groq/llama-x", "URL", "GROQ_API_KEY"),
]


@pytest.mark.parametrize(("model", "address", "sentence"), BEFORE)
def test_a_providers_model_is_looked_for_before_the_first_episode(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, address: str, sentence: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with table_server(key="another") as refusing:
        base = {"URL": server.api_base, "REFUSING": refusing.api_base}.get(address, address)
        for role in (["--policy", model], ["--policy", "silent", "--evaluator", f"judge:{model}"]):
            result = sotopia(*words(tmp_path / "run", *role, "--api-base", base), code=2)
            assert sentence in result.stderr
            assert result.stderr.count("\n") == 1
            assert KEY not in result.output
        assert (server.total, refusing.total) == (0, 0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["local/tiny", "openai/gpt-4o-mini"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [("not_found", "HTTP 404"), ("unauthorized", "HTTP 401"), ("quota", "exceeded your current quota")],
)
def test_the_first_refusal_ends_the_run_and_not_one_episode_after_the_other(
    tmp_path: Path, model: str, fault: str, message: str
) -> None:
    """Some servers list no models, and a key may be revoked during a run."""
    run = tmp_path / "run"
    with table_server(script=[None] * 9 + [fault] * 1000) as server:
        more = ["--policy", model, "--api-base", server.api_base, "--concurrency", 100, "--set", "models.concurrency=4"]
        result = sotopia(*words(run, *more), code=2)
        assert server.total <= 9 + 4  # those that were under way
        assert message in result.stderr
        assert result.stderr.splitlines()[-1].startswith(f"sotopia: model {model!r}: ")
        assert f"the same command continues the run in {run}" in result.stderr
        assert read_failures(run) == ()
        assert read_manifest(run).finished is None
    with table_server() as server:  # the key is there again, the server has moved
        more[3] = server.api_base
        sotopia(*words(run, *more))
    assert len(list(read_run(run))) == 200


def test_a_judge_that_refuses_ends_the_run_too_and_an_evaluation_keeps_its_verdicts(tmp_path: Path) -> None:
    with table_server(script=[None] * 3 + ["not_found"] * 99) as server:
        judge = ["--evaluator", "judge:local/tiny", "--api-base", server.api_base, "--concurrency", 2]
        errors = sotopia(*words(tmp_path / "a", "--policy", "silent", *judge), code=2).stderr
        assert "HTTP 404" in errors
        assert server.total <= 5
        assert read_failures(tmp_path / "a") == ()
        assert not any(episode.evaluations[-1].unscored for episode in read_run(tmp_path / "a"))
    run = tmp_path / "b"
    sotopia("rollout", "--policy", "silent", "--tasks", "bargaining", "-n", 9, "--evaluator", "none", "--out", run)
    with table_server(script=[None] * 3 + ["not_found"] * 99) as server:
        judge[3] = server.api_base
        errors = sotopia("evaluate", run, *judge, code=2).stderr
        assert f"the same command continues the evaluation of {run}" in errors
        assert server.total <= 5
    with table_server() as server:
        judge[3] = server.api_base
        sotopia("evaluate", run, *judge)
        assert server.total == 9 - 3
    assert all(episode.evaluations[-1].scores for episode in read_run(run))


def test_a_fallback_that_answers_keeps_the_run_going(tmp_path: Path) -> None:
    with table_server(models=("tiny", "other"), refuses=("tiny",)) as server:
        more = [
            "--policy",
            "local/tiny",
            "--set",
            "models.fallbacks=[local/other]",
            "--api-base",
            server.api_base,
            "-n",
            2,
        ]
        output = sotopia(*words(tmp_path, *more)).output
    assert "8 by a fallback" in output
    assert all(error.kind == "bad_request" for episode in read_run(tmp_path) for error in episode.errors)


def test_an_episode_records_the_failures_it_recovered_from(tmp_path: Path) -> None:
    faults = dict.fromkeys(("rate_limit", "server_error", "reset", "malformed"), 0.1)
    with table_server(faults=faults, seed=3) as server:
        more = ["--policy", "local/tiny", "--api-base", server.api_base, "-n", 12, "--evaluator", "none"]
        sotopia(*words(tmp_path, *more, "--set", "models.retries=12"))
        failed = sum(count for kind, count in server.happened.items() if kind in faults)
    errors = [error for episode in read_run(tmp_path) for error in episode.errors]
    assert len(errors) == failed > 5
    assert {error.kind for error in errors} <= {"rate_limit", "server", "connection", "malformed"}
    assert any("HTTP 429" in error.message for error in errors)
    for episode in read_run(tmp_path):
        turns = [error.turn for error in episode.errors if error.turn is not None]
        assert len(turns) == len(episode.errors)
        assert turns == sorted(turns)
        assert set(turns) <= set(range(len(episode.turns)))
    output = sotopia("show", tmp_path).output
    assert "call failed" in output


@pytest.mark.parametrize("model", ["local/tiny", "openai/gpt-4o-mini"])
def test_a_key_that_a_server_repeats_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """As its model's name, in an utterance, in its thinking, in a verdict, and in errors."""
    monkeypatch.setenv("TABLE_KEY", KEY)
    key_of = ["--api-key-env", "TABLE_KEY"]

    def reply(body: dict[str, Any]) -> str:
        return answer(body).replace("I have read", f"My key is {KEY}, I have read").replace(" on ", f" {KEY} on ")

    options = {"reply": reply, "reasoning": f"They gave me {KEY}.", "finish_reason": KEY, "echo_model": KEY}
    with table_server(**options, echo_key=True, script=["server_error", None, "rate_limit", "bad_request"]) as server:
        arguments = [
            "--policy",
            model,
            *key_of,
            "--api-base",
            server.api_base,
            "--set",
            f"models.cache_dir={tmp_path / 'cache'}",
        ]
        sotopia(*words(tmp_path / "run", *arguments, "-n", 3, "--evaluator", f"judge:{model}"), code=1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    names = {"episodes.jsonl", "failures.jsonl", "ledger.jsonl", "run.json", "answers.sqlite"}
    assert names <= {path.name for path in files}
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []
    assert "My key is $TABLE_KEY, I have read" in (tmp_path / "run" / "episodes.jsonl").read_text()


@contextmanager
def failing_server(answers: int) -> Iterator[LoopbackServer]:
    """A server that goes down after this many answers."""

    def reply(body: dict[str, Any]) -> str:
        server.outage = "server_error" if server.total >= answers else ""
        return answer(body)

    with table_server(reply=reply) as server:
        yield server


def test_an_outage_is_waited_for_and_then_ends_the_run_to_be_continued(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["-n", 20, "--policy", "local/tiny", "--set", "models.retries=0", "--evaluator", "judge:local/tiny"]
    with failing_server(30) as server:
        arguments += ["--api-base", server.api_base]
        result = sotopia(*words(run, *arguments, "--set", "models.patience=0.5"), code=2)
        assert "no answer within a patience of 0.5 s: HTTP 500" in result.stderr
        assert result.stderr.splitlines()[-1].endswith(f"the same command continues the run in {run}")
        assert read_failures(run) == ()
        assert not any(episode.evaluations[-1].unscored for episode in read_run(run))
        server.outage, server.reply = "", answer
        sotopia(*words(run, *arguments))
    assert len(list(read_run(run))) == 20
    with failing_server(10) as server:
        arguments[-1] = server.api_base
        judge = ["--evaluator", "judge:local/tiny:bands=true", *arguments[-2:], "--set", "models.retries=0"]
        result = sotopia("evaluate", run, *judge, "--set", "models.patience=0.3s", code=2)
        assert f"the same command continues the evaluation of {run}" in result.stderr
        server.reply, server.outage = answer, ""
        sotopia("evaluate", run, *judge, "--set", "models.patience=1m")
    assert all(episode.evaluations[-1].scores for episode in read_run(run))


def restore_later(server: LoopbackServer) -> None:
    while not server.outage:
        time.sleep(0.01)
    time.sleep(1.0)
    server.reply, server.outage = answer, ""


def test_a_short_outage_costs_no_episode(tmp_path: Path) -> None:
    with failing_server(30) as server:
        threading.Thread(target=lambda: restore_later(server)).start()
        sotopia(
            *words(
                tmp_path, "-n", 20, "--policy", "local/tiny", "--set", "models.retries=0", "--api-base", server.api_base
            )
        )
    assert len(list(read_run(tmp_path))) == 20
    assert read_failures(tmp_path) == ()


def test_invalid_patience_is_refused_by_name(tmp_path: Path) -> None:
    result = sotopia(*words(tmp_path / "run", "--policy", "silent", "--set", "models.patience=soon"), code=2)
    assert result.stderr.startswith("sotopia: models.patience: ")
