"""What a seat's page shows of worths: the seat's own exact numbers with their unit, their parts and their scale."""

from __future__ import annotations

import itertools

import pytest

from sotopia_env import naming
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.people.seat.form import move_choices
from sotopia_env.people.seat.page import seat_page
from sotopia_env.people.seat.worth import SeatWorth, form_worth, issue_scales, offer_worths, worth_scale, worth_text
from sotopia_env.world import Action, Observation, Rules
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task


def _task(family: str) -> Task:
    return next(iter(naming.task_set(family, 1, 0, "medium")))


def observed(family: str, *actions: Action, worths: bool = True) -> Observation:
    rules = Rules(max_turns=20, worths=worths)
    state = initial_state(_task(family), rules, 0)
    for action in actions:
        state = transition(state, action)
    return observe(state, state.waiting[0])


def test_an_offer_about_money_is_worth_money_to_each_seat() -> None:
    buyer = observed("bargaining")
    assert form_worth(buyer, {"move": "offer", "issue0": "150"}).total == "$36"
    assert form_worth(buyer, {"move": ""}) == SeatWorth()
    assert form_worth(buyer, {"move": "offer", "issue0": ""}).problem
    offer = Action(ActionType.SPEAK, "Well?", (), Move(MoveKind.PROPOSE, {"price": 150}))
    seller = observed("bargaining", offer)
    assert seller.briefing.worth is not None
    assert seller.briefing.space is not None
    own = seller.briefing.worth.value(seller.briefing.space, {"price": 150})
    worths = offer_worths(seller)
    assert {number: worth.total for number, worth in worths.items()} == {1: worth_text(seller.briefing, own)}
    assert worths[1].total.removeprefix("-").startswith("$")
    accept = next(value for value, words in move_choices(seller.moves) if words.startswith("accept"))  # type: ignore[arg-type]
    assert form_worth(seller, {"move": accept}) == worths[1]


def test_the_picture_of_a_price_says_which_end_is_better() -> None:
    buyer = observed("bargaining").briefing
    assert buyer.space is not None
    least = buyer.space.issues[0].low  # type: ignore[union-attr]
    (price,) = issue_scales(buyer)
    assert price.better == "lower"
    assert price.limit is not None
    assert price.limit[0] == "$186"  # where an agreement is worth as much as none
    low, high = price.points
    assert (low.position, high.position) == (1.0, 0.0)
    assert low.worth == worth_text(buyer, 186 - float(least))
    scale = worth_scale(buyer)
    assert scale is not None
    assert (scale.low, scale.high, scale.without) == (high.worth, low.worth, "$0")
    assert 0 < scale.position < 1


def points(text: str) -> float:
    return float(text.split()[0])


@pytest.mark.parametrize("family", ["campsite", "hiring", "negotiation"])
def test_several_issues_are_a_table_that_adds_up(family: str) -> None:
    seat = observed(family)
    space, worth = seat.briefing.space, seat.briefing.worth
    assert space is not None
    assert worth is not None
    scale = worth_scale(seat.briefing)
    assert scale is not None
    for terms in itertools.islice(space.outcomes(), 0, None, max(space.size // 40, 1)):
        fields = {"move": "offer"}
        for index, issue in enumerate(space.issues):
            value = terms[issue.name]
            parts = value.items() if isinstance(value, dict) else ()
            fields |= {f"issue{index}.{agent}": str(pieces) for agent, pieces in parts} or {f"issue{index}": str(value)}
        result = form_worth(seat, fields)
        exact = worth.value(space, terms, seat.agent)
        assert points(result.total) == exact
        assert sum(points(part.worth) for part in result.parts) == exact
        assert result.position is not None
        assert 0 <= result.position <= 1
        assert points(scale.low) <= exact <= points(scale.high)
    # What a model reads of a number is what a person reads.
    table = seat.briefing.worths
    assert table is not None
    (constant,) = [points(part.worth) for part in result.parts if part.issue == "any agreement"] or [0.0]
    assert table.constant == constant
    for shown in (shown for shown in issue_scales(seat.briefing) if shown.better):
        read = [rung.worth for rung in table.rungs[shown.name]]
        assert (read[-1], read[0]) == (0.0, max(read))
        assert {points(point.worth) for point in shown.points} == {read[0], read[-1]}


def test_a_ballot_has_no_table_of_worths_that_rules_could_leave_out() -> None:
    """A model reads what each option is worth under either rule, and so does a person."""
    with_, without = (observed("group_decision", worths=worths) for worths in (True, False))
    assert issue_scales(with_.briefing) == issue_scales(without.briefing) != []
    assert (
        seat_page(Table(_task("group_decision"), Rules(worths=False)), without.agent, acting=True, ended=False).rule
        == ""
    )


@pytest.mark.parametrize("family", ["bargaining", "hiring", "campsite"])
def test_people_read_the_rule_alone_under_rules_without_worths(family: str) -> None:
    """The page shows neither scales nor what an offer is worth; a model reads the same rule."""
    seat = observed(family, worths=False)
    assert seat.moves is not None
    assert (issue_scales(seat.briefing), worth_scale(seat.briefing), offer_worths(seat)) == ([], None, {})
    page = seat_page(Table(_task(family), Rules(worths=False)), seat.agent, acting=True, ended=False)
    assert page.rule
    assert page.rule in seat.briefing.head.replace("\n  ", "\n")
    for value, _ in move_choices(seat.moves, terms=False):
        assert form_worth(seat, {"move": value}).total == ""
    assert form_worth(seat, {"move": "offer", "issue0": "150"}).total == ""
    assert form_worth(seat, {"move": "offer", "issue0": "150"}).parts == ()


def test_an_incomplete_offer_has_the_rows_that_are_complete() -> None:
    seat = observed("campsite")
    names = list(seat.briefing.space.names)  # type: ignore[union-attr]
    first = seat.briefing.space.issues[0]  # type: ignore[union-attr]
    fields = {"move": "offer", f"issue0.{names[0]}": str(first.count), f"issue0.{names[1]}": "0"}  # type: ignore[union-attr]
    worth = form_worth(seat, fields)
    assert worth.total == ""
    assert worth.position is None
    assert worth.problem
    assert [bool(part.worth) for part in worth.parts] == [True, False, False]


def test_a_vote_is_worth_its_option_where_the_seat_knows_it() -> None:
    seat = observed("group_decision")
    assert seat.moves is not None
    (options,) = issue_scales(seat.briefing)
    by_option = {point.text: point.worth for point in options.points}
    for value, words in move_choices(seat.moves):
        option = words.removeprefix("vote for ")
        expected = worth_text(seat.briefing, seat.briefing.worth.options[option])  # type: ignore[union-attr]
        assert form_worth(seat, {"move": value}).total == expected == by_option[option]


def test_worths_that_depend_on_what_a_seat_may_not_know_are_not_drawn() -> None:
    seat = observed("mini_mafia")
    assert issue_scales(seat.briefing) == []
    assert worth_scale(seat.briefing) is None
    assert offer_worths(seat) == {}
