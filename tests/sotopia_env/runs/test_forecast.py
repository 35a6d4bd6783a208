"""What a run would ask at most and as a rule: never less than what it then asks, and nothing is sent to find out."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sotopia_env.chat_model import Price, RetryPolicy, Totals, read_ledger
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.cli.app import app
from sotopia_env.runs import run_episodes_async
from sotopia_env.runs.forecast import RunForecast, forecast, turn_limit
from sotopia_env.runs.rehearsal import RehearsedModels
from sotopia_env.runs.spec import RunSpec
from sotopia_env.world.dynamics import Rules
from tests.sotopia_env.runs.model_runs import table_server
from tests.sotopia_env.runs.rollout_doubles import make_task


def command(api_base: str, run: Path, *more: str) -> list[str]:
    fixed = ["rollout", "--tasks", "bargaining", "-n", "3", "--max-turns", "5", "--api-base", api_base]
    return [*fixed, "--out", str(run), "--set", "manner.max_tokens=300", *more]


@pytest.mark.parametrize("policy", ["local/tiny", "local/tiny:reasks=0", "local/tiny:format=single"])
@pytest.mark.parametrize("reply", ["good", "useless"])
def test_the_bound_holds_also_for_a_model_that_never_answers_usably(tmp_path: Path, policy: str, reply: str) -> None:
    options = {} if reply == "good" else {"reply": "I would rather not. " * 30}
    with table_server(**options) as server:
        words = command(server.api_base, tmp_path / "run", "--policy", policy, "--set", "models.price='1,1'")
        words += ["--evaluator", "judge:local/tiny:max_tokens=2000"]
        told = CliRunner().invoke(app, [*words, "--dry-run"])
        assert told.exit_code == 0, told.output
        assert server.total == 0
        assert not (tmp_path / "run").exists()
        CliRunner().invoke(app, words)
    assert "3 episodes planned, 0 are there, 3 would be played" in told.output
    assert "nothing was sent" in told.output
    bounds = {line.split()[0]: line for line in told.output.splitlines() if line.startswith(("agent ", "judge "))}
    for role in ("agent", "judge"):
        entries = [entry for entry in read_ledger(tmp_path / "run") if entry.role == role]
        numbers = [int(word) for word in bounds[role].replace(",", "").split() if word.isdigit()]
        calls, prompt, completion = numbers[:3]
        assert len(entries) <= calls
        assert sum(entry.prompt_tokens for entry in entries) <= prompt
        assert sum(entry.completion_tokens for entry in entries) <= completion
        if reply == "useless" and role == "agent" and "reasks" not in policy:
            assert calls == 3 * 5 * 3  # three episodes, five turns, one question and two re-asks
            assert len(entries) == 3 * 3 * 3  # three silent turns end an episode


@pytest.mark.parametrize("reply", ["good", "useless"])
def test_an_evaluation_of_played_episodes_is_forecast_from_their_turns(tmp_path: Path, reply: str) -> None:
    options = {} if reply == "good" else {"reply": "I would rather not. " * 30}
    run = tmp_path / "run"
    words = ["rollout", "--tasks", "bargaining", "-n", "3", "--policy", "conceder", "--evaluator", "verified"]
    assert CliRunner().invoke(app, [*words, "--out", str(run)]).exit_code == 0
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with table_server(**options) as server:
        words = ["evaluate", str(run), "--evaluator", "judge:local/tiny:max_tokens=2000", "--set", "models.price='1,1'"]
        words += ["--api-base", server.api_base]
        told = CliRunner().invoke(app, [*words, "--dry-run"])
        assert told.exit_code == 0, told.output
        assert (server.total, {path.name: path.read_bytes() for path in run.iterdir()}) == (0, before)
        CliRunner().invoke(app, words)
        entries = list(read_ledger(run))
        again = CliRunner().invoke(app, [*words, "--dry-run"])
    assert "3 episodes, 0 have these scores, 3 would be evaluated" in told.output
    line = next(line for line in told.output.splitlines() if line.startswith("judge "))
    calls, prompt, completion = [int(word) for word in line.replace(",", "").split() if word.isdigit()][:3]
    assert len(entries) <= calls == 3 * 3  # three episodes, one question and two re-asks
    assert sum(entry.prompt_tokens or 0 for entry in entries) <= prompt
    assert sum(entry.completion_tokens or 0 for entry in entries) <= completion
    if reply == "good":
        assert "3 have these scores, 0 would be evaluated" in again.output
        assert "no model would be asked" in again.output


PAID_FOR_NOTHING = ("malformed", "empty", "truncated")


def forecast_of(request: RunSpec, run: Path) -> RunForecast:
    models = RehearsedModels(request.models)
    return forecast(request.resolve(models), models, run)


def foreseen(options: ModelOptions, tmp_path: Path, **more: Any) -> tuple[RunSpec, dict[tuple[str, str], Any]]:
    given: dict[str, Any] = {"policies": ("local/tiny",), "tasks": "bargaining", "n": 2, "max_turns": 4}
    given |= {"evaluator": "judge:local/tiny:max_tokens=2000", "manner": {"max_tokens": 300}, "models": options}
    request = RunSpec(**{**given, **more})
    models = forecast_of(request, tmp_path / "run").models
    return request, {(each.model, each.role): each for each in models}


async def play(request: RunSpec, run: Path) -> None:
    models = ModelPool(request.models)
    try:
        resolved = request.resolve(models)
        models.open(run)
        await run_episodes_async(
            resolved.plans(),
            evaluator=resolved.evaluator,
            run_dir=run,
            concurrency=1,
            progress=False,
            ledger=models.ledger,
        )
    finally:
        await models.close()


@pytest.mark.parametrize("fault", PAID_FOR_NOTHING)
def test_answers_that_are_paid_for_and_cannot_be_used_are_within_the_bound(tmp_path: Path, fault: str) -> None:
    """The server counts what it would charge, the answers that never reached the ledger included."""
    charged = [0, 0]

    def reply(body: dict[str, Any]) -> str:
        text = "I would rather not. " * 30
        charged[0] += sum(len(message["content"].split()) for message in body["messages"])
        charged[1] += len(text.split())
        return text

    with table_server(reply=reply, script=itertools.cycle([fault, fault, None])) as server:
        options = ModelOptions(api_base=server.api_base, retries=RetryPolicy(retries=2, base=0.0), price=Price(1, 1))
        request, found = foreseen(options, tmp_path)
        asyncio.run(play(request, tmp_path / "run"))
        agent, judge = found["local/tiny", "agent"].bound, found["local/tiny", "judge"].bound
        entries = list(read_ledger(tmp_path / "run"))
        sent = sum(entry.attempts for entry in entries)
        assert all(entry.attempts == 3 for entry in entries)
        assert agent.calls + judge.calls < sent == server.total <= agent.requests + judge.requests
    assert charged[0] <= agent.prompt + judge.prompt
    assert charged[1] <= agent.completion + judge.completion
    assert agent.requests == 3 * agent.calls


def test_every_fallback_may_have_to_be_paid_for_too_at_its_own_price(tmp_path: Path) -> None:
    with table_server(script=itertools.cycle(["empty", "empty", "empty", None])) as server:
        prices = {"local/tiny": Price(1, 1), "local/gpt-4o-mini": Price(10, 10)}
        options = ModelOptions(
            api_base=server.api_base, fallbacks=("local/gpt-4o-mini",), retries=RetryPolicy(2, 2, 0.0), price=prices
        )
        request, found = foreseen(options, tmp_path)
        asyncio.run(play(request, tmp_path / "run"))
    totals = Totals()
    for entry in read_ledger(tmp_path / "run"):
        totals.add(entry)
    assert (totals.fallbacks, totals.answered) == (2 * 4 + 2, 2 * 4 + 2)
    first, spare = found["local/tiny", "agent"], found["local/gpt-4o-mini", "agent"]
    assert (spare.bound, spare.expected.calls) == (first.bound, 0)
    assert spare.cost(spare.bound) == pytest.approx(10 * first.cost(first.bound))
    assert totals.cost <= sum(each.cost(each.bound) for each in found.values())
    assert "none unless another model fails" in str(spare)


def test_what_is_expected_is_what_a_good_run_asks(tmp_path: Path) -> None:
    with table_server() as server:
        options = ModelOptions(api_base=server.api_base, price=Price(1, 1))
        request, found = foreseen(options, tmp_path)
        asyncio.run(play(request, tmp_path / "run"))
        for role in ("agent", "judge"):
            entries = [entry for entry in read_ledger(tmp_path / "run") if entry.role == role]
            expected = found["local/tiny", role].expected
            assert expected.calls == expected.requests == len(entries)
            assert 0.5 < sum(entry.prompt_tokens for entry in entries) / expected.prompt < 2.0


def test_a_context_bounds_what_answers_without_a_limit_can_cost(tmp_path: Path, monkeypatch: Any) -> None:
    options = ModelOptions(api_base="http://localhost:9", price=Price(1, 1))
    spec = "local/tiny:context_limit=9000"
    _, found = foreseen(options, tmp_path, policies=(spec,), manner={}, evaluator="none")
    agent = found["local/tiny", "agent"]
    assert agent.bound.completion == 9000 * agent.bound.requests
    assert agent.bound.prompt <= 9000 * agent.bound.requests
    assert "to a context of 9000 tokens" in str(agent)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    hosted, more = "openai/gpt-4o-mini", {"manner": {}, "evaluator": "none"}
    _, found = foreseen(ModelOptions(), tmp_path, policies=(hosted,), **more)
    agent = found[hosted, "agent"]
    assert agent.bound.completion == 16_384 * agent.bound.requests  # the model's own limit on answers
    assert agent.cost(agent.bound) > 10 * agent.cost(agent.expected)


def test_the_limits_of_the_run_are_said_beside_the_bound(tmp_path: Path) -> None:
    options = ModelOptions(api_base="http://localhost:9", price=Price(1, 1), max_cost=2.5, max_tokens=100_000)
    request, _ = foreseen(options, tmp_path)
    *_, total, stops, end = forecast_of(request, tmp_path / "run").lines()
    assert re.fullmatch(
        r"in all at most \$\d+\.\d{4}, with every re-ask.*; about \$0\.\d{4} if nothing goes wrong", total
    )
    assert stops == "the run stops before it would pass max_cost $2.5 or max_tokens 100000"
    assert end == "nothing was sent"


def test_a_mixed_pair_counts_only_the_turns_of_the_model() -> None:
    pair = ["--matchup", "local/tiny:reasks=0 vs boulware", "--set", "both_seats=false"]
    with table_server() as server:
        told = CliRunner().invoke(app, [*command(server.api_base, Path("/nowhere"), *pair), "--dry-run"])
    assert "agent local/tiny: at most 9 calls" in told.output  # three episodes of five turns, of which it takes three
    assert "price unknown" in told.output


def test_without_a_limit_on_answers_there_is_none_on_tokens_and_that_is_said(tmp_path: Path) -> None:
    words = [
        "rollout",
        "--policy",
        "local/tiny",
        "--tasks",
        "bargaining",
        "-n",
        "1",
        "--api-base",
        "http://localhost:9",
    ]
    told = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), "--dry-run"])
    assert "tokens without limit, since its answers have none (PROVIDER/MODEL:max_tokens=…)" in told.output
    assert re.search(r"about 20 calls, \d+ prompt tokens and 1200 answer tokens if nothing goes wrong", told.output)
    assert "in all without limit, with every re-ask, paid failure and fallback" in told.output


def test_a_run_without_models_asks_none(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["rollout", "--policy", "boulware", "--out", str(tmp_path / "run"), "--dry-run"])
    assert "no model would be asked" in told.output


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(), 4),
        (Rules(max_turns=7), 7),
        (Rules(max_turns=7, turn_order="simultaneous"), 8),
        (Rules(max_rounds=3), 6),
    ],
)
def test_most_turns(rules: Rules, expected: int) -> None:
    assert turn_limit(make_task(turns=4), rules) == expected
