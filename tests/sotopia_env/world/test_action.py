"""Actions, quoting and parsing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError
from sotopia_env.world.action import (
    ACTION_TYPES,
    MAX_ARGUMENT_LENGTH,
    Action,
    ActionType,
    ParseFailure,
    parse,
    to_json,
)
from tests.errors import raises

HELLO = '{"action_type": "speak", "argument": "Hello"}'
SAY_HELLO = Action(ActionType.SPEAK, "Hello")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@pytest.mark.parametrize("text", [None, 7, b"{}", {"action_type": "none"}])
def test_a_value_that_is_not_a_text_is_the_callers_mistake(text):
    with raises(InvalidValueError, field="text"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        HELLO,
        f"  \n{HELLO}\n",
        f"```json\n{HELLO}\n```",
        f"```\n{HELLO}\n```",
        f'<think>They want money. {{"action_type": "leave"}}</think>\n{HELLO}',
        f"<think>one</think><think>two {HELLO.replace('Hello', 'No')}</think>{HELLO}",
        f"They said that they leave.</think>{HELLO}",
        f"Sure! Here is what I do: {HELLO}",
        f"I weigh {{pros}} and {{cons}}. {HELLO}",
        f"{HELLO}\n{HELLO}",
        '{"argument": "Hello", "action_type": "speak", "to": []}',
        '{"action_type": "speak", "argument": "Hello", "to": null}',
    ],
)
def test_the_one_action_is_found(text):
    assert parse(text) == SAY_HELLO


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("Hello there!", "no JSON object"),
        ("speak: Hello", "no JSON object"),
        ("{'action_type': 'speak', 'argument': 'Hello'}", "not valid"),
        ('{"action_type": "speak", "argument": "Hello"', "not valid"),
        (f"Sure! Here is what I do: {HELLO} I hope this helps.", "words follow"),
        (f'They said "{{"action_type": "leave"}}" earlier.</think>{HELLO}', "not clear"),
        ('{"action": "speak", "argument": "Hello"}', 'without the key "action_type"'),
        ('{"action_type": "speek", "argument": "Hello"}', 'did you mean "speak"'),
        ('{"action_type": "Speak", "argument": "Hello"}', 'did you mean "speak"'),
        ('{"action_type": 1, "argument": "Hello"}', "got"),
        ('{"action_type": ["speak"], "argument": "Hello"}', "action_type"),
        ('{"action_type": "speak"}', "needs a text"),
        ('{"action_type": "speak", "argument": ""}', "needs a text"),
        ('{"action_type": "action", "argument": ""}', "needs a text"),
        ('{"action_type": "speak", "argument": 7}', "got 7"),
        ('{"action_type": "speak", "argument": null}', "got null"),
        ('{"action_type": null, "argument": "Hello"}', "got null"),
        ('{"action_type": "speak", "argument": "x", "to": [true]}', "got [true]"),
        ('{"action_type": "speak", "argument": "x", "move": {"claim": null}}', "got null"),
        ('{"action_type": "speak", "argument": "\\ud800"}', "lone surrogate"),
        ('{"action_type": "speak", "argument": "x", "tone": "sad"}', "unknown key"),
        ('{"action_type": "speak", "argument": "x", "argument": "y"}', "duplicate key"),
        ('{"action_type": "speak", "argument": "x", "to": 5}', "list of names"),
        ('{"action_type": "speak", "argument": "x", "to": ["Nobody"]}', 'got "Nobody"'),
        (HELLO + '{"action_type": "leave"}', "2 different actions"),
        ('{"action_type": "leave", "argument": "Bye.", "to": ["Bo"]}', "everybody hears"),
        ("<think>I should " + HELLO, "not closed"),
        ('{"x": ' * 20_000 + "1" + "}" * 20_000, "nested too deeply"),
        ("{" * 5_000, "not valid"),
        ('{"action_type": "speak", "argument": "She said {"action_type": "leave"} and went"}', "not valid"),
        ('{"note": oops} ' + HELLO, "not valid"),
        ('{ x {"action_type": "leave"} }', "not valid"),
        ("{{argument}} " + HELLO, "not valid"),
        ('{"action_type": "speak", "argument": "hi", "x": ' + "9" * 5_000 + "}", "too many digits"),
        ("<think></think>" * 17_000, "no JSON object"),
        ("x" * 300_000, "at most 262144"),
        ('{"action_type": "speak", "argument": "' + "x" * (MAX_ARGUMENT_LENGTH + 1) + '"}', "at most"),
    ],
)
def test_everything_else_is_a_failure_with_its_reason(text, reason):
    outcome = parse(text, {"agent_1": "agent_1", "Bo": "agent_1"})
    assert isinstance(outcome, ParseFailure)
    assert reason in outcome.reason
    assert "\n" not in outcome.reason


def test_thinking_tags_inside_an_argument_are_just_text():
    text = '{"action_type": "speak", "argument": "<think>loud</think> {\\"action_type\\": \\"leave\\"}"}'
    assert parse(text) == Action(ActionType.SPEAK, '<think>loud</think> {"action_type": "leave"}')


@pytest.mark.parametrize("name", ["Zoé Ray", "Zoe\u0301 Ray", "zoé  ray", " ZOÉ RAY\n", "AGENT_1"])
def test_names_match_by_their_normal_form(name):
    text = json.dumps({"action_type": "speak", "argument": "psst", "to": [name]})
    assert parse(text, {"agent_1": "agent_1", "Zoé Ray": "agent_1"}) == Action(ActionType.SPEAK, "psst", ("agent_1",))


def test_words_beside_leave_are_read():
    action = Action(ActionType.LEAVE, "Farewell.")
    assert parse('{"action_type": "leave", "argument": "Farewell."}') == action


def test_recipients_are_resolved_by_name_or_id_and_once():
    text = '{"action_type": "speak", "argument": "psst", "to": ["Bo", "agent_1"]}'
    assert parse(text, {"agent_1": "agent_1", "Bo": "agent_1"}) == Action(ActionType.SPEAK, "psst", ("agent_1",))


@given(
    st.sampled_from(ACTION_TYPES),
    TEXTS.filter(str.strip),
    st.lists(st.sampled_from(["agent_1", "agent_2"]), unique=True),
)
def test_every_action_round_trips(kind, argument, to):
    action = Action(kind, argument, () if kind is ActionType.LEAVE else tuple(to))  # words of leave are public
    assert parse(to_json(action)) == action
    assert parse(f"Well.\n```json\n{to_json(action)}\n```") == action


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (("speek", "x"), {"field": "action_type", "nearest": "speak"}),
        ((3, "x"), {"field": "action_type"}),
        (("speak", None), {"field": "argument"}),
        (("speak", "\ud800"), {"field": "argument"}),
        (("speak", "x" * (MAX_ARGUMENT_LENGTH + 1)), {"field": "argument"}),
        (("speak", "x", ["agent_1"]), {"field": "to"}),
        (("speak", "x", (1,)), {"field": "to"}),
    ],
)
def test_an_impossible_action_cannot_be_built(arguments, fields):
    with raises(InvalidActionError, **fields):
        Action(*arguments)
