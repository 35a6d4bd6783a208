"""The file format: what is refused, with the place and the mend, and what is described."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.outcomes.descriptions import describe_space, describe_worth
from tests.errors import raises

from .specs import ballot, claims, names, trade


def changed(spec: OutcomeSpec, path: str, value: Any) -> dict[str, Any]:
    """The specification as JSON with ``value`` at ``path``; ``...`` deletes."""
    document: Any = copy.deepcopy(spec.model_dump(mode="json"))
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    parent = document
    for step in steps:
        parent = parent[step]
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    return document  # type: ignore[no-any-return]


MISTAKES: list[tuple[OutcomeSpec, str, Any, str]] = [
    (
        trade(),
        "worth/1/issues/prize",
        {"per_unit": 1},
        {"field": "worth[1].issues", "nearest": "price"},
    ),
    (trade(), "worth/1/issues/price", ..., {"field": "worth[1].issues"}),
    (trade(), "worth/0/issues/start/June 15", ..., {"field": "worth[0].issues.start"}),
    (trade(), "worth/0/issues/start/May", 1, {"field": "worth[0].issues.start"}),
    (trade(), "worth/0/issues/price", {"each": 1}, {"field": "worth[0].issues.price"}),
    (trade(), "worth/0/issues/price/per_unit", True, {"field": "worth.0.additive.issues.price.per_unit"}),
    (trade(), "worth/0/issues/price/per_unit", float("nan"), {"field": "worth.0.additive.issues.price.per_unit"}),
    (trade(), "worth/0/per_turn", -1, {"field": "worth.0.additive.per_turn"}),
    (
        trade(),
        "worth/0",
        {"options": {"a": 1}},
        {"field": "worth[0]"},
    ),
    (trade(), "worth/0", {"x": 1}, {"field": "worth.0"}),
    (trade(), "protocol/needs", {"quorum": 3}, {"field": "protocol.needs.quorum"}),
    (
        trade(),
        "protocol/needs",
        {"quorum": 2, "veto": ["agent_2"]},
        {"field": "protocol.needs.veto", "nearest": "agent_1"},
    ),
    (trade(), "protocol/needs", {"quorum": 2, "veto": ["Ana"]}, {"field": "protocol.needs.veto"}),
    (trade(), "protocol/needs", {"quorum": 1}, {"field": "protocol.needs.quorum.quorum"}),
    (trade(), "protocol/needs", "everyone", {"field": "protocol.needs"}),
    (trade(), "protocol/kind", "auction", {"field": "protocol.kind"}),
    (trade(), "issues", [], {"field": "issues"}),
    (trade(), "issues/1/name", "PRICE", {"field": "issues"}),
    (trade(), "issues/1/options", ["a", "A"], {"field": "issues.1.choice.options"}),
    (trade(), "issues/0/low", 0.5, {"field": "issues.0.number.high"}),
    (ballot(), "worth/2/options/zoo", ..., {"field": "worth[2].options"}),
    (ballot(), "worth/2/options/zo", 1, {"field": "worth[2].options", "nearest": "zoo"}),
    (ballot(), "issues", [{"name": "n", "kind": "items", "count": 1}], {"field": "issues"}),
    (claims(), "protocol/answer", "Ana Li", {"field": "protocol.answer", "nearest": "Ana Lee"}),
    (claims(), "protocol/candidates", ["Ana Lee", "ANA lee"], {"field": "protocol.candidates"}),
    (claims(), "worth/0/wrong", 2, {"field": "worth.0.claims.wrong"}),
]


@pytest.mark.parametrize(("spec", "path", "value", "fields"), MISTAKES, ids=[f"{m[1]}={m[2]}"[:40] for m in MISTAKES])
def test_a_mistake_is_named_with_its_place(spec: OutcomeSpec, path: str, value: Any, fields: dict[str, Any]) -> None:
    with raises(ValidationError, **fields):
        OutcomeSpec.model_validate(changed(spec, path, value))


@pytest.mark.parametrize("spec", [trade(), trade(3), ballot(), claims()])
def test_a_specification_survives_json(spec: OutcomeSpec) -> None:
    assert OutcomeSpec.model_validate_json(spec.model_dump_json()) == spec


ISSUES = [{"name": "wood", "kind": "items", "count": 1}]
TABLE = [{"terms": {"wood": {"agent_0": 1}}, "value": 0.1}, {"terms": {"wood": {"agent_1": 1}}, "value": 3}]


@pytest.mark.parametrize(
    ("table", "field"),
    [
        (TABLE[:1], "worth[0].table"),
        ([*TABLE, TABLE[0]], "worth[0].table[2]"),
        ([{"terms": {"wood": {"agent_9": 1}}, "value": 1}], "worth[0].table[0].wood"),
        (TABLE, None),
    ],
)
def test_a_table_values_every_outcome_once(table: Any, field: str | None) -> None:
    document = {"protocol": {"kind": "agreement"}, "issues": ISSUES, "worth": [{"table": table}, {"table": TABLE}]}
    if field is None:
        assert "wood: Ana 1, Ben 0 is worth 0.1" in describe_worth(OutcomeSpec.model_validate(document), 0, names(2))
        return
    with raises(ValidationError, field=field):
        OutcomeSpec.model_validate(document)


def test_the_public_part_holds_no_worth_and_no_answer() -> None:
    assert "Ana Lee" not in describe_space(claims(), names(2))
    assert "Ana Lee" in describe_space(claims(shown=True), names(2))
    for spec in (trade(), ballot(), claims()):
        assert "Words bind nobody" in describe_space(spec, names(len(spec.worth)))
    assert "2 of 2 have accepted it, among them Ben" in describe_space(
        trade(needs={"quorum": 2, "veto": ["agent_1"]}), names(2)
    )


def test_a_worth_is_told_in_exact_numbers() -> None:
    assert describe_worth(trade(), 1, names(2)) == (
        'An agreement is worth to you, in sum: 3; 2 for each $ of price; start: 3 for "June 1", 1 for "June 15"; '
        "3 for each piece of firewood you get. No agreement: 2."
    )
    assert "Each of your wrong claims costs you 2." in describe_worth(claims(), 0, names(2))
    assert '1 for "museum", 2 for "park", -1 for "zoo"' in describe_worth(ballot(), 1, names(3))


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        (trade(), ["once both of you have accepted", "firewood (3 pieces)", "All pieces are divided among you."]),
        (trade(5), ["once all 5 of you have accepted"]),
        (
            trade(3, needs={"quorum": 2, "veto": ["agent_0", "agent_2"]}),
            ["2 of 3 have accepted it, among them Ana and"],
        ),
    ],
)
def test_the_public_part_is_plain_english(spec: OutcomeSpec, texts: list[str]) -> None:
    described = describe_space(spec, names(len(spec.worth)))
    assert all(text in described for text in texts), described
    assert "agent_" not in described


def test_one_unit_is_named_with_its_issue() -> None:
    document = trade().model_dump(mode="json")
    for unit, text in (
        ("$", "for each $ of price"),
        ("days", "for each unit of price (days)"),
        ("", "for each unit of price;"),
    ):
        document["issues"][0]["unit"] = unit
        assert text in describe_worth(OutcomeSpec.model_validate(document), 0, names(2))
