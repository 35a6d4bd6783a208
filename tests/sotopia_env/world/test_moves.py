"""Moves in the world: how they are read, what they change, what they do not, and who learns of them."""

import json
import random

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.outcomes import InvalidMoveError, Move, MoveKind
from sotopia_env.world.action import Action, ActionType, ParseFailure, optional_move, parse, to_json
from sotopia_env.world.dynamics import Rules, StopReason, move_problem, transition
from sotopia_env.world.episode import Episode, RecordedTurn, read_episode, replay, to_line
from sotopia_env.world.observation import observe
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.tables import final_table
from tests.errors import raises
from tests.sotopia_env.world.scenarios import CANDIDATES, KINDS, OPTIONS, offer, play, say, verified_task

ACCEPT = Move(MoveKind.ACCEPT, 2)


def speak(move: str, argument: str = '"Fine."') -> str:
    return f'{{"action_type": "speak", "argument": {argument}, "move": {move}}}'


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        ('{"accept": 2}', ACCEPT),
        ('{"accept": 2.0}', ACCEPT),
        ('{"accept": true}', Move(MoveKind.ACCEPT, True)),
        (json.dumps('{"accept": 2}'), ACCEPT),
        (json.dumps('\n {"accept": 2} '), ACCEPT),
        ("null", None),
        ("{}", None),
        ('""', None),
        ('"null"', None),
        ('{"vote": null}', Move(MoveKind.VOTE, None)),
        ('{"claim": "Ana – “Lee”"}', Move(MoveKind.CLAIM, "Ana – “Lee”")),
        ('{"propose": {"price": "$7", "start": "june 1"}}', Move(MoveKind.PROPOSE, {"price": "$7", "start": "june 1"})),
    ],
)
def test_a_move_is_read_as_an_object_as_text_or_as_null(move, expected):
    action = parse(speak(move))
    assert action == Action(ActionType.SPEAK, "Fine.", (), expected)
    assert parse(to_json(action)) == action


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (speak('"accept 2"'), "move: "),
        (speak("7"), "got 7"),
        (speak("[]"), "got []"),
        (speak('{"accept": 2, "reject": 1}'), "move: "),
        (speak('{"acept": 2}'), 'did you mean "accept"'),
        (speak('{"accept": 0}'), "move.accept: "),
        (speak('{"accept": "2"}'), 'got "2"'),
        (speak('{"accept": false}'), "move.accept: "),
        (speak('{"propose": {}}'), "propose: "),
        (speak('{"propose": {"price": [1]}}'), "got [1]"),
        (speak('{"propose": {"price": 1e999}}'), "1e999"),
        (speak('{"accept": 2, "accept": 3}'), "duplicate key"),
        (speak(json.dumps('{"accept": 2, "accept": 3}')), "duplicate key"),
        (speak(json.dumps('{"propose": {"price": NaN}}')), "NaN"),
        (speak('{"accept": 1}') + speak('{"accept": 2}'), "2 different actions"),
        (
            '{"action_type": "none", "move": {"accept": 2}}',
            "move: comes with speak, non-verbal communication or action",
        ),
        ('{"action_type": "leave", "move": {"accept": 2}}', "not with 'leave'"),
        ('{"action_type": "speak", "argument": ""}', "needs a text"),
        ('{"action_type": "speak", "argument": "", "move": null}', "needs a text"),
    ],
)
def test_a_malformed_move_is_a_failure_in_one_sentence(text, reason):
    failure = parse(text)
    assert isinstance(failure, ParseFailure)
    assert reason in failure.reason
    assert "\n" not in failure.reason
    assert len(failure.reason) < 500


@pytest.mark.parametrize("kind", ["speak", "non-verbal communication", "action"])
@pytest.mark.parametrize("argument", ['""', '"  "'])
def test_with_a_move_the_argument_may_be_empty(kind, argument):
    action = parse(f'{{"action_type": "{kind}", "argument": {argument}, "move": {{"accept": 2}}}}')
    assert action.move == ACCEPT


@pytest.mark.parametrize("value", [None, {}, "", "  ", "null"])
def test_an_empty_value_means_no_move(value):
    assert optional_move(value) is None


def test_actions_that_differ_in_their_moves_differ():
    assert say("x", accept=1) != say("x", accept=True)
    assert say("x", accept=1) != say("x", reject=1)
    assert len({say("x", propose=offer(1)), say("x", propose=dict(reversed(offer(1).items())))}) == 1


