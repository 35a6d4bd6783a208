"""Concession, acceptance and the end of a negotiation, on a toy family of one number."""

import inspect

import pytest

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming import make_policy as make
from sotopia_env.policies import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.negotiators import offer_worth
from sotopia_env.policies.small_talk import own_turns
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import Rules, TurnOrder, initial_state, transition
from tests.sotopia_env.policies.doubles import (
    FactsProblem,
    HopelessProblem,
    ToyFamily,
    ToyProblem,
    act,
    observed,
    play,
    toy_task,
)

TOY = toy_task()
LEAVE = Action(ActionType.LEAVE)
NEGOTIATORS = ("boulware", "linear", "conceder", "tit-for-tat", "stubborn", "generous", "random-offers", "splitter")


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(tasks, "family", lambda name: ToyFamily())


def numbers(actions, seat):
    return [int(a.argument.split()[1]) for a in actions[seat::2] if a.argument.startswith("offer")]


@pytest.mark.parametrize(
    ("exponent", "time", "expected"),
    [
        (1.0, 0.0, 1.0),
        (1.0, 0.5, 0.55),
        (1.0, 1.0, 0.1),
        (0.2, 0.5, 1 - 0.9 * 0.5**5),
        (5.0, 0.5, 1 - 0.9 * 0.5**0.2),
        (0.2, 1.0, 0.1),
        (5.0, 0.0, 1.0),
    ],
)
def test_aspiration_is_the_papers_polynomial(exponent, time, expected):
    assert TimeDependent("x", exponent).at(time) == pytest.approx(expected)


def test_boulware_holds_out_longer_than_linear_and_linear_longer_than_conceder():
    offered = {
        name: numbers(play(make(name), make("silent"), TOY, Rules(max_silent_turns=0)), 0)
        for name in ("boulware", "linear", "conceder")
    }
    for values in offered.values():
        assert len(values) == 10
        assert values == sorted(values, reverse=True)
        assert values[0] == 20
        assert values[-1] == 2  # the cheapest number worth at least the floor of 0.1
    assert offered["boulware"][5] > offered["linear"][5] > offered["conceder"][5]


@pytest.mark.parametrize(
    ("wanted", "number"), [(1.0, 20), (0.96, 20), (0.95, 19), (0.95 + 1e-12, 19), (0.5, 10), (0.0, 0)]
)
def test_the_offer_is_the_cheapest_that_meets_the_aspiration(wanted, number):
    assert offer_worth(ToyProblem(observed(TOY)), wanted) == {"n": number}


@pytest.mark.parametrize(("offered", "accepts"), [(9, False), (10, True), (11, True)])
def test_an_offer_worth_the_aspiration_is_accepted(offered, accepts):
    seen = observed(TOY, NO_ACTION, f"offer {offered}")
    assert act(FixedDemand(demand=0.5), seen).argument == (f"accept {offered}" if accepts else "offer 10")


@pytest.mark.parametrize("name", [*NEGOTIATORS, "sharer"])
def test_everybody_leaves_when_the_matter_is_settled(name):
    assert act(make(name), observed(TOY, "offer 10", "accept 10")) == LEAVE


@pytest.mark.parametrize("name", [*NEGOTIATORS, "sharer"])
def test_nothing_is_said_where_speaking_is_not_possible(name):
    mute = Rules(action_types=(ActionType.NONE,))
    assert act(make(name), observed(TOY, rules=mute)) == NO_ACTION


@pytest.mark.parametrize("name", [*NEGOTIATORS, "sharer"])
def test_a_policy_is_a_function_of_observation_and_seed(name):
    seen = observed(TOY, "offer 17", "offer 2")
    assert len({act(make(name), seen, seed=5) for _ in range(3)}) == 1


def test_two_linear_negotiators_meet_in_the_middle():
    last = [a for a in play(make("linear"), make("linear"), TOY) if a.argument.startswith("accept")]
    assert len(last) == 1
    assert abs(int(last[0].argument.split()[1]) - 10) <= 2


def test_stubborn_never_moves():
    assert set(numbers(play(make("stubborn:demand=0.8"), make("linear:floor=0.5"), TOY), 0)) == {16}


def test_tit_for_tat_returns_what_it_is_given():
    policy = TitForTat(goodwill=0.0)
    assert act(policy, observed(TOY)).argument == "offer 20"
    assert act(policy, observed(TOY, "offer 20", "offer 0")).argument == "offer 20"
    given = ("offer 20", "offer 0", "offer 20", "offer 5")  # five steps of twenty towards seat 0
    assert act(policy, observed(TOY, *given)).argument == "offer 15"
    assert act(TitForTat(goodwill=0.0, reciprocity=0.4), observed(TOY, *given)).argument == "offer 18"
    back = ("offer 20", "offer 5", "offer 20", "offer 0")  # taking back gives no reason to ask for more than all
    assert act(policy, observed(TOY, *back)).argument == "offer 20"


