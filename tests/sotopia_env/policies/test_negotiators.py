"""Targets, offers, acceptance and the end of a negotiation, by hand numbers on small tasks."""

import gc
import inspect

import numpy as np
import pytest

from sotopia_env.foundation.errors import InvalidValueError, PolicyError
from sotopia_env.naming.policies import POLICY_NAMES
from sotopia_env.naming.policies import make_policy as make
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies.negotiators import bidding
from sotopia_env.policies.negotiators.bidding import Bids, ranking
from sotopia_env.policies.negotiators.concession import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.negotiators.negotiation import elapsed
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import Rules, StopReason, TurnOrder
from sotopia_env.world.outcome import outcome_of
from tests.errors import raises
from tests.sotopia_env.factories import task
from tests.sotopia_env.policies.doubles import (
    FRIENDS,
    MIXED,
    act,
    ballot,
    friends_task,
    mixed,
    moving,
    observed,
    one_number,
    play,
    proposals,
    three_seats,
    verified,
    violations,
)

NUMBER = one_number()
LEAVE = Action(ActionType.LEAVE)
BARGAINERS = (
    "boulware", "linear", "conceder", "tit-for-tat", "stubborn", "generous", "random-offers", "splitter",
    "micro", "hard-headed", "frequency", "random-walk", "liar",
)  # fmt: skip
NEGOTIATORS = (*BARGAINERS, "sharer")
SCRIPTED = [name for name in POLICY_NAMES if name != "human"]


def n(value):
    return moving(propose={"n": value})


def proposal(policy, observation, seed=0):
    move = act(policy, observation, seed).move
    assert move.kind is MoveKind.PROPOSE, move
    return move.content["n"]


# ---------------------------------------------------------------------------------------------------------------------
# Rankings
def test_utilities_run_from_no_agreement_to_the_best():
    worth = [{"constant": 5, "issues": {"n": {"per_unit": 2}}, "no_agreement": 9}, {"issues": {"n": {"per_unit": -1}}}]
    issue = {"name": "n", "kind": "number", "low": 0, "high": 4}
    task = verified({"protocol": {"kind": "agreement"}, "issues": [issue], "worth": worth})
    rows = ranking(observed(task).briefing)  # worth 13, 11, 9, 7, 5; none is worth 9
    assert rows.utilities.tolist() == [1.0, 0.5, 0.0, -0.5, -1.0]
    assert [rows.terms(row)["n"] for row in range(5)] == [4, 3, 2, 1, 0]
    assert rows.utility({"n": 1}) == -0.5
    assert [rows.count(target) for target in (1.1, 1.0, 0.6, 0.5, 0.0)] == [0, 1, 1, 2, 3]
    assert rows.ladder(10) == [0, 1, 2]
    assert not rows.hopeless
    assert ranking(observed(task, NO_ACTION).briefing).hopeless  # the other seat's best is worth 0, as none is


def test_a_ranking_is_computed_once_and_goes_with_its_task():
    task = one_number()
    space = observed(task).briefing.space
    assert ranking(observed(task).briefing) is ranking(observed(task).briefing)
    assert id(space) in bidding._RANKINGS
    key = id(space)
    del task, space
    gc.collect()
    assert key not in bidding._RANKINGS


@pytest.mark.parametrize(
    ("terms", "others", "distance"),
    [
        ((10, "June 1", 3), (10, "June 1", 3), 0),
        ((10, "June 1", 3), (30, "June 1", 3), 20 / 40),
        ((10, "June 1", 3), (10, "June 15", 3), 1),
        ((10, "June 1", 3), (0, "June 15", 1), 10 / 40 + 1 + 2 / 3),
    ],
)
def test_distances_add_up_over_issues(terms, others, distance):
    rows = ranking(observed(verified(MIXED)).briefing)
    row = next(r for r in range(len(rows.utilities)) if rows.terms(r) == mixed(*terms))
    assert rows.distances(np.array([row]), [mixed(*others)]) == pytest.approx([distance])
    assert rows.distances(np.array([row]), [mixed(*others)] * 3) == pytest.approx([3 * distance])


