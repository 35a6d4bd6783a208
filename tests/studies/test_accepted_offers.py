"""The table of accepted offers: by their worth and the turns left, recounted from the records."""

import asyncio
import json
import sys

import pytest

from sotopia_env import naming, tasks
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world import Rules
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.play.table import Table
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
    gain_last, gain_before, loss_last, loss_before = accepted["linear"].accepted
    assert all(map(len, accepted["linear"].accepted))
    assert accepted["linear"].losing
    assert not any(accepted["linear"].losing)
    assert all(gain_last)
    assert not all(gain_before)
    assert not any(loss_last + loss_before)


def test_the_table_counts_what_the_records_say(run):
    """Offers that settle an episode are as many as its deals, whoever accepted them."""
    accepted, deals = {}, 0
    for episode in read_run(run):
        add_accepted(episode, accepted)
        deals += episode.stop.value == "settled"
    assert sum(sum(map(sum, own.accepted)) for own in accepted.values()) == deals
    sheet = accepted_sheet(accepted)
    assert sheet.column("accepted %") == sorted(accepted)
    assert sheet.column("turns") == [sum(map(len, accepted[name].accepted)) for name in sorted(accepted)]
    assert all(0 <= share <= 1 for column in COLUMNS for share in sheet.column(column) if share is not None)


def test_own_offers_beyond_the_limit_are_counted_once_each():
    """A seat that offers its best and its worst price in turn, and repeats an open offer, lost half of them."""
    (task,) = tasks.generate("bargaining", 1, seed=3)
    first, second = task.agents
    table = Table(task, Rules(max_turns=9))
    table.seat({first: naming.make_policy("silent"), second: naming.make_policy("linear")})
    worth = table.observe(first).briefing.worths
    (best, *_, worst) = worth.rungs["price"]
    assert worst.worth < worth.disagreement < best.worth
    for rung in (best, worst, worst, best, worst):
        proposal = {"action_type": "speak", "argument": "Well?", "move": {"propose": {"price": rung.value}}}
        assert table.answer(first, json.dumps(proposal)) is None
        if table.acting:  # the last turn ends the episode, with the offer on the table
            table.answer(second, NO_ACTION)
    accepted = {}
    add_accepted(table.episode(), accepted, ["silent"])
    assert table.stop is not None
    assert accepted["silent"].losing == [False, True, False, True]


@pytest.mark.parametrize("order", ["round-robin", "simultaneous", "reactive"])
def test_offers_are_counted_for_the_seat_that_makes_them_in_every_order(order):
    """`linear` never offers a loss, whatever its partner offers at the same time."""
    games = tasks.generate("bargaining", 6, seed=3)
    plans = plan_episodes(games, [("linear", "random-walk")], rules=Rules(max_turns=8, turn_order=order))
    accepted = {}
    for episode in asyncio.run(run_episodes(plans, progress=False)).episodes:
        add_accepted(episode, accepted)
    assert all(own.losing and not any(own.losing) for own in accepted.values())


def test_the_command_prints_the_policies_and_names_an_unknown_one(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["accepted_offers", str(run), "--policy", "linear"])
    assert main() == 0
    assert "linear" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["accepted_offers", str(run), "--policy", "linearly"])
    assert main() == 2
    assert "linear" in capsys.readouterr().err
