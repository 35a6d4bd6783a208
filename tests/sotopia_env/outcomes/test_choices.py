"""Games of choices: hidden and simultaneous, in rounds, with contracts, mediators, stocks; bad rules are refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.validation import invalid
from sotopia_env.outcomes import InvalidMoveError, Move, OutcomeSpec, reference_points
from sotopia_env.outcomes.move import read_move
from sotopia_env.outcomes.reference import ReferencePoints

from .games import FISHERY, PRISONER, game, played, protocol
from .specs import names


def points(spec: OutcomeSpec) -> ReferencePoints:
    return reference_points(spec, names(len(spec.worth)))


def choose(option: object) -> Move:
    return read_move({"choose": option})


def test_a_choice_is_hidden_until_all_have_chosen_and_final() -> None:
    rules = protocol(game(rounds=2))
    state, effect = rules.apply(rules.initial(), "agent_0", choose("d"))
    assert effect.text == "chooses D"
    assert effect.hidden is not None
    assert "D" not in effect.hidden
    assert "D" not in rules.table(state, "agent_1").text
    assert rules.table(state, "agent_0").to_json()["choices"]["visible"] == {"agent_0": "D"}
    with pytest.raises(InvalidMoveError, match="final"):
        rules.apply(state, "agent_0", choose("C"))
    state, _ = rules.apply(state, "agent_1", choose("C"))
    assert rules.table(state, "agent_1").to_json()["choices"]["played"] == [{"agent_0": "D", "agent_1": "C"}]
    assert rules.payoffs(state) == (5.0, 0.0)
    assert not rules.settled(state)
    assert pickle.loads(pickle.dumps(state)) == state


def test_payoffs_add_up_over_rounds_and_promises_are_compared_round_by_round() -> None:
    rules = protocol(game(rounds=3))
    state = played(rules, "CC", "DC")
    assert rules.payoffs(state) == (8.0, 3.0)
    assert rules.choices(state, "agent_0") == ("C", "D", None)
    state = played(rules, "DD", state=state)
    assert rules.settled(state)
    assert rules.payoffs(state) == (9.0, 4.0)
    assert rules.choices(state, "agent_1") == ("C", "C", "D", None)
    assert rules.menu(state, "agent_0").binds is False


def test_in_a_simultaneous_round_a_seat_acts_on_what_it_knew() -> None:
    rules = protocol(game(rounds=2))
    before, _ = rules.apply(rules.initial(), "agent_0", choose("C"))
    # agent_0 has chosen; in one veiled round of turns agent_1 closes the round, and agent_0 cannot know.
    state, _ = rules.apply(before, "agent_1", choose("C"), None, before)
    with pytest.raises(InvalidMoveError, match="you have chosen"):
        rules.apply(state, "agent_0", choose("C"), None, before)


def test_talk_comes_before_the_choice() -> None:
    rules = protocol(game(talks=1, rounds=2))
    state = rules.initial()
    assert rules.menu(state, "agent_0").choose == ()
    with pytest.raises(InvalidMoveError, match="after 1 more"):
        rules.apply(state, "agent_0", choose("C"))
    for agent in rules.agents:
        state = rules.advance(state, agent)
    state = played(rules, "CD", state=state)
    # The turn of a choice is no talk of the next round.
    assert [rules.menu(state, agent).choose for agent in rules.agents] == [(), ()]


@pytest.mark.parametrize(
    ("history", "seen"),
    [
        ("partners", {"agent_0": "C", "agent_1": "D", "agent_2": "D"}),
        ("strangers", {"agent_0": "C", "agent_1": None, "agent_2": None}),
        ("none", {"agent_0": "C", "agent_1": None, "agent_2": None}),
    ],
)
def test_history_shows_partners_counts_of_strangers_or_nothing(history: str, seen: dict[str, str | None]) -> None:
    counts = {"of": "C", "counts": {"C": [0, 2, 4], "D": [1, 3, 5]}}
    rules = protocol(game(counts, 3, rounds=2, history=history))
    state = played(rules, "CDD")
    view = rules.table(state, "agent_0").to_json()["choices"]
    assert view["played"] == [seen]
    assert view["counts"] == ([{"C": 1, "D": 2}] if history == "strangers" else [])
    assert set(view["paid"]) == (set(rules.agents) if history == "partners" else {"agent_0"})
    final = played(rules, "DDD", state=state)
    assert ("agent_1" in rules.table(final, "agent_0").result) is False
    assert rules.payoffs(final) == (0 + 1, 3 + 1, 3 + 1)  # one other co-operated, then none


def test_a_contract_is_enforced_in_all_rounds_that_are_left() -> None:
    rules = protocol(game(rounds=3, contract=True))
    ana, bo = rules.names.values()
    state = played(rules, "CD")
    state, _ = rules.apply(state, "agent_0", read_move({"propose": {ana: "C", bo: "C"}}))
    assert rules.table(state, "agent_1").offers[0].open
    with pytest.raises(InvalidMoveError, match="before anybody chooses"):
        rules.apply(rules.apply(state, "agent_0", choose("C"))[0], "agent_1", read_move({"accept": 1}))
    state, effect = rules.apply(state, "agent_1", read_move({"accept": 1}))
    assert "accepts #1" in effect.text
    assert rules.settled(state)
    assert rules.payoffs(state) == (6.0, 11.0)
    assert set(rules.outcome(state).assents) == set(rules.agents)


def test_a_mediator_chooses_for_those_who_delegate() -> None:
    mediator = {"together": "C", "otherwise": "D"}
    rules = protocol(game(mediator=mediator))
    assert rules.menu(rules.initial(), "agent_0").choose == ("C", "D", "delegate")
    results = {row: rules.payoffs(played(rules, row)) for row in (("delegate",) * 2, ("delegate", "C"))}
    assert results == {("delegate",) * 2: (3.0, 3.0), ("delegate", "C"): (5.0, 0.0)}


def test_later_stages_see_the_earlier_ones() -> None:
    rules = protocol(game(stages=[["agent_1"], ["agent_0"]]))
    with pytest.raises(InvalidMoveError, match="others choose first"):
        rules.apply(rules.initial(), "agent_0", choose("C"))
    state, _ = rules.apply(rules.initial(), "agent_1", choose("D"))
    assert rules.table(state, "agent_0").to_json()["choices"]["visible"] == {"agent_1": "D"}


def test_who_leaves_ends_the_game_or_has_a_choice_made_for_it() -> None:
    counts = {"of": "C", "no_choice": -1, "counts": {"C": [0, 2, 4], "D": [1, 3, 5]}}
    rules = protocol(game(counts, 3, rounds=2))
    state = rules.leave(played(rules, "CCC"), "agent_2")
    assert rules.settled(state)
    assert rules.payoffs(state) == (3.0, 3.0, 3.0)
    rules = protocol(game(counts, 3, rounds=2, absent="D"))
    state = rules.leave(played(rules, "CCC"), "agent_2")
    assert not rules.settled(state)
    for agent in ("agent_0", "agent_1"):
        state, _ = rules.apply(state, agent, choose("C"))
    assert rules.payoffs(state) == (6.0, 6.0, 9.0)
    assert rules.settled(rules.leave(rules.leave(rules.initial(), "agent_0"), "agent_1"))


def test_a_stock_is_shared_regrows_and_collapses() -> None:
    spec = game({"per": {"own": 1}}, 5, amounts={"low": 0, "high": 40, "step": 10}, rounds=12, stock=FISHERY)
    rules = protocol(spec)
    tens = played(rules, *[("10",) * 5] * 12)
    assert rules.payoffs(tens) == (120.0,) * 5
    greedy = played(rules, ("40",) * 5)
    assert rules.payoffs(greedy) == (20.0,) * 5  # 200 were asked of 100
    assert rules.settled(greedy)
    assert rules.table(greedy, None).to_json()["choices"]["stock"] == 0
    # Sustainable use is 120 a head; but in the last round nothing has to be left, so the best is 130.
    assert points(spec).best_joint == (130.0,) * 5


def test_amounts_are_read_as_numbers() -> None:
    rules = protocol(game({"per": {"own": 1}}, amounts={"low": 0, "high": 2, "step": 0.5}))
    for amount in (1.5, "1.5"):
        assert rules.apply(rules.initial(), "agent_0", choose(amount))[1].move.content == "1.5"
    with pytest.raises(InvalidMoveError):
        rules.apply(rules.initial(), "agent_0", choose(0.7))
    with pytest.raises(InvalidMoveError):
        read_move({"choose": True})


def test_reference_points_of_a_repeated_game_are_those_of_a_round_times_the_rounds() -> None:
    reference = points(game(rounds=4))
    assert reference.best == (20.0, 20.0)
    assert reference.best_joint == (12.0, 12.0)
    assert reference.frontier == ((0.0, 20.0), (12.0, 12.0), (20.0, 0.0))
    assert reference.efficiency((4.0, 4.0)) == pytest.approx(8 / 24)


STOCK = {"amounts": {"low": 0, "high": 10}, "rounds": 3}
OWN = {"per": {"own": 1}}
BAD: list[tuple[OutcomeSpec | dict[str, Any], str]] = [
    ({"worth": [PRISONER, {"payoffs": {"C": {"C": 3}, "D": {"C": 5, "D": 1}}}]}, "no payoff for 'D'"),
    ({"worth": [PRISONER, {"of": "C", "counts": {"C": [1, 2, 3], "D": [0, 0]}}]}, "the seat itself is not counted"),
    ({"worth": OWN, **STOCK, "stock": {**FISHERY, "growth": 1}}, "the stock cannot regrow"),
    ({"worth": OWN, **STOCK, "stock": {**FISHERY, "capacity": 50}}, "at least start"),
    ({"worth": OWN, **STOCK, "stock": {**FISHERY, "start": 5}}, "more than collapse"),
    ({"worth": [OWN, {"per": {"own": 2}}], **STOCK, "stock": FISHERY}, "the same worth for every seat"),
    ({"stages": [["agent_0"], ["agent_1", "agent_0"]]}, "a seat is in two stages"),
    ({"stages": [["agent_0"]]}, "a seat never chooses"),
    ({"mediator": {"together": "C", "otherwise": "E"}}, "got \"E\""),
    ({"records": {"agent_1": ["X"]}}, "protocol.records.agent_1"),
    ({"amounts": {"low": 0, "high": 9, "step": 2}, "worth": OWN}, "whole number of positive steps"),
    ({"worth": {"per": {"own": 1}}}, "declare 'amounts'"),
    ({"seats": 9}, "2 to 8 seats"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), BAD)
def test_bad_rules_are_refused_in_one_sentence_with_the_mend(change: dict[str, Any], problem: str) -> None:
    from pydantic import ValidationError

    with pytest.raises((ValidationError, InvalidValueError)) as error:
        game(**change)
    found = invalid(error.value) if isinstance(error.value, ValidationError) else error.value
    assert problem in str(found)
