"""What a run would ask: never less from above than what it then asks, and nothing is sent to find out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sotopia_env.chat_model.pool import ModelOptions, ModelPool
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.spending.ledger import LedgerEntry, read_ledger
from sotopia_env.cli.app import app
from sotopia_env.naming import make_evaluator
from sotopia_env.runs import run_episodes
from sotopia_env.runs.forecast import (
    ModelForecast,
    RunForecast,
    StandInModels,
    forecast,
    forecast_evaluation,
    turn_limit,
)
from sotopia_env.runs.spec import RunSpec
from sotopia_env.world.dynamics import Rules
from tests.sotopia_env.runs.model_runs import table_server
from tests.sotopia_env.runs.rollout_doubles import make_task


def forecast_of(request: RunSpec, run: Path) -> RunForecast:
    models = StandInModels(request.models)
    return forecast(request.resolve(models), models, run)


def forecast_by_role(options: ModelOptions, tmp_path: Path, **more: Any) -> tuple[RunSpec, dict[str, ModelForecast]]:
    """A request, and its forecast by role."""
    values: dict[str, Any] = {"policies": ("local/tiny",), "tasks": "bargaining", "n": 3, "max_turns": 5}
    values |= {"evaluator": "judge:local/tiny:max_tokens=2000", "manner": {"max_tokens": 300}, "models": options}
    request = RunSpec(**{**values, **more})
    return request, {row.role: row for row in forecast_of(request, tmp_path / "run").models}


async def play(request: RunSpec, run: Path) -> None:
    models = ModelPool(request.models)
    try:
        resolved = request.resolve(models)
        models.open(run)
        await run_episodes(
            resolved.plans(), evaluator=resolved.evaluator, run_dir=run, progress=False, ledger=models.ledger
        )
    finally:
        await models.close()


def check_above(row: ModelForecast, entries: list[LedgerEntry]) -> None:
    assert len(entries) <= row.most_calls
    assert row.most_prompt is not None
    assert row.most_answer is not None
    assert sum(entry.prompt_tokens or 0 for entry in entries) <= row.most_prompt
    assert sum(entry.completion_tokens or 0 for entry in entries) <= row.most_answer


@pytest.mark.parametrize("policy", ["local/tiny", "local/tiny:reasks=0", "local/tiny:format=single"])
@pytest.mark.parametrize("reply", ["good", "useless"])
def test_from_above_it_holds_also_for_a_model_that_never_answers_usably(
    tmp_path: Path, policy: str, reply: str
) -> None:
    options = {} if reply == "good" else {"reply": "I would rather not. " * 30}
    with table_server(**options) as server:
        model_options = ModelOptions(api_base=server.api_base, price=Price(1, 1))
        request, rows = forecast_by_role(model_options, tmp_path, policies=(policy,))
        assert server.total == 0
        assert not (tmp_path / "run").exists()
        asyncio.run(play(request, tmp_path / "run"))
    entries = {role: [entry for entry in read_ledger(tmp_path / "run") if entry.role == role] for role in rows}
    for role, row in rows.items():
        check_above(row, entries[role])
        if reply == "good":  # and nothing fails: exactly the calls, with prompts no shorter than the first ones
            assert row.calls == len(entries[role])
            assert sum(entry.prompt_tokens or 0 for entry in entries[role]) > row.prompt / 2  # the server counts words
    assert rows["agent"].calls == 3 * 5
    assert rows["agent"].most_calls == 3 * 5 * (1 if "reasks" in policy else 3)
    assert forecast_of(request, tmp_path / "run").todo == 0


@pytest.mark.parametrize("reply", ["good", "useless"])
def test_an_evaluation_of_played_episodes_is_forecast_from_their_turns(tmp_path: Path, reply: str) -> None:
    options = {} if reply == "good" else {"reply": "I would rather not. " * 30}
    run = tmp_path / "run"
    words = ["rollout", "--tasks", "bargaining", "-n", "3", "--policy", "conceder", "--evaluator", "verified"]
    assert CliRunner().invoke(app, [*words, "--out", str(run)]).exit_code == 0
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with table_server(**options) as server:
        models = StandInModels(ModelOptions(api_base=server.api_base))
        judge = make_evaluator("judge:local/tiny:max_tokens=2000", model_factory=models.judge)
        (row,) = forecast_evaluation(run, judge, models).models
        words = ["evaluate", str(run), "--evaluator", "judge:local/tiny:max_tokens=2000"]
        words += ["--api-base", server.api_base]
        result = CliRunner().invoke(app, [*words, "--dry-run"])
        assert result.exit_code == 0, result.output
        assert str(row) in result.output
        assert (server.total, {path.name: path.read_bytes() for path in run.iterdir()}) == (0, before)
        CliRunner().invoke(app, words)
        check_above(row, list(read_ledger(run)))
        assert (row.calls, row.most_calls) == (3, 3 * 3)  # three episodes, one question and two re-asks
        again = CliRunner().invoke(app, [*words, "--dry-run"])
    if reply == "good":
        assert "no model would be called" in again.output


def test_costs_are_those_of_first_prompts_and_of_everything(tmp_path: Path) -> None:
    options = ModelOptions(api_base="http://localhost:9", price=Price(1, 2))
    _, rows = forecast_by_role(options, tmp_path)
    for row in rows.values():
        assert row.cost == pytest.approx(row.prompt / 1e6)
        assert row.most_cost == pytest.approx(((row.most_prompt or 0) + 2 * (row.most_answer or 0)) / 1e6)
    assert rows["agent"].most_answer == 3 * 5 * 3 * 300
    _, unpriced = forecast_by_role(ModelOptions(api_base="http://localhost:9"), tmp_path)
    assert (unpriced["agent"].cost, unpriced["agent"].most_cost) == (None, None)


def test_a_context_bounds_what_answers_without_a_limit_can_cost(tmp_path: Path, monkeypatch: Any) -> None:
    options = ModelOptions(api_base="http://localhost:9", price=Price(1, 1))
    spec = "local/tiny:context_limit=9000"
    _, rows = forecast_by_role(options, tmp_path, policies=(spec,), manner={}, evaluator="none")
    agent = rows["agent"]
    assert agent.most_answer == agent.most_prompt == 9000 * agent.most_calls
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    hosted, more = "openai/gpt-4o-mini", {"manner": {}, "evaluator": "none"}
    _, rows = forecast_by_role(ModelOptions(), tmp_path, policies=(hosted,), **more)
    assert rows["agent"].most_answer == 16_384 * rows["agent"].most_calls  # the model's own limit on answers


def test_without_a_limit_on_answers_tokens_have_no_limit(tmp_path: Path) -> None:
    options = ModelOptions(api_base="http://localhost:9", price=Price(1, 1))
    _, rows = forecast_by_role(options, tmp_path, manner={}, evaluator="none")
    assert (rows["agent"].most_prompt, rows["agent"].most_answer, rows["agent"].most_cost) == (None, None, None)
    assert rows["agent"].cost is not None
    assert "PROVIDER/MODEL:max_tokens" in str(rows["agent"])


def test_the_limits_of_the_run_and_uncounted_calls_are_listed(tmp_path: Path) -> None:
    options = ModelOptions(
        api_base="http://localhost:9",
        max_cost=2.5,
        max_tokens=100_000,
        retries=4,
        fallbacks=("local/spare",),
        price=Price(0, 0),
    )
    request, _ = forecast_by_role(options, tmp_path)
    text = "\n".join(forecast_of(request, tmp_path / "run").lines())
    for part in ("max_cost $2.5", "max_tokens 100000", "up to 4 times", "local/spare", "nothing was sent"):
        assert part in text


def test_a_mixed_pair_counts_only_the_turns_of_the_model(tmp_path: Path) -> None:
    options = ModelOptions(api_base="http://localhost:9")
    more = {"policies": (), "matchups": ("local/tiny:reasks=0 vs boulware",), "both_seats": False}
    _, rows = forecast_by_role(options, tmp_path, evaluator="none", **more)
    assert (rows["agent"].calls, rows["agent"].most_calls) == (9, 9)  # of three episodes of five turns it takes three


def test_among_more_than_two_one_may_take_the_turns_of_all(tmp_path: Path) -> None:
    options = ModelOptions(api_base="http://localhost:9")
    more = {"tasks": "everyday-groups", "n": 1, "max_turns": 9, "evaluator": "none"}
    request, rows = forecast_by_role(options, tmp_path, policies=("local/tiny:reasks=0",), **more)
    assert rows["agent"].calls == 9
    assert rows["agent"].most_calls == 9 * len(request.resolve(ModelPool(options)).tasks[0].agents) > 9 * 2


def test_a_dry_run_writes_and_sends_nothing(tmp_path: Path) -> None:
    with table_server() as server:
        words = ["rollout", "--tasks", "bargaining", "-n", "3", "--policy", "local/tiny", "--api-base", server.api_base]
        result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), "--dry-run"])
        assert result.exit_code == 0, result.output
        assert server.total == 0
    assert "agent local/tiny: " in result.output
    assert not (tmp_path / "run").exists()
    result = CliRunner().invoke(app, ["rollout", "--policy", "boulware", "--out", str(tmp_path / "run"), "--dry-run"])
    assert "no model would be called" in result.output


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(), 4),
        (Rules(max_turns=7), 7),
        (Rules(max_turns=7, turn_order="simultaneous"), 8),
        (Rules(max_rounds=3), 6),
    ],
)
def test_the_maximum_number_of_turns_per_seat(rules: Rules, expected: int) -> None:
    assert turn_limit(make_task(turns=4), rules) == expected
