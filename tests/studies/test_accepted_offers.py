"""The table of accepted offers: by their worth and the turns left, recounted from the records."""

import asyncio
import sys

import pytest

from sotopia_env import naming, tasks
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world import Rules
from studies.accepted_offers import COLUMNS, accepted_sheet, add_accepted, main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played") / "run"
    plans = plan_episodes(
        tasks.generate("bargaining", 12, seed=3),
        [("linear", "conceder"), ("linear", "boulware"), ("random-walk", "boulware")],
        rules=Rules(max_turns=8),
    )
    evaluator = naming.make_evaluator("verified")
    asyncio.run(run_episodes(plans, evaluator=evaluator, run_dir=folder, progress=False))
    return folder


def test_a_script_that_concedes_to_the_end_accepts_gains_in_its_last_turn_and_never_a_loss(run):
    accepted = {}
    for episode in read_run(run):
        add_accepted(episode, accepted, ["linear"])
    assert list(accepted) == ["linear"]
    gain_last, gain_before, loss_last, loss_before = accepted["linear"]
    assert all(map(len, accepted["linear"]))
    assert all(gain_last)
    assert not all(gain_before)
    assert not any(loss_last + loss_before)


def test_the_table_counts_what_the_records_say(run):
    """Offers that settle an episode are as many as its deals, whoever accepted them."""
    accepted, deals = {}, 0
    for episode in read_run(run):
        add_accepted(episode, accepted)
        deals += episode.stop.value == "settled"
    assert sum(sum(map(sum, kinds)) for kinds in accepted.values()) == deals
    sheet = accepted_sheet(accepted)
    assert sheet.column("accepted %") == sorted(accepted)
    assert sheet.column("turns") == [sum(map(len, accepted[name])) for name in sorted(accepted)]
    assert all(0 <= share <= 1 for column in COLUMNS for share in sheet.column(column) if share is not None)


def test_the_command_prints_the_policies_and_names_an_unknown_one(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["accepted_offers", str(run), "--policy", "linear"])
    assert main() == 0
    assert "linear" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["accepted_offers", str(run), "--policy", "linearly"])
    assert main() == 2
    assert "linear" in capsys.readouterr().err