def test_among_equally_good_offers_the_one_nearest_to_the_partners_is_made():
    """The colour is all the same to seat 0, so it takes the partner's; the first where none has been named."""
    issues = [
        {"name": "n", "kind": "number", "low": 0, "high": 20},
        {"name": "colour", "kind": "choice", "options": ["red", "green", "blue"]},
    ]
    worth = [{"issues": {"n": {"per_unit": sign}, "colour": {"red": 0, "green": 0, "blue": 0}}} for sign in (1, -1)]
    task = verified({"protocol": {"kind": "agreement"}, "issues": issues, "worth": worth})
    assert act(FixedDemand(demand=0.5), observed(task)).move.content == {"n": 10, "colour": "red"}
    for colour in ("red", "green", "blue"):
        observation = observed(task, NO_ACTION, moving(propose={"n": 1, "colour": colour}))
        assert act(FixedDemand(demand=0.5), observation).move.content == {"n": 10, "colour": colour}


def test_a_space_too_large_to_be_ranked_is_refused_and_a_large_number_is_thinned():
    items = [{"name": f"i{i}", "kind": "items", "count": 9} for i in range(6)]
    worth = {"issues": {f"i{i}": {"each": 1} for i in range(6)}}
    task = verified({"protocol": {"kind": "agreement"}, "issues": items, "worth": [worth, worth]})
    with pytest.raises(PolicyError, match="100000"):
        act(make("linear"), observed(task))
    fine = one_number(high=10**6)
    assert len(ranking(observed(fine).briefing).utilities) <= 100_000
    # Off the grid an offer is still valued exactly.
    assert ranking(observed(fine).briefing).utility({"n": 333_333}) == pytest.approx(0.333333)


# ---------------------------------------------------------------------------------------------------------------------
# Targets
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
def test_the_target_is_the_papers_polynomial(exponent, time, expected):
    assert TimeDependent("x", exponent, floor=0.1).at(time) == pytest.approx(expected)


def test_boulware_holds_out_longer_than_linear_and_linear_longer_than_conceder():
    offers = {}
    for name in ("boulware", "linear", "conceder"):
        state = play((make(f"{name}:floor=0.1"), make("silent")), NUMBER, Rules(max_silent_turns=0))
        offers[name] = [terms["n"] for terms in proposals(state, 0)]
    for values in offers.values():
        assert len(values) == 10
        assert values == sorted(values, reverse=True)
        assert values[0] == 20
        assert values[-1] == 2  # the cheapest number worth at least the floor of 0.1
    assert offers["boulware"][5] > offers["linear"][5] > offers["conceder"][5]


def test_two_conceders_agree_before_two_boulwares():
    turns = {}
    for name in ("boulware", "conceder"):
        state = play((make(name), make(name)), NUMBER)
        assert state.stop is StopReason.SETTLED
        turns[name] = len(state.turns)
    assert turns["conceder"] < turns["boulware"] - 5


def test_two_linear_negotiators_meet_in_the_middle():
    state = play((make("linear"), make("linear")), NUMBER)
    result = outcome_of(NUMBER, state.turns)
    assert result.agreed
    assert abs(result.terms["n"] - 10) <= 2


@pytest.mark.parametrize(
    ("demand", "value"), [(1.0, 20), (0.96, 20), (0.95, 19), (0.95 - 1e-12, 19), (0.5, 10), (0.0, 0)]
)
def test_the_offer_is_the_cheapest_that_meets_the_target(demand, value):
    assert proposal(FixedDemand(demand=demand), observed(NUMBER)) == value


def test_tit_for_tat_returns_the_fraction_it_is_given():
    policy = TitForTat(goodwill=0.0)
    assert proposal(policy, observed(NUMBER)) == 20
    assert proposal(policy, observed(NUMBER, n(20), n(0))) == 20
    history = (n(20), n(0), n(20), n(5))  # a quarter of the way from 0 to 20
    assert proposal(policy, observed(NUMBER, *history)) == 15
    assert proposal(TitForTat(goodwill=0.0, reciprocity=0.4), observed(NUMBER, *history)) == 18
    back = (n(20), n(5), n(20), n(0))  # taking back gives no reason to ask for more than all
    assert proposal(policy, observed(NUMBER, *back)) == 20


