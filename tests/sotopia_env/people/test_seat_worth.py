"""What a person's form says about the worth of a move: the seat's own exact number, with its unit."""

from __future__ import annotations

import pytest

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.people.seat_form import move_choices, move_worth, offer_worths, worth_text
from sotopia_env.world import Action, Observation, Rules
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.observation import observe


def observed(family: str, *actions: Action) -> Observation:
    state = initial_state(next(iter(naming.task_set(family, 1, 0, "medium"))), Rules(max_turns=20), 0)
    for action in actions:
        state = transition(state, action)
    return observe(state, state.waiting[0])


def test_an_offer_about_money_is_worth_money_to_each_seat() -> None:
    buyer = observed("bargaining")
    assert move_worth(buyer, {"move": "offer", "issue0": "150"}).startswith("$36 to you")
    assert move_worth(buyer, {"move": ""}) == ""
    with pytest.raises(InvalidActionError):
        move_worth(buyer, {"move": "offer", "issue0": ""})
    offer = Action(ActionType.SPEAK, "Well?", (), Move(MoveKind.PROPOSE, {"price": 150}))
    seller = observed("bargaining", offer)
    assert seller.briefing.worth is not None
    assert seller.briefing.space is not None
    own = seller.briefing.worth.value(seller.briefing.space, {"price": 150})
    assert offer_worths(seller) == {1: worth_text(seller.briefing, own)}
    assert offer_worths(seller)[1].removeprefix("-").startswith("$")
    accept = next(value for value, words in move_choices(seller.moves) if words.startswith("accept"))  # type: ignore[arg-type]
    assert move_worth(seller, {"move": accept}).startswith(offer_worths(seller)[1])


def test_several_issues_are_worth_points() -> None:
    seat = observed("campsite")
    assert seat.briefing.space is not None
    names = list(seat.briefing.space.names)
    own, other = names.index(seat.agent), 1 - names.index(seat.agent)
    fields = {"move": "offer"}
    for index, issue in enumerate(seat.briefing.space.issues):
        fields |= {f"issue{index}.{names[own]}": str(issue.count), f"issue{index}.{names[other]}": "0"}  # type: ignore[union-attr]
    worth = seat.briefing.worth
    assert worth is not None
    best = sum(issue.count * worth.issues[issue.name]["each"] for issue in seat.briefing.space.issues)  # type: ignore[union-attr]
    assert move_worth(seat, fields).startswith(f"{best:g} points to you")


def test_a_vote_is_worth_its_option_where_the_seat_knows_it() -> None:
    seat = observed("group_decision")
    assert seat.moves is not None
    for value, words in move_choices(seat.moves):
        option = words.removeprefix("vote for ")
        expected = worth_text(seat.briefing, seat.briefing.worth.options[option])  # type: ignore[union-attr]
        assert move_worth(seat, {"move": value}).startswith(f"{expected} to you, if it is decided")
