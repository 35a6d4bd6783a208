"""Counting the turns of scripted policies whose turns are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sotopia_env.policies.examples import read_examples

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "studies" / "turn_quality.py"


def lines(*arguments: str) -> list[dict[str, int]]:
    """The counts of each line, by kind."""
    command = [sys.executable, str(SCRIPT), "--families", "bargaining", "campsite", *arguments]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return [{kind: int(line.partition(f"{kind} ")[2].split()[0]) for kind in KINDS} for line in out.splitlines()]


KINDS = ("turns", "readable", "legal", "with a move", "sensible")


def test_offers_better_than_no_outcome_are_sensible_and_words_are_not_moves():
    *_, offers = lines("--policy", "random-offers")
    assert offers == dict.fromkeys(KINDS, offers["turns"])
    assert offers["turns"] > 0
    *_, words = lines("--policy", "random")
    assert (words["legal"], words["with a move"], words["sensible"]) == (words["turns"], 0, 0)


def test_an_unknown_policy_is_an_error():
    with pytest.raises(subprocess.CalledProcessError) as caught:
        lines("--policy", "randm")
    assert caught.value.returncode == 2


def test_the_examples_beside_the_table_of_the_log_are_examples():
    first, second = read_examples(ROOT / "examples" / "two_turns.json")
    assert "propose" in first.answer
    assert "accept" in second.answer
