"""Small talk, sharing, leaving, silence and chance; and naming policies."""

import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import POLICY_NAMES as NAMES
from sotopia_env.naming import make_policy as make
from sotopia_env.policies import Policy
from sotopia_env.policies.negotiators.concession import TimeDependent
from sotopia_env.policies.scripted import UniformRandom
from sotopia_env.policies.small_talk import small_talk
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.scenario import Seat
from tests.errors import raises
from tests.sotopia_env.factories import character, scenario, task
from tests.sotopia_env.policies.doubles import (
    MIXED,
    act,
    ballot,
    friends_task,
    moves,
    moving,
    observed,
    one_number,
    play,
    three_seats,
    verified,
    violations,
)

LEAVE = Action(ActionType.LEAVE)
SCRIPTED = [name for name in NAMES if name != "human"]


def free_task(goal="Get the piano home today.", secret="Has a gambling debt.", private_info=""):
    seats = (Seat(goals=(goal,), private_info=private_info), Seat(goals=("Sell it.",)))
    return task(scenario=scenario(seats=seats), characters=(character("Ada", secret=secret), character("Bram")))


def actions(first, second, task, rules=None):
    return [turn.action for turn in play((make(first), make(second)), task, rules).turns]


def test_small_talk_takes_four_turns_names_the_goal_and_leaves():
    talk = actions("linear", "linear", free_task())
    assert [a.action_type for a in talk] == [ActionType.SPEAK] * 8 + [ActionType.LEAVE]
    assert "Get the piano home today." in talk[2].argument
    assert "Sell it." in talk[3].argument
    assert not any("gambling" in a.argument for a in talk)


def test_small_talk_does_not_state_a_goal_that_shares_words_with_the_secret():
    risky = free_task(goal="Borrow money for the gambling debt.")
    observation = observed(risky, "Hello.", "Hello.")
    for seed in range(9):
        assert "gambling" not in small_talk(observation, seed).action.argument


@pytest.mark.parametrize("goal", ["Pay the GAMBLING-debt.", "Ask about _gambling_!", "«Gambling» is over."])
def test_words_are_compared_whatever_their_case_and_punctuation(goal):
    observation = observed(free_task(goal=goal), "Hello.", "Hello.")
    assert "ambling" not in small_talk(observation, 0).action.argument


@pytest.mark.parametrize("name", SCRIPTED)
def test_every_policy_plays_a_task_without_a_protocol(name):
    state = play((make(name), make(name)), free_task(private_info="You have a van. It is small."))
    assert violations(state) == []
    assert set(moves(state)) == {None}


def test_the_sharer_shows_its_private_information_then_talks():
    sequence = actions("sharer", "silent", free_task(private_info="You have a van; it is small. Why not?  Yes"))
    assert [a.action_type for a in sequence[:8:2]] == [ActionType.NON_VERBAL] * 4
    notes = ("You have a van;", "it is small.", "Why not?", "Yes")
    assert [a.argument for a in sequence[:8:2]] == [f"shows a note: {note}" for note in notes]
    assert make("sharer").parameters == {"floor": 0.02, "horizon": 10}


def test_the_sharer_shows_its_cards_then_bargains():
    task = one_number()
    first, second = (act(make("sharer"), observed(task, *history)) for history in ((), ("Hm.", "Hm.")))
    assert first == Action(ActionType.NON_VERBAL, "shows a note: Do well.")
    assert second.move == act(make("linear"), observed(task, "Hm.", "Hm.")).move
    no_notes = observed(task, rules=Rules(action_types=(ActionType.SPEAK,)))
    assert act(make("sharer"), no_notes).move == act(make("linear"), no_notes).move


def test_leaver_and_silent():
    assert act(make("leaver"), observed(free_task())) == LEAVE
    assert act(make("silent"), observed(free_task())) == NO_ACTION
    no_exit = Rules(action_types=(ActionType.SPEAK,))
    assert act(make("leaver"), observed(free_task(), rules=no_exit)) == NO_ACTION


def test_random_draws_every_available_type_evenly_and_nothing_else():
    observation = observed(free_task())
    sample = [act(UniformRandom(), observation, seed) for seed in range(1000)]
    counts = {kind: sum(a.action_type is kind for a in sample) for kind in ActionType}
    assert all(140 <= count <= 260 for count in counts.values()), counts
    assert all(a.argument for a in sample if a.action_type in (ActionType.SPEAK, ActionType.ACTION))
    talk_only = observed(free_task(), rules=Rules(action_types=(ActionType.SPEAK,)))
    assert {act(UniformRandom(), talk_only, seed).action_type for seed in range(50)} == {
        ActionType.NONE,
        ActionType.SPEAK,
    }


MOVING = {
    "mixed": verified(MIXED),
    "quorum": verified(three_seats({"quorum": 2})),
    "ballot": verified(ballot()),
    "claims": friends_task(),
}


@pytest.mark.parametrize("scene", MOVING)
def test_random_makes_legal_moves_now_and_then(scene):
    task = MOVING[scene]
    rules = Rules(max_silent_turns=0, action_types=(ActionType.SPEAK, ActionType.ACTION))
    states = [play((UniformRandom(),) * len(task.agents), task, rules, seed) for seed in range(20)]
    assert all(violations(state) == [] for state in states)
    counts = [sum(move is not None for move in moves(state)) for state in states]
    assert sum(counts) > 10
    assert any(None in moves(state) for state in states)
    assert play((UniformRandom(),) * len(task.agents), task, rules, 3).turns == states[3].turns


def test_random_samples_every_kind_of_move():
    observation = observed(one_number(), moving(propose={"n": 3}), moving(propose={"n": 1}))
    kinds = {action.move.kind for seed in range(200) if (action := act(UniformRandom(), observation, seed)).move}
    assert kinds == {"propose", "accept", "reject", "withdraw"}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_makes_a_policy_of_that_name(name):
    policy = make(name)
    assert isinstance(policy, Policy)
    assert policy.name == name
    assert make(policy) is policy


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("boulware:exponent=0.3,horizon=8", TimeDependent("boulware", 0.3, horizon=8)),
        (" linear : floor = 0.2 ", TimeDependent("linear", floor=0.2)),
        ("generous:opening=1", TimeDependent("generous", opening=1.0, floor=0.0)),
        ("conceder:", TimeDependent("conceder", 5.0)),
    ],
)
def test_parameters_are_read(spec, expected):
    assert make(spec) == expected


@pytest.mark.parametrize(
    ("spec", "error", "fields"),
    [
        ("boulwar", UnknownNameError, {"field": "policy", "nearest": "boulware"}),
        ("", UnknownNameError, {"field": "policy"}),
        ("boulware:exponnent=1", UnknownNameError, {"field": "exponnent", "nearest": "exponent"}),
        ("boulware:name=x", UnknownNameError, {"field": "name"}),
        ("silent:loud=1", UnknownNameError, {"field": "loud"}),
        ("boulware:exponent", InvalidValueError, {"field": ""}),
        ("boulware:exponent=high", InvalidValueError, {"field": "exponent"}),
        ("boulware:exponent=-1", InvalidValueError, {"field": "exponent"}),
        ("boulware:exponent=nan", InvalidValueError, {"field": "exponent"}),
        ("boulware:horizon=2.5", InvalidValueError, {"field": "horizon"}),
        ("boulware:floor=0.1,floor=0.2", InvalidValueError, {"field": "floor"}),
        (7, InvalidValueError, {"field": "policy"}),
        (TimeDependent, InvalidValueError, {"field": "policy"}),
    ],
)
def test_make_refuses(spec, error, fields):
    with raises(error, **fields):
        make(spec)
