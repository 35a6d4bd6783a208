"""Tables of a card: each kind of play apart, ratings only where they are determined."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sotopia_env.arena import Suite
from sotopia_env.arena.card import Card
from sotopia_env.arena.page import card_report
from sotopia_env.arena.rows import CardRow
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming import make_policy
from sotopia_env.world.play.policy import policy_identity
from tests.errors import raises

POOL = ("linear", "conceder")
IDENTITY = {name: policy_identity(make_policy(name)) for name in POOL}
HUMAN = '["human",{}]'
SUITE = Suite(name="made", tasks="bargaining", pool=POOL, hashes=("0",) * 6, seats=(2,) * 6)


def identity(name: str) -> str:
    return IDENTITY.get(name) or HUMAN * (name == "human") or f'["{name}",{{}}]'


def row(policy: str, opponent: str, task: int, seat: int = 0, **fields: object) -> CardRow:
    strength = {"good": 0.6, "fair": 0.4, "poor": 0.2}.get(policy, 0.5)
    values = {
        "key": f"{task}:{seat}:{policy}:{opponent}",
        "task": f"t{task}",
        "seat": seat,
        "first": seat == 0,
        "seed": task,
        "policy": identity(policy),
        "opponent": identity(opponent),
        "payoff": strength + 0.01 * ((task * 7 + seat + round(10 * strength) * task) % 5),
        "opponent_payoff": 0.4,
        "values": {"success": 1.0},
        "turns": 5,
        **fields,
    }
    return CardRow.model_validate(values)


def against_pool(*policies: str) -> list[CardRow]:
    return [row(p, o, task, seat) for p in policies for o in POOL for task in range(6) for seat in (0, 1)]


def among(*policies: str) -> list[CardRow]:
    return [row(p, o, task) for p in policies for o in policies if p != o for task in range(6)]


def sheets(rows: Iterable[CardRow]) -> dict[str, list[dict[str, object]]]:
    report = card_report(Card(suite=SUITE, code=("0",), rows=tuple(rows)))
    return {sheet.name: sheet.records() for sheet in report.sheets}


def test_cross_play_is_rated_among_the_rated_policies():
    policies = ("good", "fair", "poor")
    tables = sheets([*against_pool(*policies), *among(*policies)])
    cross = {str(line["policy"]): line for line in tables["cross"]}
    assert [line["group"] for line in tables["cross"]] == [1, 2, 3]
    assert cross["good"]["strength_mean"] == pytest.approx(0.2, abs=0.01)
    assert cross["good"]["strength_low"] <= 0.2 <= cross["good"]["strength_high"] + 0.01  # type: ignore[operator]
    # Cross play does not enter the rating against the pool.
    assert tables["ratings"] == sheets(against_pool(*policies))["ratings"]


@pytest.mark.parametrize("rows", [among("good", "fair"), [row("good", "fair", 0), row("fair", "good", 0)]])
def test_cross_play_of_two_policies_has_means_and_no_strengths(rows):
    report = card_report(Card(suite=SUITE, code=("0",), rows=(*against_pool("good", "fair"), *rows)))
    sheet = next(sheet for sheet in report.sheets if sheet.name == "cross")
    assert {line["policy"] for line in sheet.records()} == {"good", "fair"}
    assert "strength_mean" not in sheet.records()[0]
    assert sheet.notes


def test_clean_means_are_absent_where_they_are_not_determined():
    rows = against_pool("good", "fair")
    whole = {str(line["policy"]): line["clean_mean"] for line in sheets(rows)["ratings"]}
    assert None not in whole.values()
    # Only the opponents that the other policy did not meet played without a failure.
    clean = {"good": "linear", "fair": "conceder"}
    apart = [r.model_copy(update={"opponent_failed": r.opponent != IDENTITY[clean[r.policy[2:6]]]}) for r in rows]
    none = [r.model_copy(update={"opponent_failed": True}) for r in rows]
    easier = [r.model_copy(update={"opponent_failed": r.opponent == IDENTITY["linear"]}) for r in rows]
    one_task = [r.model_copy(update={"opponent_failed": r.task != "t0"}) for r in rows]
    for changed in (apart, none, one_task, easier):
        ratings = sheets(changed)["ratings"]
        assert all(line["clean_mean"] is None for line in ratings)
        assert all(line["mean_mean"] is not None for line in ratings)


def test_every_table_counts_each_task_once():
    """Three tasks of two seats and three of five: rows would count the latter more than twice as much."""
    rows = [
        row(
            policy,
            opponent,
            task,
            seat,
            payoff=(0.8 if task < 3 else 0.2) + 0.01 * ((task * 7 + seat) % 5),
            opponent_payoff=(0.6 if task < 3 else 0.1) + 0.01 * (task % 3),
            values={"success": float(task < 3)},
        )
        for policy in ("good", "fair")
        for opponent in POOL
        for task in range(6)
        for seat in range(2 if task < 3 else 5)
    ]
    suite = SUITE.model_copy(update={"seats": (2, 2, 2, 5, 5, 5)})
    report = card_report(Card(suite=suite, code=("0",), rows=tuple(rows)))
    tables = {sheet.name: {line["policy"]: line for line in sheet.records()} for sheet in report.sheets}
    mean = tables["ratings"]["good"]["mean_mean"]
    matrix, agreed = tables["matrix"]["good"], tables["dimensions"]["good"]
    assert [matrix[name] for name in POOL] == pytest.approx([mean, mean])
    assert all(matrix[f"{name}_low"] < mean < matrix[f"{name}_high"] for name in POOL)
    assert agreed["success"] == 0.5
    assert 0 < agreed["success_low"] < 0.5 < agreed["success_high"] < 1
    exploited = tables["exploitability"]["good"]
    assert exploited["takes_mean"] == pytest.approx(0.36)
    assert exploited["takes_clusters"] == exploited["leaves_clusters"] == 6
    assert exploited["leaves_mean"] == pytest.approx(mean)


@pytest.mark.parametrize(
    "rows", [against_pool("good"), [r.model_copy(update={"payoff": 0.5}) for r in against_pool("good", "fair")]]
)
def test_power_and_elo_say_why_they_are_missing(rows):
    report = card_report(Card(suite=SUITE, code=("0",), rows=tuple(rows)), power=True)
    shown = {sheet.name: sheet.text() for sheet in report.sheets}
    assert "n/a: needs two rated policies" in shown["power"]
    elo = [cell for cell in shown["ratings"].splitlines() if cell.startswith(("good", "fair"))]
    assert all("[n/a: the same in every task]" in line or "n/a: one policy" in line for line in elo)


def test_people_are_apart_and_their_partners_need_not_be_rated():
    beside = [row("human", "poor", task, payoff=0.3) for task in range(3)]
    beside += [row("poor", "human", task, 1, payoff=0.7) for task in range(3)]
    pairs = [row("human", "human", task, seat, payoff=0.5) for task in range(3) for seat in (0, 1)]
    tables = sheets([*against_pool("good"), *beside, *pairs])
    human = {str(line["partner"]): line for line in tables["human"]}
    assert (human["poor"]["people_mean"], human["poor"]["payoff_mean"]) == (pytest.approx(0.3), pytest.approx(0.7))
    assert human["human"]["people_n"] == 6
    assert {line["policy"] for line in tables["ratings"]} == {"good"}
    assert not tables["mirror"]
    assert [line["partner"] for line in sheets(pairs)["human"]] == ["human"]


def test_policies_that_did_not_meet_the_pool_are_named():
    rows = (*against_pool("good"), *[row("poor", "poor", task, seat) for task in range(3) for seat in (0, 1)])
    card = Card(suite=SUITE, code=("0",), rows=rows)
    assert card.unrated == (identity("poor"),)
    assert "poor" in card_report(card).text()


def test_without_pool_and_people_there_is_no_card():
    with raises(InvalidValueError, field="results"):
        sheets([row("poor", "poor", task, seat) for task in range(3) for seat in (0, 1)])
