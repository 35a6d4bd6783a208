"""Order of turns, consequences of actions, ends of episodes."""

import pytest

from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, UnknownNameError
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import (
    EpisodeState,
    Rules,
    SilenceRule,
    StopReason,
    TurnOrder,
    initial_state,
    transition,
)
from sotopia_env.world.observation import observe
from tests.errors import raises
from tests.sotopia_env.factories import scenario, task

SPEAK = Action(ActionType.SPEAK, "Hm.")
NONE = Action(ActionType.NONE)
LEAVE = Action(ActionType.LEAVE)


def play(rules: Rules, actions, seats: int = 2, seed: int = 0, **fields) -> EpisodeState:
    state = initial_state(task(seats, **fields), rules, seed)
    for action in actions:
        state = transition(state, action)
    return state


def actors(state: EpisodeState) -> list[int]:
    return [int(turn.actor.removeprefix("agent_")) for turn in state.turns]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(), [0, 1, 2, 0, 1, 2]),
        (Rules(first_seat=1), [1, 2, 0, 1, 2, 0]),
        (Rules(turn_order="simultaneous"), [0, 1, 2, 0, 1, 2]),
    ],
)
def test_fixed_orders(rules, expected):
    assert actors(play(rules, [SPEAK] * 6, seats=3)) == expected


def test_random_order_is_fair_per_round_and_fixed_by_the_seed():
    orders = {seed: actors(play(Rules(turn_order="random"), [SPEAK] * 12, seats=3, seed=seed)) for seed in range(6)}
    for seed, order in orders.items():
        assert order == actors(play(Rules(turn_order="random"), [SPEAK] * 12, seats=3, seed=seed))
        assert all(sorted(order[i : i + 3]) == [0, 1, 2] for i in range(0, 12, 3))
    assert len({tuple(order) for order in orders.values()}) > 1


@pytest.mark.parametrize(
    ("action", "counted"),
    [
        (Action(ActionType.LEAVE, "Farewell."), Action(ActionType.LEAVE, "Farewell.")),
        (Action(ActionType.LEAVE, " \n"), LEAVE),
        (Action(ActionType.LEAVE, "Psst.", ("agent_1",)), LEAVE),  # private words cannot be in a turn that all notice
        (Action(ActionType.NONE, "Farewell."), NONE),
    ],
)
def test_words_beside_leave_are_spoken_before_leaving(action, counted):
    state = play(Rules(), [action], seats=3, scenario=scenario(3, private_messages=True))
    assert state.turns[0].action == counted
    assert state.active == ("agent_0", "agent_1", "agent_2")[action.action_type is ActionType.LEAVE :]
    line = observe(state, "agent_1").history
    assert ("Farewell." in line) == ("Farewell." in counted.argument)
    assert "Psst." not in line


def test_an_agent_that_left_does_not_act_again():
    """Guards S12: the predecessor gave turns to agents that had left."""
    state = play(Rules(), [LEAVE, *[SPEAK] * 6], seats=3)
    assert actors(state) == [0, 1, 2, 1, 2, 1, 2]
    assert state.active == ("agent_1", "agent_2")
    assert state.stop is None


@pytest.mark.parametrize(
    ("seats", "rules", "actions", "stop", "turns"),
    [
        (2, Rules(), [LEAVE], StopReason.LEFT, 1),
        (3, Rules(), [SPEAK, LEAVE, SPEAK, LEAVE], StopReason.LEFT, 4),
        (2, Rules(), [NONE] * 3, StopReason.SILENCE, 3),
        (2, Rules(), [NONE, NONE, SPEAK, NONE, NONE], None, 5),
        (4, Rules(), [NONE] * 4, None, 4),
        (4, Rules(), [NONE] * 5, StopReason.SILENCE, 5),
        (2, Rules(max_silent_turns=0, max_turns=50), [NONE] * 49, None, 49),
        (2, Rules(max_silent_turns=1), [NONE], StopReason.SILENCE, 1),
        (2, Rules(), [SPEAK] * 20, StopReason.TURN_LIMIT, 20),
        (2, Rules(max_turns=3), [SPEAK] * 3, StopReason.TURN_LIMIT, 3),
        (3, Rules(max_rounds=2), [SPEAK] * 6, StopReason.TURN_LIMIT, 6),
        (3, Rules(max_rounds=2), [LEAVE, *[SPEAK] * 4], StopReason.TURN_LIMIT, 5),
        (3, Rules(turn_order="simultaneous", max_turns=4), [SPEAK] * 6, StopReason.TURN_LIMIT, 6),
        (2, Rules(turn_order="simultaneous"), [LEAVE, SPEAK], StopReason.LEFT, 2),
        (2, Rules(turn_order="simultaneous"), [LEAVE], None, 1),
    ],
)
def test_ends(seats, rules, actions, stop, turns):
    state = play(rules, actions, seats)
    assert state.stop is stop
    assert len(state.turns) == turns
    assert (state.actor is None) == (stop is not None)