# ---------------------------------------------------------------------------------------------------------------------
# What a move changes
DEAL = [say("Seven?", propose=offer(7)), say("Fine.", accept=1)]


def table_text(state, agent) -> str:
    return observe(state, agent).table.text


def test_an_accepted_offer_settles_and_ends():
    state = play(verified_task("agreement"), Rules(), *DEAL)
    assert state.stop is StopReason.SETTLED
    assert not state.stop.truncated
    assert state.settled_after == 2
    assert state.turns[0].effect == "offers (#1): price $7, start June 1"
    assert outcome_of(state.task, state.turns).terms == offer(7)


def test_without_the_end_the_conversation_continues_and_the_table_is_final():
    state = play(verified_task("agreement"), Rules(end_when_settled=False), *DEAL, say("I take it back!", reject=1))
    assert state.stop is None
    assert "settled" in state.turns[-1].violation
    assert state.turns[-1].action == say("I take it back!")
    assert outcome_of(state.task, state.turns).terms == offer(7)
    assert state.settled_after == 2
    assert not observe(state, state.actor).moves


@pytest.mark.parametrize("argument", ["", "  ", "Fine."])
@pytest.mark.parametrize("order", ["round-robin", "simultaneous", "reactive"])
def test_a_move_is_not_silence_and_a_refused_one_without_words_is(argument, order):
    rules = Rules(turn_order=order, max_silent_turns=2)
    moved = play(verified_task("agreement"), rules, *[say(argument, propose=offer(n)) for n in (1, 2, 3, 4)])
    assert moved.stop is None
    refused = play(verified_task("agreement"), rules, *[say(argument, accept=9)] * 2)
    assert (refused.stop is StopReason.SILENCE) == (not argument.strip())


def test_a_violation_keeps_the_words_and_the_table():
    before = play(verified_task("agreement"), Rules(), DEAL[0])
    attempt = say("You have a deal!", accept=2)
    assert "offer #2 is not open" in move_problem(before, "agent_1", attempt)
    after = transition(before, attempt)
    turn = after.turns[-1]
    assert (turn.action, turn.attempted) == (say("You have a deal!"), attempt)
    assert turn.violation == "accept: offer #2 is not open; open to you: #1"
    assert (turn.effect, turn.hidden) == (None, None)
    assert after.table is before.table
    own, other = observe(after, "agent_1"), observe(after, "agent_0")
    assert "Your words were heard, but your move did not count" in own.text
    assert "Your words were heard" not in other.text + json.dumps(other.messages)
    assert other.turns[-1].attempted is None
    assert move_problem(before, "agent_1", DEAL[1]) is None


def test_a_violation_is_shown_until_the_seats_next_turn():
    rules = Rules()
    state = play(verified_task("agreement"), rules, say("x", accept=1), say())
    assert "did not count" in observe(state, "agent_0").text
    assert "did not count" in observe(state, "agent_0").text_without(1)
    state = transition(state, say("Well then.", propose=offer(3)))
    assert "did not count" not in observe(state, "agent_0").text
    assert "did not count" in json.dumps(observe(state, "agent_0").messages)  # what was told stays told


def test_a_seat_that_leaves_removes_its_offers_and_learns_nothing_more():
    task = verified_task("quorum", 3)
    state = play(task, Rules(), say(), say("Nine?", propose=offer(9)), say("Or four?", propose=offer(4)), say())
    assert table_text(state, "agent_0").count("#") == 2
    state = transition(state, Action(ActionType.LEAVE))
    assert "$9" not in table_text(state, "agent_0")
    assert "$4" in table_text(state, "agent_0")
    last = table_text(state, "agent_1")
    state = transition(state, say("Ten?", propose=offer(10)))
    assert table_text(state, "agent_1") == last
    assert "$10" in table_text(state, "agent_0")
    assert not observe(state, "agent_1").acting
    state = transition(state, say("Yes.", accept=3))
    assert state.stop is StopReason.SETTLED
    assert table_text(state, "agent_1") == last
    assert "Agreed on #3" in table_text(state, "agent_2")


def test_a_needed_seat_that_leaves_settles_the_table_without_agreement():
    state = play(verified_task("agreement", 3), Rules(), say(), Action(ActionType.LEAVE))
    assert state.stop is StopReason.SETTLED
    assert not outcome_of(state.task, state.turns).agreed


# ---------------------------------------------------------------------------------------------------------------------
# Simultaneous rounds and random order
ROUNDS = {"turn_order": "simultaneous"}


