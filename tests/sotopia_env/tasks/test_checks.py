"""Mistakes in a task file: one sentence with file, line, field and mend; and numbers that contradict the worth."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.world.scenario import Task
from tests.errors import raises

Spec = dict[str, Any]
PRICE: Spec = {"name": "price", "kind": "number", "low": 0, "high": 300, "unit": "$"}
START: Spec = {"name": "start", "kind": "choice", "options": ["June 1", "June 15"]}
DEAL: Spec = {
    "protocol": {"kind": "agreement"},
    "issues": [PRICE, START],
    "worth": [
        {"constant": 186, "issues": {"price": {"per_unit": -1}, "start": {"June 1": 4, "June 15": 1}}},
        {"constant": -86, "issues": {"price": {"per_unit": 1}, "start": {"June 1": 1, "June 15": 4}}},
    ],
}
BALLOT: Spec = {
    "protocol": {"kind": "ballot", "options": ["lake", "museum"]},
    "worth": [{"options": {"lake": 1, "museum": 0}}] * 2,
}
CLAIMS: Spec = {
    "protocol": {"kind": "claims", "candidates": ["Ana Lee", "Ben Roe"], "answer": "Ana Lee"},
    "worth": [{"right": 1}] * 2,
}
ROW = {"terms": {"start": "June 1"}, "value": 1}


def table(*rows: Spec) -> Spec:
    return {"protocol": {"kind": "agreement"}, "issues": [START], "worth": [{"table": list(rows)}] * 2}


def changed(spec: Spec, change: Callable[[Spec], Any]) -> Spec:
    spec = copy.deepcopy(spec)
    change(spec)
    return spec


def task_json(outcome: Spec, **side: Any) -> Spec:
    fields: Spec = json.loads(tasks.starter_tasks()[0].model_dump_json())
    seats = [{"goals": [f"Goal {'ab'[seat]}."], **side} for seat in range(2)]
    fields["scenario"] |= {"outcome": outcome, "seats": seats, "context": "Two people meet."}
    return fields


def save(path: Path, *records: Spec) -> Path:
    path.write_text("".join(json.dumps({**record, "id": f"t{i}"}) + "\n" for i, record in enumerate(records)))
    return path


MISTAKES: list[tuple[str, Spec, dict[str, Any]]] = [
    (
        "a worth for an issue that does not exist",
        changed(DEAL, lambda s: s["worth"][1]["issues"].update(prize={"per_unit": 1})),
        {"field": "scenario.outcome.worth[1].issues", "nearest": "price", "got": "prize"},
    ),
    (
        "no worth for an issue",
        changed(DEAL, lambda s: s["worth"][1]["issues"].pop("price")),
        {"field": "scenario.outcome.worth[1].issues"},
    ),
    (
        "an option of no worth to any seat",
        changed(DEAL, lambda s: s["worth"][0]["issues"]["start"].pop("June 15")),
        {"field": "scenario.outcome.worth[0].issues.start"},
    ),
    (
        "a worth for an option that does not exist",
        changed(BALLOT, lambda s: s["worth"][0]["options"].update(musem=2)),
        {"field": "scenario.outcome.worth[0].options", "nearest": "museum", "got": "musem"},
    ),
    (
        "too many outcomes",
        changed(DEAL, lambda s: s["issues"][0].update(high=10**6)),
        {"field": "scenario.outcome.issues"},
    ),
    (
        "a quorum larger than the seats",
        changed(DEAL, lambda s: s["protocol"].update(needs={"quorum": 3})),
        {"field": "scenario.outcome.protocol.needs.quorum", "got": 3},
    ),
    (
        "a veto of an unknown seat",
        changed(DEAL, lambda s: s["protocol"].update(needs={"quorum": 2, "veto": ["agent_2"]})),
        {"field": "scenario.outcome.protocol.needs.veto", "nearest": "agent_1", "got": "agent_2"},
    ),
    (
        "an answer that is not a candidate",
        changed(CLAIMS, lambda s: s["protocol"].update(answer="Ana Lea")),
        {"field": "scenario.outcome.protocol.answer", "nearest": "Ana Lee", "got": "Ana Lea"},
    ),
    (
        "the worth of another protocol",
        changed(BALLOT, lambda s: s.update(worth=DEAL["worth"])),
        {"field": "scenario.outcome.worth[0]"},
    ),
    (
        "a range off its own grid",
        changed(DEAL, lambda s: s["issues"][0].update(step=7)),
        {"field": "scenario.outcome.issues.0.high", "nearest": "294"},
    ),
    (
        "a misspelt kind of protocol",
        changed(DEAL, lambda s: s["protocol"].update(kind="agrement")),
        {"field": "scenario.outcome.protocol.kind", "nearest": "agreement", "got": "agrement"},
    ),
    (
        "a misspelt kind of issue",
        changed(DEAL, lambda s: s["issues"][0].update(kind="numbr")),
        {"field": "scenario.outcome.issues.0.kind", "nearest": "number", "got": "numbr"},
    ),
    (
        "no kind",
        changed(DEAL, lambda s: s["issues"][0].pop("kind")),
        {"field": "scenario.outcome.issues.0.kind"},
    ),
    (
        "needs in one's own words",
        changed(DEAL, lambda s: s["protocol"].update(needs="everybody")),
        {"field": "scenario.outcome.protocol.needs", "got": "everybody"},
    ),
    (
        "a misspelt field that is needed",
        changed(DEAL, lambda s: s["protocol"].update(needs={"quorm": 2})),
        {"field": "scenario.outcome.protocol.needs.quorm", "nearest": "quorum", "got": 2},
    ),
    (
        "a field of a union whose tag is a field's name",
        changed(DEAL, lambda s: s["protocol"].update(needs={"quorum": 2, "veto": "agent_0"})),
        {"field": "scenario.outcome.protocol.needs.veto", "got": "agent_0"},
    ),
    (
        "a misspelt part of a worth",
        changed(DEAL, lambda s: s["worth"][0].update(isues=s["worth"][0].pop("issues"))),
        {"field": "scenario.outcome.worth.0", "nearest": "issues"},
    ),
    (
        "a step of nothing",
        changed(DEAL, lambda s: s["issues"][0].update(step=0)),
        {"field": "scenario.outcome.issues.0.step"},
    ),
    (
        "terms with a missing issue",
        table({"terms": {}, "value": 1}),
        {"field": "scenario.outcome.worth[0].table[0].terms"},
    ),
    (
        "terms with an unknown issue",
        table({"terms": {"stat": "June 1"}, "value": 1}),
        {"field": "scenario.outcome.worth[0].table[0].terms", "nearest": "start", "got": "stat"},
    ),
    (
        "terms with an unknown option",
        table({"terms": {"start": "June 2"}, "value": 1}),
        {"field": "scenario.outcome.worth[0].table[0].start", "nearest": "June 1", "got": "June 2"},
    ),
    ("an outcome without a value", table(ROW), {"field": "scenario.outcome.worth[0].table"}),
    ("an outcome valued twice", table(ROW, ROW), {"field": "scenario.outcome.worth[0].table[1]"}),
    (
        "one worth too many",
        changed(DEAL, lambda s: s["worth"].append(s["worth"][0])),
        {"field": "scenario.outcome.worth", "got": 3},
    ),
    (
        "no seat could gain by an agreement",
        changed(DEAL, lambda s: [worth.update(no_agreement=500) for worth in s["worth"]]),
        {"field": "scenario.outcome.worth"},
    ),
    (
        "no seat could gain by a decision",
        changed(BALLOT, lambda s: [worth.update(no_decision=1) for worth in s["worth"]]),
        {"field": "scenario.outcome.worth"},
    ),
    (
        "no seat could gain by the answer",
        changed(CLAIMS, lambda s: s.update(worth=[{"right": 0}] * 2)),
        {"field": "scenario.outcome.worth"},
    ),
]


@pytest.mark.parametrize(("outcome", "fields"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_explained_in_one_sentence(tmp_path: Path, outcome: Spec, fields: dict[str, Any]) -> None:
    file = save(tmp_path / "tasks.jsonl", task_json(DEAL), task_json(outcome))
    with raises(InvalidTaskError, file="tasks.jsonl", line=2, **fields) as error:
        tasks.load(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("outcome", [DEAL, BALLOT, CLAIMS, None])
def test_valid_tasks_are_loaded(tmp_path: Path, outcome: Spec) -> None:
    file = save(tmp_path / "tasks.jsonl", task_json(outcome))
    assert len(tasks.load(file)) == 1


def warnings_of(outcome: Spec, **side: Any) -> list[str]:
    task = Task.model_validate(task_json(outcome, **side))
    return [re.sub(r":.*", "", warning) for warning in tasks.warnings(task) if ".seats.0." in warning]


HOLIDAY = {"issues": [{"name": "days", "kind": "number", "low": 0, "high": 90}], "protocol": {"kind": "agreement"},
           "worth": [{"constant": 40, "issues": {"days": {"per_unit": -2}}, "no_agreement": 10},
                     {"issues": {"days": {"per_unit": 2}}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "side", "fields"),
    [
        (DEAL, {"goals": ["Pay at most $186, best on June 15, which adds 1."]}, []),
        (DEAL, {"goals": ["Pay at most $185."]}, ["goals.0"]),
        (DEAL, {"goals": ["Pay little.", "Pay $150."], "private_data": {"target_price": 150}}, []),
        (
            DEAL,
            {"goals": ["Pay little.", "Pay $1,500."], "private_info": "June 1 is worth 5."},
            ["goals.1", "private_info"],
        ),
        (HOLIDAY, {"goals": ["Beyond 15 days you lose; none is worth 10 points, each day costs 2."]}, []),
        (HOLIDAY, {"goals": ["Beyond 20 days you lose."]}, ["goals.0"]),
        (BALLOT, {"goals": ["The lake is worth 1 point to you, 3 to them."]}, ["goals.0"]),
        (CLAIMS, {"goals": ["You get 1 point, or 0.5."]}, ["goals.0"]),
        (None, {"goals": ["Pay $99."]}, []),
    ],
)
def test_numbers_that_contradict_the_worth_are_named(outcome: Spec, side: Spec, fields: list[str]) -> None:
    assert warnings_of(outcome, **side) == [f"scenario.seats.0.{field}" for field in fields]


def test_the_starter_tasks_give_no_warning() -> None:
    assert [tasks.warnings(task) for task in tasks.starter_tasks()] == [[]] * len(tasks.starter_tasks())


def test_validate_prints_warnings_and_still_accepts_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sotopia_env.cli.tasks import validate_tasks

    validate_tasks([str(save(tmp_path / "tasks.jsonl", task_json(DEAL, goals=["Pay at most $185."])))])
    streams = capsys.readouterr()
    assert "valid, 1 task, 0 errors" in streams.out
    assert "warning: task 't0': scenario.seats.0.goals.0: 185 " in streams.err


@pytest.mark.parametrize(
    ("constraints", "field"),
    [
        ({"ages": [[0, 150], [0, 9]]}, "characters.1"),
        (
            {"occupations": [["juggler"], []]},
            "characters.0",
        ),
        ({"relationships": ["friend"]}, "relationships.0"),
        ({"facts": {"home": "shared"}}, "relationships.0"),
    ],
)
def test_a_casting_that_contradicts_the_scenario_is_refused(tmp_path: Path, constraints: Spec, field: str) -> None:
    fields: Spec = json.loads(tasks.starter_tasks().get("aunts-piano/1").model_dump_json())
    fields["scenario"]["constraints"] = constraints
    with raises(InvalidTaskError, field=field):
        tasks.load(save(tmp_path / "t.jsonl", fields))