def test_two_tit_for_tats_start_to_concede_through_goodwill():
    for goodwill, agreed in ((0.3, True), (0.0, False)):
        policy = TitForTat(goodwill=goodwill)
        assert outcome_of(NUMBER, play((policy, policy), NUMBER).turns).agreed is agreed


def test_splitter_opens_in_the_middle_then_halves_the_difference():
    policy = Splitter()
    assert proposal(policy, observed(NUMBER)) == 10
    assert proposal(policy, observed(NUMBER, n(10), n(2))) == 6
    assert act(policy, observed(NUMBER, n(10), n(8))).move == Move(MoveKind.ACCEPT, 2)  # near enough
    assert act(policy, observed(NUMBER, n(10), n(14))).move == Move(MoveKind.ACCEPT, 2)
    assert proposal(policy, observed(NUMBER, n(3), n(0))) == 2  # never below the floor


def test_stubborn_never_moves():
    state = play((make("stubborn:demand=0.8"), make("linear:floor=0.5")), NUMBER)
    assert {terms["n"] for terms in proposals(state, 0)} == {16}


def test_random_offers_vary_with_the_seed_and_stay_above_the_floor():
    values = {proposal(RandomOffers(floor=0.3), observed(NUMBER), seed) for seed in range(40)}
    assert len(values) > 8
    assert min(values) >= 6


# ---------------------------------------------------------------------------------------------------------------------
# Acceptance and the end
@pytest.mark.parametrize(("offer", "accepts"), [(9, False), (10, True), (11, True)])
def test_what_is_worth_the_next_offer_is_accepted(offer, accepts):
    observation = observed(NUMBER, NO_ACTION, n(offer))
    move = act(FixedDemand(demand=0.5), observation).move
    assert move == (Move(MoveKind.ACCEPT, 1) if accepts else Move(MoveKind.PROPOSE, {"n": 10}))


def test_the_comparison_is_with_the_next_offer_not_with_the_target():
    """AC_next: where nothing lies between 0 and 1, an offer of 0 is refused at any target above 0."""
    coarse = one_number(high=1)
    assert act(FixedDemand(demand=0.1), observed(coarse, NO_ACTION, n(0))).move == Move(MoveKind.PROPOSE, {"n": 1})


def test_the_best_of_several_open_offers_is_accepted():
    task = verified(three_seats({"quorum": 2}))
    offers = [moving(propose={"pieces": {"agent_0": pieces, "agent_1": 9 - pieces}, "day": "Tue"}) for pieces in (5, 6)]
    observation = observed(task, NO_ACTION, *offers)
    assert act(FixedDemand(demand=0.4), observation).move == Move(MoveKind.ACCEPT, 2)


def test_an_offer_worse_than_none_is_never_accepted():
    worth = [{"constant": -10, "issues": {"n": {"per_unit": 1}}}, {"issues": {"n": {"per_unit": -1}}}]
    issue = {"name": "n", "kind": "number", "low": 0, "high": 20}
    task = verified({"protocol": {"kind": "agreement"}, "issues": [issue], "worth": worth})
    for name in BARGAINERS:
        state = play((make(name), make("silent")), task, Rules(max_silent_turns=0))
        assert all(terms["n"] >= 10 for terms in proposals(state, 0)), name
        assert act(make(name), observed(task, NO_ACTION, n(9))).move.kind is MoveKind.PROPOSE, name


@pytest.mark.parametrize("name", NEGOTIATORS)
def test_all_seats_leave_when_the_matter_is_settled(name):
    rules = Rules(end_when_settled=False)
    assert act(make(name), observed(NUMBER, n(10), moving(accept=1), rules=rules)) == LEAVE