def test_equal_offers_that_cross_are_an_agreement():
    state = play(verified_task("agreement", 3), ROUNDS, *[say(f"{n}: seven", propose=offer(7)) for n in range(3)])
    assert state.stop is StopReason.SETTLED
    assert state.settled_after == 3
    assert outcome_of(state.task, state.turns).terms == offer(7)


def test_a_round_is_played_against_the_table_before_it():
    state = play(verified_task("agreement"), ROUNDS, say("Five", propose=offer(5)), say("Fine.", accept=1))
    assert "offer #1 is not open" in state.turns[1].violation
    state = transition(transition(state, say("So?")), say("Fine.", accept=1))
    assert state.stop is StopReason.SETTLED


def test_moves_of_the_running_round_are_hidden():
    state = play(verified_task("agreement"), ROUNDS, say("Five", propose=offer(5)))
    for agent in state.task.agents:
        observation = observe(state, agent)
        assert observation.table.text == "Nothing is on the table."
        assert observation.moves is None or observation.moves.accept == ()
        assert "$5" not in observation.text + json.dumps(observation.messages)
    state = transition(state, say("Nine", propose=offer(9)))
    assert "#1 by Ada Testa: price $5" in observe(state, "agent_1").text
    assert observe(state, "agent_1").moves.accept == (1,)


def test_a_seat_that_leaves_in_the_current_round_can_still_be_addressed():
    """Neither the words nor the re-asks of a model may depend on what others did in the same round."""
    state = play(verified_task("ballot", 4, private=True), ROUNDS, Action(ActionType.LEAVE))
    whisper = Action(ActionType.SPEAK, "Psst.", ("agent_0",), Move(MoveKind.VOTE, OPTIONS[0]))
    assert observe(state, "agent_1").move_problem(whisper) is None
    state = transition(state, whisper)
    assert state.turns[-1].violation is None
    while state.round == 0:
        state = transition(state, Action(ActionType.NONE))
    assert "has left" in observe(state, "agent_1").move_problem(whisper)


def test_a_round_that_is_settled_is_played_to_its_end():
    task = verified_task("quorum", 3)
    state = play(task, ROUNDS, say("x", propose=offer(5)), say(), say())
    state = transition(transition(state, say()), say("Yes", accept=1))
    assert state.settled_after == 5
    assert state.stop is None
    assert observe(state, "agent_2").moves.accept == (1,)
    state = transition(state, say("Me too", accept=1))
    assert "settled" in state.turns[-1].violation
    assert state.stop is StopReason.SETTLED


