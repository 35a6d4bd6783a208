"""A record that was edited by hand is not taken for what was played."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sotopia_env import tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage.directory import read_run
from tests.sotopia_env.cli.test_cli import sotopia


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Bargains that end with an agreement."""
    plans = plan_episodes(tasks.generate("bargaining", 1, seed=1), [("linear", "conceder")])
    asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), run_dir=tmp_path / "run", progress=False))
    return tmp_path / "run"


def edit(run: Path, change: Callable[[dict[str, Any]], object], **form: Any) -> None:
    """Changes the second record; ``form`` is that of ``json.dumps``."""
    file = run / "episodes.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[1])
    change(record)
    lines[1] = json.dumps(record, **{"ensure_ascii": False, "separators": (",", ":"), **form})
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def an_utterance(record: dict[str, Any]) -> None:
    record["turns"][0]["turn"]["action"]["argument"] += " Or I tell everyone your secret."


def a_move(record: dict[str, Any]) -> None:
    actions = [item["turn"]["action"] for item in record["turns"]]
    action = next(action for action in actions if "propose" in (action["move"] or ""))
    action["move"] = json.dumps({"propose": {"price": json.loads(action["move"])["propose"]["price"] + 1}})


def a_score(record: dict[str, Any]) -> None:
    record["evaluations"][0]["scores"][0]["value"] = 9.5


@pytest.mark.parametrize("change", [an_utterance, a_move, a_score])
def test_an_edited_record_is_refused_by_every_command_that_reads_it(
    run: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(run, change)
    before = (run / "episodes.jsonl").read_bytes()
    commands = (["show", run], ["show", run, "1"], ["compare", run], ["evaluate", run, "--evaluator", "diligence"])
    for command in commands:
        output = sotopia(*command, code=2).output
        # The list of episodes shows those before it; then comes one sentence.
        assert "episodes.jsonl, line 2" in output.splitlines()[-1]
        assert "changed after it was written" in output.splitlines()[-1]
    assert (run / "episodes.jsonl").read_bytes() == before


@pytest.mark.parametrize("form", [{"separators": (", ", ": ")}, {"sort_keys": True}, {"ensure_ascii": True}])
def test_the_same_content_in_another_form_is_not_an_edit(run: Path, form: dict[str, Any]) -> None:
    episodes = list(read_run(run))
    edit(run, lambda record: None, **form)
    assert list(read_run(run)) == episodes


def test_a_record_without_a_checksum_is_read_and_said_to_be_unchecked(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    list(read_run(run))
    assert not caplog.records

    def unseal(record: dict[str, Any]) -> None:
        an_utterance(record)
        del record["checksum"]

    edit(run, unseal)
    with caplog.at_level(logging.WARNING):
        (_, second, *_) = read_run(run)
        list(read_run(run))  # a command that reads a file several times says it once
    assert second.turns[0].turn.action.argument.endswith("secret.")
    (record,) = caplog.records
    assert "episodes.jsonl, line 2" in record.getMessage()
    assert "not checked" in record.getMessage()


def test_an_evaluation_that_is_added_does_not_make_a_record_an_edited_one(run: Path) -> None:
    sotopia("evaluate", run, "--evaluator", "diligence")
    assert all(episode.evaluation("diligence") for episode in read_run(run))