@pytest.mark.parametrize("name", NEGOTIATORS)
def test_a_seat_with_nothing_to_gain_does_nothing(name):
    worth = [{"issues": {"n": {"per_unit": -1}}}, {"issues": {"n": {"per_unit": 1}}}]
    issue = {"name": "n", "kind": "number", "low": 1, "high": 3}
    task = verified({"protocol": {"kind": "agreement"}, "issues": [issue], "worth": worth})
    mute = Rules(action_types=(ActionType.NONE, ActionType.SPEAK))  # no notes
    assert act(make(name), observed(task, rules=mute)) == NO_ACTION
    assert act(make(name), observed(task, NO_ACTION, n(2), rules=mute)) == NO_ACTION


@pytest.mark.parametrize("name", NEGOTIATORS)
def test_moves_need_no_words(name):
    assert act(make(name), observed(NUMBER, rules=Rules(action_types=(ActionType.NONE,)))) == NO_ACTION
    deed = act(make(name), observed(NUMBER, rules=Rules(action_types=(ActionType.ACTION,))))
    assert (deed.action_type, deed.argument, deed.move.kind) == (ActionType.ACTION, "", MoveKind.PROPOSE)


# ---------------------------------------------------------------------------------------------------------------------
# Ballots
def test_the_vote_goes_to_the_option_with_most_votes_that_is_worth_the_target():
    task = verified(ballot())
    votes = (moving(vote="zoo"), moving(vote="zoo"))
    # To seat 2 the options are worth 1, 4 and 3, no decision 2: utilities -0.5, 1 and 0.5.
    for demand, option in ((0.0, "zoo"), (0.5, "zoo"), (0.6, "museum")):
        assert act(FixedDemand(demand=demand), observed(task, *votes)).move == Move(MoveKind.VOTE, option)
    assert act(FixedDemand(demand=1.0), observed(task)).move == Move(MoveKind.VOTE, "park")


def test_the_last_vote_waits_until_it_decides():
    task = verified(ballot())
    waiting = act(make("linear"), observed(task, moving(vote="park"), moving(vote="zoo")))
    assert waiting.argument
    assert waiting.move is None
    assert act(make("linear"), observed(task, moving(vote="park"), moving(vote="museum"))).move.content == "museum"
    # When the others have decided there is nothing to wait for.
    assert act(make("linear"), observed(task, moving(vote="zoo"), moving(vote="zoo"))).move.content == "museum"
    late = [moving(vote="park"), moving(vote="zoo"), Action(ActionType.SPEAK, "Hm.")] * 10
    assert act(make("linear"), observed(task, *late[:-1], rules=Rules(max_turns=60))).move is not None
    unanimous = verified(ballot("unanimity"))
    divided = observed(unanimous, moving(vote="park"), moving(vote="museum"))
    assert divided.briefing.rules == unanimous.scenario.outcome.protocol
    assert act(make("linear"), divided).move is None
    agreed = observed(unanimous, moving(vote="museum"), moving(vote="museum"))
    assert act(make("linear"), agreed).move.content == "museum"
    secret = verified(ballot(secret=True))  # a secret vote cannot be answered
    assert act(make("linear"), observed(secret, moving(vote="park"), moving(vote="zoo"))).move.content == "museum"


@pytest.mark.parametrize("order", TurnOrder)
@pytest.mark.parametrize("name", ["linear", "conceder", "micro", "frequency", "liar", "sharer"])
def test_three_with_different_favourites_decide(name, order):
    task = verified(ballot())
    state = play((make(name),) * 3, task, Rules(turn_order=order, max_turns=40))
    assert violations(state) == []
    assert outcome_of(task, state.turns).agreed


# ---------------------------------------------------------------------------------------------------------------------
# Claims
@pytest.mark.parametrize("name", NEGOTIATORS)
def test_facts_come_before_claims_and_the_friend_is_named(name):
    first = act(make(name), observed(friends_task()))
    assert first.move is None
    assert first.argument
    policies = (make("linear" if name == "liar" else name), make("boulware"))
    state = play(policies, friends_task())
    assert outcome_of(friends_task(), state.turns).agreed, [turn.action for turn in state.turns]
    assert violations(state) == []


