"""The flag ``--probe``: when seats are asked what they believe, in a run's record and in its evaluations."""

from __future__ import annotations

from pathlib import Path

import pytest

from sotopia_env import naming
from sotopia_env.storage import read_run
from sotopia_env.storage.manifest import read_manifest
from tests.sotopia_env.cli.test_interviews import sotopia

PLAY = ("rollout", "--tasks", "mini_mafia", "-n", 2, "--policy", "bayesian")


def moments(run: Path) -> set[int]:
    return {belief.turns for episode in read_run(run) for one in episode.evaluations for belief in one.beliefs}


def test_a_run_asks_after_every_turn_and_its_record_says_so(tmp_path):
    run = tmp_path / "run"
    sotopia(*PLAY, "--evaluator", "verified+facts", "--probe", "turns", "--out", run)
    assert len(moments(run)) == 10
    assert [spec["evaluator"] for spec in read_manifest(run).specs] == ["verified+facts:probe=turns"]


def test_a_recorded_run_is_asked_later(tmp_path):
    run = tmp_path / "run"
    sotopia(*PLAY, "--out", run)
    assert moments(run) == set()
    sotopia("evaluate", run, "--evaluator", "facts", "--probe", "none")
    assert moments(run) == set()
    sotopia("evaluate", run, "--evaluator", "facts", "--probe", "turns")
    assert len(moments(run)) == 10


MISTAKES = [
    (("--tasks", "bargaining", "--evaluator", "verified+facts", "--probe", "end"), "mini_mafia or briefing"),
    (("--tasks", "mini_mafia", "--evaluator", "verified", "--probe", "end"), "verified+facts"),
    (("--tasks", "mini_mafia", "--evaluator", "facts", "--probe", "turn"), "turns"),
    (("--tasks", "mini_mafia", "--evaluator", "facts:probe=end", "--probe", "turns"), "says otherwise"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_probe_without_facts_or_without_the_evaluator_is_refused_with_what_to_do(arguments, message, tmp_path):
    result = sotopia("rollout", "-n", 1, "--policy", "random", *arguments, "--out", tmp_path / "run", code=2)
    assert message in result.output
    assert not (tmp_path / "run").exists()


def test_a_run_without_facts_is_not_asked(tmp_path):
    run = tmp_path / "run"
    sotopia("rollout", "--tasks", "bargaining", "-n", 1, "--policy", "random", "--out", run)
    assert "--probe" in sotopia("evaluate", run, "--evaluator", "facts", "--probe", "end", code=2).output


NAMES = [
    ("facts", "facts:probe=turns"),
    ("verified+facts", "verified+facts:probe=turns"),
    ("facts:samples=4", "facts:probe=turns,samples=4"),
    ("facts:probe=turns", "facts:probe=turns"),
    ("mean(facts+diligence)", "mean(facts:probe=turns+diligence)"),
    ("facts:interviewee=(bayesian:doubt=0.2)", "facts:probe=turns,interviewee=(bayesian:doubt=0.2)"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_the_option_is_written_into_the_name_of_the_member_that_asks(name, expected):
    assert naming.with_probes(name, "turns") == expected
    naming.make_evaluator(expected)
