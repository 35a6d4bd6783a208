"""Additional fields, headers and query parameters: in every request, in a run's identity, and never a secret in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sotopia_env.chat_model import make_model
from sotopia_env.cli.app import app
from sotopia_env.foundation.errors import InvalidValueError
from tests.sotopia_env.chat_model.test_contract import ask

SECRET = "header-secret-0123456789"
EXTRA = {"top_p": 0.9, "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}, "num_ctx": 8192}


def test_additions_are_in_every_request_and_in_the_parameters(way: Any, serve: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("GATEWAY_HEADER", SECRET)
    server = serve()
    query = {"api-version": "2024-10-21"} if way.spec.startswith("local/") else {}
    model = way.make(server, extra_body=EXTRA, header_env={"X-Gateway": "GATEWAY_HEADER"}, query=query)
    ask(model)
    [request] = server.requests
    assert {name: request.body.get(name) for name in EXTRA} == EXTRA
    assert {name.lower(): value for name, value in request.headers.items()}["x-gateway"] == SECRET
    assert request.query == query
    assert model.parameters["extra_body"] == EXTRA
    assert SECRET not in json.dumps(dict(model.parameters))
    assert SECRET not in repr(model)
    assert "extra_body" not in way.make(server).parameters  # as in earlier runs


@pytest.mark.parametrize(
    "options",
    [
        {"extra_body": {"messages": []}},
        {"extra_body": {"local/tiny": {"temperature": 2}}},
        {"extra_body": {"api_key": SECRET}},
        {"header_env": {"X-Gateway": "Bearer " + SECRET}},
        {"header_env": {"Authorization": "KEY"}},
        {"query": {"api_key": SECRET}},
        {"header_env": {"X-Gateway": "NO_SUCH_VARIABLE"}},
    ],
)
def test_additions_that_overwrite_ours_or_hold_a_secret_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make_model("local/tiny", api_base="http://127.0.0.1:9/v1", **options)
    assert SECRET not in str(caught.value)


def test_a_query_that_litellm_would_drop_is_refused(way: Any, serve: Any) -> None:
    if not way.spec.startswith("local/"):
        with pytest.raises(InvalidValueError) as caught:
            way.make(serve(), query={"api-version": "2024-10-21"})
        assert caught.value.field == "query"


def test_a_run_sends_and_records_the_additions(serve: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GATEWAY_HEADER", SECRET)
    server = serve()
    settings = ("models.extra_body={reasoning_effort: low}", "models.header_env={X-Gateway: GATEWAY_HEADER}")
    place = [
        "--api-base",
        server.api_base,
        "--out",
        tmp_path / "run",
        *(word for s in settings for word in ("--set", s)),
    ]
    more = ["--tasks", "bargaining", "-n", "1", "--max-turns", "2"]
    result = CliRunner().invoke(app, ["rollout", "--policy", "local/tiny", *map(str, place), *more])
    assert result.exit_code == 0, result.output
    assert {request.body["reasoning_effort"] for request in server.requests} == {"low"}
    texts = [path.read_text("utf-8") for path in (tmp_path / "run").iterdir() if path.is_file()]
    assert any("reasoning_effort" in text for text in texts)
    assert not any(SECRET in text for text in texts)