def friend_facts(friend, seat):
    entry = FRIENDS[seat]["friends"][friend]
    return Action(ActionType.SPEAK, f"I know {entry['name']}: {entry['school']}, {entry['pet']}.")


def test_only_the_same_name_with_the_same_facts_makes_sure():
    same = observed(friends_task(), NO_ACTION, friend_facts(2, 1))
    assert act(make("boulware"), same).move == Move(MoveKind.CLAIM, "Di Poe")
    namesake = observed(friends_task(), NO_ACTION, friend_facts(1, 1))
    assert act(make("boulware"), namesake).move is None


def test_a_wrong_claim_is_not_repeated():
    outcome = {
        "protocol": {"kind": "claims", "candidates": ["a", "b"], "answer": "b", "tries": 2, "shown": True},
        "worth": [{"right": 1}] * 2,
    }
    task = verified(outcome)
    assert act(make("linear"), observed(task)).move is None  # half a chance is not worth the target yet
    generous = FixedDemand(demand=0.0)
    first = act(generous, observed(task))
    assert first.move == Move(MoveKind.CLAIM, "a")
    assert act(generous, observed(task, first, NO_ACTION)).move == Move(MoveKind.CLAIM, "b")


# ---------------------------------------------------------------------------------------------------------------------
# All policies with each other
SCENES = {
    "mixed": verified(MIXED),
    "quorum": verified(three_seats({"quorum": 2, "veto": ["agent_0"]})),
    "latest": one_number(standing="latest"),
    "ballot": verified(ballot("plurality")),
    "claims": friends_task(),
}


@pytest.mark.parametrize("scene", ["mixed", "quorum", "ballot", "claims"])
@pytest.mark.parametrize("name", SCRIPTED)
def test_all_moves_are_legal_and_a_function_of_the_seed(name, scene):
    task = SCENES[scene]
    for partner in SCRIPTED:
        policies = (make(name), make(partner), make("linear"))[: len(task.agents)]
        state = play(policies, task, seed=3)
        assert violations(state) == [], partner
    assert play(policies, task, seed=3).turns == state.turns


@pytest.mark.parametrize("scene", ["mixed", "quorum", "latest", "ballot", "claims"])
@pytest.mark.parametrize("name", ["linear", "conceder", "generous", "frequency", "sharer"])
def test_conceding_policies_agree_in_every_family(name, scene):
    task = SCENES[scene]
    state = play((make(name), make("linear"), make("conceder"))[: len(task.agents)], task, Rules(max_turns=40))
    result = outcome_of(task, state.turns)
    assert result.agreed
    assert state.stop is StopReason.SETTLED
    assert min(result.shares[: 2 if scene == "mixed" else 1]) >= 0


def test_two_frequency_modellers_lose_less_than_two_linear_ones():
    """Each side has an issue that matters more to it; who learns which gives up the other."""
    joint = {}
    for name in ("linear", "frequency"):
        task = SCENES["mixed"]
        joint[name] = sum(outcome_of(task, play((make(name), make(name)), task).turns).payoffs)
    assert joint["frequency"] >= joint["linear"]


@pytest.mark.parametrize(
    ("seats", "horizon", "turns", "expected"),
    [(2, 10, 0, 0), (2, 10, 3, 3 / 9), (2, 10, 9, 1), (2, 10, 30, 1), (2, 1, 0, 1), (3, 10, 1, 1 / 5), (5, 10, 3, 1)],
)
def test_time_runs_as_fast_as_the_seats_use_up_the_turns(seats, horizon, turns, expected):
    observation = observed(task(seats), *[NO_ACTION] * (turns * seats), rules=Rules(max_silent_turns=0, max_turns=100))
    assert elapsed(observation, horizon) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rules", "seats", "turns", "expected"),
    [
        (Rules(max_turns=8, max_silent_turns=0), 2, 3, 1),
        (Rules(max_turns=8, max_silent_turns=0), 2, 1, 1 / 3),
        (Rules(max_turns=7, max_silent_turns=0), 2, 2, 1),  # in time for the seat that has three turns
        (Rules(max_turns=9, max_silent_turns=0), 3, 1, 1 / 2),
        (Rules(max_rounds=4, max_silent_turns=0), 2, 3, 1),
        (Rules(max_turns=1), 2, 0, 1),
        (Rules(max_turns=200, max_silent_turns=0), 2, 3, 3 / 9),
    ],
)
def test_an_episode_that_the_rules_end_earlier_has_a_shorter_horizon(rules, seats, turns, expected):
    observation = observed(task(seats), *[NO_ACTION] * (turns * seats), rules=rules)
    assert elapsed(observation, 10) == pytest.approx(expected)


