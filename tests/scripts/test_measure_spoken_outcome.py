"""The measurement of spoken outcomes, against a model server whose answers are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sotopia_env.world.episode import write_episodes
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.outcome_tasks import acts, episode, riddle, sale

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "measure_spoken_outcome.py"

OUTCOME = {
    "protocol": {"kind": "agreement"},
    "issues": [{"name": "price", "kind": "number", "low": 0, "high": 100}],
    "worth": [{"issues": {"price": {"per_unit": -1}}}, {"issues": {"price": {"per_unit": 1}}}],
}


def dialogue(offer: str, answer: str, terms: object) -> dict[str, object]:
    turns = [{"seat": 0, "text": offer}, {"seat": 1, "text": answer}]
    return {"outcome": OUTCOME, "names": ["Ana", "Ben"], "turns": turns, "terms": terms}


def reader(body):
    """Reads the first turn's number as the price, whoever says what; "?" is no agreement, "!" no answer."""
    text = body["messages"][1]["content"]
    document = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert not any("move" in turn for turn in document["turns"])
    words = document["turns"][0]["argument"]
    if words == "!":
        return "They agreed."
    agreement = {"terms": {"price": int(words)}, "turns": {"agent_0": 1, "agent_1": 2}} if words.isdigit() else None
    return json.dumps({"reasoning": "So it seems.", "agreement": agreement})


def measure(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    with LoopbackServer(reply=reader) as server:
        command = [sys.executable, str(SCRIPT), "local/tiny", str(path), "--api-base", server.api_base, *options]
        environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
        return subprocess.run(command, capture_output=True, text=True, env=environment)


def numbers(output: str) -> dict[str, str]:
    return dict(line.split() for line in output.splitlines() if not line.startswith("unscored ("))


def test_dialogues_with_known_terms(tmp_path):
    rows = [
        *[dialogue("40", "Deal.", {"price": "40.00"})] * 4,  # exact
        dialogue("40", "Make it 50, and deal.", {"price": 50}),  # a deal, but another one
        dialogue("40", "No.", None),  # none, and one is read
        *[dialogue("?", "No.", None)] * 3,  # none
        dialogue("?", "All right, 40.", {"price": 40}),  # a deal, and none is read
        *[dialogue("!", "Deal.", {"price": 40})] * 2,  # no valid answer
    ]
    path, out = tmp_path / "dialogues.jsonl", tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = measure(path, "--out", str(out))
    assert run.returncode == 0, run.stderr
    assert numbers(run.stdout) == {
        "dialogues": "12",
        "unscored": "2",
        "known_deals": "8",
        "deals_read": "6",
        "exact": "4",
        "precision": "0.667",  # 4 of 6
        "recall": "0.500",  # 4 of 8
        "kappa": "0.583",  # observed 0.8, by chance 0.52
    }
    assert "unscored (2): " in run.stdout
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["read"] for row in written[:7]] == [{"price": 40}] * 6 + [None]
    assert written[4]["known"] == {"price": 50}


def test_recorded_episodes_are_read_without_their_moves(tmp_path):
    agreed = episode(sale(), acts("40", {"propose": {"price": 40}}), acts("Yes.", {"accept": 1}), key="a")
    silent = episode(sale(), acts("40", {"propose": {"price": 40}}), acts("", {"accept": 1}), key="b")
    other = episode(sale(), acts("50", {"propose": {"price": 40}}), acts("Yes.", {"accept": 1}), key="c")
    none = episode(sale(), "?", "No.", key="d")
    claims = episode(riddle(), acts("", {"claim": "Bo Li"}), key="e")
    write_episodes(tmp_path / "episodes.jsonl", [agreed, silent, other, none, claims])
    run = measure(tmp_path / "episodes.jsonl", "--reasks", "0")
    assert run.returncode == 0, run.stderr
    assert numbers(run.stdout) == {
        "dialogues": "4",
        "unscored": "1",
        "known_deals": "3",
        "deals_read": "2",
        "exact": "1",
        "precision": "0.500",
        "recall": "0.333",
        "kappa": "1.000",
    }
    assert "agreement.turns.agent_1: " in run.stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{}", "line 1"),
        (json.dumps(dialogue("40", "Deal.", {"price": 400})), "100"),
        (json.dumps(dialogue("40", "Deal.", {"cost": 40})), "terms"),
        (json.dumps({**dialogue("", "", None), "turns": [{"seat": 2, "text": "x"}]}), "turns.0.seat: "),
        (json.dumps(dialogue("4" * 20_000, "Deal.", None)), "argument: "),
        (json.dumps({**dialogue("40", "Deal.", None), "names": ["Ana"]}), "line 1"),
        ('{"schema_version": 1}', "line 1"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, reason):
    path = tmp_path / "dialogues.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    run = measure(path)
    assert run.returncode == 2
    assert reason in run.stderr
    assert "Traceback" not in run.stderr


def test_nothing_to_measure_has_no_ratio(tmp_path):
    path = tmp_path / "dialogues.jsonl"
    path.write_text("", encoding="utf-8")
    assert numbers(measure(path).stdout)["kappa"] == "n/a"
