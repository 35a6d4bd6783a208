"""Seats that failed: in which rating they count, what they are worth, and when they leave no rank."""

from __future__ import annotations

import itertools

import pytest

from sotopia_env.arena.card import Card, FailedEpisode, merged_cards
from sotopia_env.arena.missing import failed_rows, rated_play
from sotopia_env.arena.opponents import alike
from sotopia_env.arena.page import card_report
from sotopia_env.arena.rows import CardRow
from tests.sotopia_env.arena.test_tables import IDENTITY, SUITE, against_pool, among, identity, row


def failure(policy: str, opponent: str, task: int, seat: int = 0, **fields: object) -> FailedEpisode:
    values = {
        "key": f"failed:{task}:{seat}:{policy}:{opponent}",
        "policies": (identity(policy),),
        "kind": "Timeout",
        "task": f"t{task}",
        "seats": (opponent, policy) if seat else (policy, opponent),
        **fields,
    }
    return FailedEpisode.model_validate(values)


def card(rows: list[CardRow], *failures: FailedEpisode) -> Card:
    return Card(suite=SUITE, code=("0",), rows=tuple(rows), failures=failures)


def lose(policy: str, *lost: tuple[str, int, int]) -> tuple[list[CardRow], list[FailedEpisode]]:
    """The rows of three policies without some seats of one, and the failures there."""
    gone = {(identity(o), f"t{task}", seat) for o, task, seat in lost}
    rows = against_pool("good", "fair", "poor")
    kept = [r for r in rows if r.policy != identity(policy) or (r.opponent, r.task, r.seat) not in gone]
    return kept, [failure(policy, *where) for where in lost]


def test_a_failure_has_the_worst_payoff_of_its_seat_in_the_second_rating() -> None:
    rows, failures = lose("good", ("linear", 2, 1))
    least = [r.model_copy(update={"payoff": -0.4}) if (r.task, r.seat, r.policy) == ("t2", 1, identity("poor"))
             else r for r in rows]  # fmt: skip
    for given, worst in ((rows, 0.0), (least, -0.4)):
        (failed,) = failed_rows(card(given, *failures), "pool")
        assert (failed.policy, failed.opponent, failed.task, failed.seat) == (
            identity("good"),
            IDENTITY["linear"],
            "t2",
            1,
        )
        assert failed.payoff == worst
        play = rated_play(card(given, *failures), "pool")
        plain, second = (item.means[identity("good")].mean for item in (play.rating, play.at_worst))
        assert second < plain
    bounded = SUITE.model_copy(update={"metric": "overall"})
    (failed,) = failed_rows(Card(suite=bounded, code=("0",), rows=tuple(rows), failures=tuple(failures)), "pool")
    assert failed.payoff is not None
    assert failed.payoff < -1


def test_a_task_that_nobody_else_finished_counts_as_well() -> None:
    rows = [r for r in against_pool("good") if r.task != "t5"]
    failures = [failure("good", o, 5, seat) for o in ("linear", "conceder") for seat in (0, 1)]
    play = rated_play(card(rows, *failures), "pool")
    assert play.failures == {identity("good"): 4}
    assert play.at_worst.means[identity("good")].mean < play.rating.means[identity("good")].mean


def test_below_95_percent_there_is_no_rank_and_a_reason() -> None:
    one, two = (lose("good", *lost) for lost in ([("linear", 2, 1)], [("linear", 2, 1), ("conceder", 3, 0)]))
    whole = rated_play(card(one[0], *one[1]), "pool")  # 23 of 24 seats
    assert set(whole.rating.ranks) == {identity(name) for name in ("good", "fair", "poor")}
    report = card_report(card(two[0], *two[1]))
    ratings, pairs = (
        {str(line["policy"]): line for line in sheet.records()}
        for sheet in report.sheets
        if sheet.name in ("ratings", "pairs")
    )
    assert (ratings["good"]["rank"], ratings["good"]["group"]) == (None, None)
    assert ratings["good"]["strength_mean"] > ratings["good"]["worst_strength_mean"]
    assert ratings["poor"]["rank"] == "2"
    assert pairs["good"].get("difference_mean") is None
    assert "92 %" in report.text()


def test_seats_that_were_never_played_are_missing_too() -> None:
    rows, _ = lose("good", ("linear", 2, 1), ("conceder", 3, 0))
    play = rated_play(card(rows), "pool")
    assert play.rating is play.at_worst
    assert play.shares[identity("good")] == pytest.approx(22 / 24)
    assert identity("good") not in play.rating.ranks


def test_the_opponents_failure_is_not_a_policys_own() -> None:
    rows, _ = lose("good", ("linear", 2, 1))
    of_linear = failure("good", "linear", 2, 1, policies=(IDENTITY["linear"],))
    assert failed_rows(card(rows, of_linear), "pool") == []
    # A failure in cross play is none against the pool.
    crossed = [*rows, *among("good", "fair", "poor")[1:]]
    in_cross = failure("good", "fair", 0)
    assert failed_rows(card(crossed, in_cross), "pool") == []
    assert [item.task for item in failed_rows(card(crossed, in_cross), "cross")] == ["t0"]


def test_cards_of_both_kinds_merge_to_equal_bytes() -> None:
    rows, failures = lose("good", ("linear", 2, 1), ("conceder", 3, 0))
    new = card(rows, *failures)
    # Records of earlier versions do not say where a policy failed.
    old = card(rows, *[item.model_copy(update={"task": None, "seats": ()}) for item in failures[::-1]])
    merged = {merged_cards(order).model_dump_json() for order in itertools.permutations([old, new, card(rows)])}
    assert len(merged) == 1
    assert Card.model_validate_json(merged.pop()).failures == merged_cards([new]).failures
    # They count in the seats that the policy lacks.
    assert {(r.task, r.seat) for r in failed_rows(old, "pool")} == {("t2", 1), ("t3", 0)}
    assert old.model_validate_json(old.model_dump_json(exclude_defaults=True)) == old


def test_opponents_beside_which_a_policy_gets_the_same_are_named() -> None:
    deaf = [row("deaf", o, t, s, payoff=0.1 * t) for o in ("linear", "conceder") for t in range(3) for s in (0, 1)]
    reads = [r.model_copy(update={"policy": identity("reads")}) for r in deaf]
    reads[0] = reads[0].model_copy(update={"payoff": 0.9})
    pool = tuple(sorted(IDENTITY.values()))
    assert alike([*deaf, *reads]) == {pool: [identity("deaf")]}
    text = card_report(card([*deaf, *reads])).sheets[0].notes
    assert any("linear" in note and "deaf" in note and "reads" not in note for note in text)