@pytest.mark.parametrize("rules", [Rules(max_turns=8), Rules(max_rounds=4, turn_order=TurnOrder.SIMULTANEOUS)])
@pytest.mark.parametrize("name", ["linear", "boulware", "conceder", "hard-headed", "frequency", "liar", "sharer"])
def test_conceding_policies_agree_in_eight_turns_too(name, rules):
    task = SCENES["mixed"]
    assert outcome_of(task, play((make(name), make("linear")), task, rules).turns).agreed


def test_two_who_answer_step_by_step_agree_in_eight_turns_too():
    task = SCENES["mixed"]
    assert outcome_of(task, play((make("micro"), make("micro")), task, Rules(max_turns=8)).turns).agreed


def test_a_horizon_within_the_rules_is_the_one_that_was_asked_for():
    of, policies = SCENES["mixed"], (make("linear:horizon=4"), make("boulware:horizon=3"))
    assert play(policies, of, Rules(max_turns=8)).turns == play(policies, of, Rules(max_turns=20)).turns
    long = observed(task(), *[NO_ACTION] * 18, rules=Rules(max_silent_turns=0))
    assert elapsed(long, 30) == pytest.approx(9 / 29)


@pytest.mark.parametrize("order", TurnOrder)
def test_own_turns_are_counted_in_every_order(order):
    rules = Rules(turn_order=order, max_silent_turns=0, max_turns=40)
    for count in range(12):
        observation = observed(task(3), *[NO_ACTION] * count, rules=rules)
        expected = sum(turn.actor == observation.agent for turn in observation.turns)
        assert observation.own_turns == expected
        assert expected == count // 3 or order is TurnOrder.REACTIVE


def test_offers_are_read_as_the_table_keeps_them():
    bids = Bids(observed(NUMBER, n(20), n(1), n(19), n(1), moving(propose={"n": 20}), n(2)), 0)
    assert [terms["n"] for terms in bids.own] == [20, 19, 20]
    assert [terms["n"] for terms in bids.partners["agent_1"]] == [1, 1, 2]
    assert (bids.own_variety, bids.variety("agent_1")) == (2, 2)
    assert bids.standing == [{"n": 2}]
    entry, utility = bids.best_open()
    assert (entry.offer.terms, utility) == ({"n": 2}, 0.1)


@pytest.mark.parametrize(
    ("make_it", "field"),
    [
        (lambda: TimeDependent("x", exponent=0.0), "exponent"),
        (lambda: TimeDependent("x", exponent=float("nan")), "exponent"),
        (lambda: TimeDependent("x", horizon=0), "horizon"),
        (lambda: TimeDependent("x", horizon=2.5), "horizon"),
        (lambda: TimeDependent("x", opening=0.5, floor=0.6), "floor"),
        (lambda: FixedDemand(demand=1.5), "demand"),
        (lambda: FixedDemand(demand=True), "demand"),
        (lambda: TitForTat(goodwill=-1), "goodwill"),
        (lambda: Splitter(floor=0.7), "floor"),
        (lambda: RandomOffers(floor="0"), "floor"),
    ],
)
def test_parameters_are_checked(make_it, field):
    with raises(InvalidValueError, field=field):
        make_it()


def test_policies_keep_no_state():
    for name in NEGOTIATORS:
        policy = make(name)
        assert not hasattr(policy, "__dict__") or not vars(policy), name
        with pytest.raises(AttributeError):
            policy.name = "x"  # type: ignore[misc]
        assert inspect.iscoroutinefunction(policy.act)