@pytest.mark.parametrize(("stop", "truncated"), [("left", False), ("silence", False), ("turn limit", True)])
def test_only_limits_truncate(stop, truncated):
    """Guards S11: the predecessor reported its turn limit as a termination."""
    assert StopReason(stop).truncated is truncated


@pytest.mark.parametrize(
    ("actions", "stops"),
    [
        ([SPEAK, NONE], True),  # seat 1 silent after seat 0 spoke: three stored silences
        ([SPEAK, SPEAK, NONE], False),  # seat 0 silent: two stored silences
        ([SPEAK, SPEAK, NONE, NONE], True),
        ([NONE], False),
        ([NONE, NONE], True),
    ],
)
def test_the_legacy_silence_rule_is_position_asymmetric(actions, stops):
    state = play(Rules(silence_rule=SilenceRule.LEGACY), actions)
    assert (state.stop is StopReason.SILENCE) == stops


def test_many_seats_survive_round_robin():
    """Guards baselines §4: with four or more seats the predecessor took masked seats for silent ones."""
    state = play(Rules(), [SPEAK] * 19, seats=4)
    assert state.stop is None


def test_the_scenario_limit_counts_unless_the_rules_say_otherwise():
    short = scenario(max_turns=2)
    assert play(Rules(), [SPEAK] * 2, scenario=short).stop is StopReason.TURN_LIMIT
    assert play(Rules(max_turns=5), [SPEAK] * 2, scenario=short).stop is None


@pytest.mark.parametrize(
    ("rules", "private", "action", "reason"),
    [
        (Rules(action_types=("speak",)), False, LEAVE, "'leave' is not available"),
        (Rules(), False, Action(ActionType.SPEAK, "psst", ("agent_1",)), "not possible in this scenario"),
        (Rules(), True, Action(ActionType.SPEAK, "psst", ("agent_0",)), "oneself"),
    ],
)
def test_a_disallowed_action_becomes_none_with_its_reason(rules, private, action, reason):
    state = play(rules, [action], scenario=scenario(private_messages=private))
    assert state.turns[0].action == NONE
    assert reason in state.turns[0].violation


def test_a_seat_that_left_cannot_be_addressed():
    rules, talk = Rules(), scenario(3, private_messages=True)
    state = play(rules, [LEAVE, Action(ActionType.SPEAK, "psst", ("agent_0",))], seats=3, scenario=talk)
    assert "Ada Testa has left" in state.turns[1].violation


def test_misuse_is_refused_and_changes_nothing():
    state = play(Rules(max_turns=1), [SPEAK])
    with pytest.raises(InvalidActionError):
        transition(state, SPEAK)
    fresh = initial_state(task(), Rules(), 0)
    with raises(InvalidActionError, field="to", nearest="agent_1"):
        transition(fresh, Action(ActionType.SPEAK, "x", ("agent1",)))
    assert fresh.turns == ()


@pytest.mark.parametrize(
    ("build", "error", "fields"),
    [
        (lambda: Rules(turn_order="roundrobin"), InvalidValueError, {"field": "turn_order", "nearest": "round-robin"}),
        (lambda: Rules(max_turns=0), InvalidValueError, {"field": "max_turns"}),
        (lambda: Rules(max_turns=2.5), InvalidValueError, {"field": "max_turns"}),
        (lambda: Rules(max_turns=True), InvalidValueError, {"field": "max_turns"}),
        (lambda: Rules(max_silent_turns=-1), InvalidValueError, {"field": "max_silent_turns"}),
        (lambda: Rules(action_types=("speek",)), InvalidValueError, {"field": "action_types", "nearest": "speak"}),
        (lambda: initial_state(task(), Rules(first_seat=2), 0), InvalidValueError, {"field": "first_seat"}),
        (lambda: initial_state(task(), Rules(), -1), InvalidValueError, {"field": "seed"}),
        (lambda: initial_state(task(), Rules(), 1.5), InvalidValueError, {"field": "seed"}),
    ],
)
def test_impossible_rules_are_refused(build, error, fields):
    with raises(error, **fields):
        build()
    assert not issubclass(error, UnknownNameError)


def test_none_is_always_available():
    assert Rules(action_types=("speak",)).action_types == (ActionType.NONE, ActionType.SPEAK)
    assert Rules(turn_order="random").turn_order is TurnOrder.RANDOM


def test_blank_words_are_silence():
    assert play(Rules(), [Action(ActionType.SPEAK, " ")] * 3).stop is StopReason.SILENCE
