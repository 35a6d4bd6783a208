"""What a run would ask at most: never less than what it then asks, and nothing is sent to find out."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sotopia_env.chat_model import read_ledger
from sotopia_env.cli import app
from sotopia_env.dynamics import Rules
from sotopia_env.forecast import turn_limit
from tests.sotopia_env.model_runs import table_server
from tests.sotopia_env.rollout_doubles import make_task


def command(api_base: str, run: Path, *more: str) -> list[str]:
    fixed = ["rollout", "--tasks", "bargaining", "-n", "3", "--max-turns", "5", "--api-base", api_base]
    return [*fixed, "--out", str(run), "--max-completion-tokens", "300", *more]


@pytest.mark.parametrize("policy", ["local/tiny", "local/tiny:reasks=0", "local/tiny:format=single"])
@pytest.mark.parametrize("reply", ["good", "useless"])
def test_the_bound_holds_also_for_a_model_that_never_answers_usably(tmp_path: Path, policy: str, reply: str) -> None:
    options = {} if reply == "good" else {"reply": "I would rather not. " * 30}
    with table_server(**options) as server:
        words = command(server.api_base, tmp_path / "run", "--policy", policy, "--price", "1,1")
        words += ["--evaluator", "judge:local/tiny?max_tokens=2000"]
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


def test_a_mixed_pair_counts_only_the_turns_of_the_model() -> None:
    pair = ["--matchup", "local/tiny:reasks=0 vs boulware", "--no-both-seats"]
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
    assert "tokens without limit, since its answers have none (--max-completion-tokens)" in told.output


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