@pytest.mark.parametrize("order", ["round-robin", "random", "simultaneous", "reactive"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fold_over_the_turns_alone_gives_the_same_table(kind, order):
    """Whoever reads a record (an evaluator, an importer) needs neither rules nor seed."""
    from tests.sotopia_env.world.scenarios import random_states

    for seed in range(6):
        *_, last = random_states(
            verified_task(kind, 3, seed % 2 == 0), Rules(turn_order=order, max_turns=24, max_silent_turns=0), seed
        )
        assert final_table(last.task, last.turns) == (last.table, last.settled_after)


def test_in_random_order_the_acting_seat_has_the_menu():
    state = play(verified_task("ballot", 5), {"turn_order": "random"}, seed=3)
    order = []
    while state.stop is None:
        order.append(state.actor)
        assert [bool(observe(state, agent).moves) for agent in state.task.agents] == [
            agent == state.actor for agent in state.task.agents
        ]
        state = transition(state, say("Mine.", vote=OPTIONS[0]))
    assert sorted(order) == list(state.task.agents)
    assert state.stop is StopReason.SETTLED


# ---------------------------------------------------------------------------------------------------------------------
# Rubbish
def rubbish(rng: random.Random):
    """A move of some kind with a content that may or may not be meant for this task."""
    kinds = list(MoveKind)
    contents = [
        None, True, 0, -1, 1, 2, 7, 10**30, 1.5, "", "zoo", "Ben Ross", "x" * 300, offer(3), offer(30), offer(2.5),
        offer(3, "June 31"), {"price": 3}, {**offer(3), "extra": 1}, {"price": {"agent_0": 1}, "start": "June 1"},
        [1], {"start": "June 1", "price": "a lot"}, {"": 1}, {"price": "٣", "start": "June 1"}, object(),
        {"price": "$3,000", "start": "June 1"}, CANDIDATES[0], "museum ", "\u202e", {"agent_0": {"x": {}}},
    ]  # fmt: skip
    return rng.choice(kinds), rng.choice(contents)


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_rubbish_moves_leave_the_table_as_it_was(kind):
    rng = random.Random(f"rubbish {kind}")
    opening = {"claims": [], "ballot": [say("x", vote="zoo")], "secret ballot": [say("x", vote="zoo")]}
    opening["facts"] = [say("x"), say("x"), say("x"), say("x", vote="zoo")]  # the ballot opens after a turn of each
    rules = Rules(max_turns=10**6, max_silent_turns=0)
    state = play(verified_task(kind, 3), rules, *opening.get(kind, [say("Four?", propose=offer(4))]))
    table, turns, reasons = state.table, state.turns, 0
    while reasons < 10_000:
        move = Move(*rubbish(rng))
        attempt = Action(ActionType.SPEAK, "Deal?", (), move)
        reason = move_problem(state, state.actor, attempt)
        if reason is None:
            continue  # not everything is rubbish in every task
        reasons += 1
        assert reason
        assert len(reason.splitlines()) == 1
        assert len(reason) <= 480
        assert state.table is table
        if reasons % 100 == 0:  # the whole way, too
            state = transition(state, attempt)
            assert (state.table, state.turns[-1].violation) == (table, reason)
            assert state.turns[-1].action == say("Deal?")
            while state.actor != "agent_1":
                state = transition(state, say())
    assert state.turns[: len(turns)] == turns


@pytest.mark.parametrize(
    "text", ["[", "{", '{"accept": ' * 3_000, '{"propose": {"price": 1' + "0" * 6_000 + "}}", "é" * 30_000]
)
def test_rubbish_texts_of_moves_are_refused_at_once(text):
    with pytest.raises(InvalidMoveError) as refusal:
        optional_move(text)
    assert len(str(refusal.value)) < 500
    assert len(str(refusal.value).splitlines()) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Records
def record(state) -> Episode:
    turns = tuple(RecordedTurn(turn=turn) for turn in state.turns)
    return Episode(task=state.task, rules=state.rules, seed=state.seed, turns=turns, stop=state.stop)


def test_a_forged_move_does_not_replay():
    episode = record(play(verified_task("agreement"), Rules(), *DEAL))
    line = to_line(episode)
    assert replay(read_episode(line, "here")).turns == tuple(item.turn for item in episode.turns)
    for old, new in (
        ("price $7", "price $8"),
        ('\\"price\\": 7', '\\"price\\": 8'),
        ('"stop":"settled"', '"stop":"left"'),
    ):
        assert old in line
        with pytest.raises(DamagedRecordError):
            replay(read_episode(line.replace(old, new, 1), "here"))


@pytest.mark.parametrize(
    ("damage", "fields"),
    [
        (lambda line: line.replace('"schema_version":2', '"schema_version":1'), {"field": "schema_version"}),
        (
            lambda line: line.replace('"{\\"accept\\": 1}"', '"{\\"acept\\": 1}"'),
            {"field": "turns.1.turn.action.move.move", "nearest": "accept"},
        ),
        (lambda line: line.replace('"{\\"accept\\": 1}"', "[1]"), {"field": "turns.1.turn.action.move.move"}),
    ],
)
def test_records_of_another_schema_or_with_no_move_are_refused_in_one_sentence(damage, fields):
    line = to_line(record(play(verified_task("agreement"), Rules(), *DEAL)))
    assert damage(line) != line
    with raises(DamagedRecordError, file="here", **fields) as refusal:
        read_episode(damage(line), "here")
    assert len(str(refusal.value).splitlines()) == 1


def test_a_task_of_the_old_schema_is_refused_in_one_sentence():
    line = to_line(record(play(verified_task("agreement"), Rules(), *DEAL)))
    item = json.loads(line)
    item["task"]["scenario"]["outcome"] = {"family": "bargaining", "parameters": {"low": 1}}
    with raises(DamagedRecordError, field="task.scenario.outcome.family") as refusal:
        read_episode(json.dumps(item), "here")
    assert len(str(refusal.value).splitlines()) == 1


def test_a_public_answer_to_a_private_offer_does_not_tell_its_terms():
    proposal = say("Us two?", "agent_1", propose=offer(11, "June 15"))
    rules = Rules(end_when_settled=False)
    state = play(verified_task("quorum", 3, private=True), rules, proposal, say("Yes!", accept=1))
    for agent in ("agent_0", "agent_1"):
        assert "$11" in observe(state, agent).text
    stranger = observe(state, "agent_2")
    assert "accepts #1" in stranger.history
    assert "$11" not in stranger.text + repr((stranger.turns, stranger.table)) + json.dumps(stranger.messages[1:])