def test_two_of_a_kind_begin_to_move_through_goodwill():
    assert any(a.argument.startswith("accept") for a in play(TitForTat(), TitForTat(), TOY))
    frozen = TitForTat(goodwill=0.0)
    assert not any(a.argument.startswith("accept") for a in play(frozen, frozen, TOY))


def test_splitter_opens_in_the_middle_then_halves_the_difference():
    policy = Splitter()
    assert act(policy, observed(TOY)).argument == "offer 10"
    assert act(policy, observed(TOY, "offer 10", "offer 2")).argument == "offer 6"
    assert act(policy, observed(TOY, "offer 10", "offer 8")).argument == "accept 8"  # near enough
    assert act(policy, observed(TOY, "offer 10", "offer 14")).argument == "accept 14"
    assert act(policy, observed(TOY, "offer 3", "offer 0")).argument == "offer 2"  # never below the floor


def test_random_offers_vary_with_the_seed_and_stay_acceptable():
    policy = RandomOffers(floor=0.3)
    drawn = {act(policy, observed(TOY), seed).argument for seed in range(40)}
    assert len(drawn) > 8
    assert all(int(text.split()[1]) >= 6 for text in drawn)


def test_a_seat_with_nothing_to_gain_offers_nothing(monkeypatch):
    monkeypatch.setattr(tasks, "family", lambda name: ToyFamily(HopelessProblem))
    assert act(make("conceder"), observed(TOY)) == NO_ACTION


@pytest.mark.parametrize("name", [*NEGOTIATORS, "sharer"])
def test_facts_are_shared_before_claims_are_made(monkeypatch, name):
    monkeypatch.setattr(tasks, "family", lambda name: ToyFamily(FactsProblem))
    assert act(make(name), observed(TOY)).argument == "fact 0"
    assert act(make(name), observed(TOY, "fact 0", NO_ACTION)).argument == "fact 1"
    assert act(make(name), observed(TOY, "fact 0", NO_ACTION, "fact 1", NO_ACTION)).argument.startswith("offer")
    # an offer that is good enough is taken at once
    assert act(make(name), observed(TOY, NO_ACTION, "offer 20")).argument == "accept 20"


@pytest.mark.parametrize("order", TurnOrder)
def test_own_turns_are_counted_in_every_order(order):
    rules = Rules(turn_order=order, max_silent_turns=0, max_turns=40)
    three = toy_task(3)
    for played in range(12):
        seen = observed(three, *[NO_ACTION] * played, rules=rules)
        expected = sum(turn.actor == seen.agent for turn in seen.turns)
        assert own_turns(seen) == expected == played // 3


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: TimeDependent("x", exponent=0.0), "exponent: expected a number from 0.001 to 1000, got 0.0"),
        (lambda: TimeDependent("x", exponent=float("nan")), "exponent"),
        (lambda: TimeDependent("x", horizon=0), "horizon: expected a whole number from 1"),
        (lambda: TimeDependent("x", horizon=2.5), "horizon: expected a whole number"),
        (lambda: TimeDependent("x", opening=0.5, floor=0.6), "floor: expected a number from 0 to 0.5, got 0.6"),
        (lambda: FixedDemand(demand=1.5), "'stubborn', demand"),
        (lambda: FixedDemand(demand=True), "demand"),
        (lambda: TitForTat(goodwill=-1), "goodwill"),
        (lambda: Splitter(floor=0.7), "floor"),
        (lambda: RandomOffers(floor="0"), "floor"),
    ],
)
def test_parameters_are_checked(make_it, message):
    with pytest.raises(InvalidValueError, match=message):
        make_it()


@pytest.mark.parametrize("name", ["bargaining", "hiring", "division", "mutual_friend"])
def test_two_conceding_negotiators_agree_in_every_family_of_two_seats(monkeypatch, name):
    monkeypatch.undo()
    family = tasks.family(name)
    generated = [family.generate(index, 3, "easy") for index in range(4)]
    assert sum(family.read(one, _turns(one)).agreement for one in generated) >= 3


def _turns(real):
    state = initial_state(real, Rules(), 0)
    for action in play(make("conceder"), make("linear"), real):
        state = transition(state, action)
    return state.turns


def test_policies_keep_no_state():
    for name in NEGOTIATORS:
        policy = make(name)
        assert not hasattr(policy, "__dict__") or not vars(policy), name
        with pytest.raises(AttributeError):
            policy.name = "x"  # type: ignore[misc]
        assert inspect.iscoroutinefunction(policy.act)
