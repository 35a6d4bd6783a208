"""The table of recorded play: losing deals and refused turns are counted, and means weigh tasks equally."""

import asyncio
import sys

import pytest

from sotopia_env import naming, tasks
from sotopia_env.reports.seat_results import SHARE, seat_results
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world import Rules
from studies.play_figures import figures, main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Offers at random in four bargains against two scripts; those who offer at random also accept losses."""
    folder = tmp_path_factory.mktemp("played") / "run"
    plans = plan_episodes(
        tasks.generate("bargaining", 4, seed=3),
        [("random-offers", "conceder"), ("random-offers", "boulware")],
        rules=Rules(max_turns=8),
    )
    evaluator = naming.make_evaluator("verified")
    asyncio.run(run_episodes(plans, evaluator=evaluator, run_dir=folder, progress=False))
    return folder


def test_a_policy_that_nobody_played_is_named(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["play_figures", str(run), "--policy", "random-ofers"])
    assert main() == 2
    assert "random-offers" in capsys.readouterr().err


def test_every_pair_has_a_row_with_the_share_of_losing_deals(run):
    rows = seat_results(read_run(run))
    sheet = figures(rows, ["random-offers"])
    assert [row[:3] for row in sheet.rows] == [("random-offers", "boulware", 8), ("random-offers", "conceder", 8)]
    for partner, losing in zip(sheet.column("partner"), sheet.column("losing deals"), strict=True):
        own = [row for row in rows if (row.policy, row.partner) == ("random-offers", partner)]
        assert losing == sum(row.values[SHARE] < 0 for row in own) / 8
    assert len(figures(rows).rows) == 4
    assert [row[2] for row in figures(rows, seat=0).rows] == [4] * 4


def test_the_command_prints_a_table(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["play_figures", str(run), "--policy", "conceder"])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "losing deals" in lines[0]
    assert sum("| conceder" in line for line in lines) == 1
    monkeypatch.setattr(sys, "argv", ["play_figures", str(run / "nothing")])
    assert main() == 2
