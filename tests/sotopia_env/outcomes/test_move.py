"""Reading moves: exactly the six forms, and no rubbish."""

import json
import pickle
import random
from typing import Any

import pytest

from sotopia_env.outcomes import InvalidMoveError, Move, MoveKind
from sotopia_env.outcomes.move import read_move
from tests.errors import raises

LEGAL: list[tuple[Any, Any]] = [
    ({"propose": {"price": 84, "wood": {"Ana": 2}}}, {"propose": {"price": 84, "wood": {"Ana": 2}}}),
    ('{"propose": {"price": "$84"}}', {"propose": {"price": "$84"}}),
    ({"accept": 2}, {"accept": 2}),
    ({"accept": 2.0}, {"accept": 2}),
    ('{"accept": true}', {"accept": True}),
    ({"reject": 1}, {"reject": 1}),
    ({"withdraw": True}, {"withdraw": True}),
    ({"vote": "museum"}, {"vote": "museum"}),
    ('{"vote": null}', {"vote": None}),
    ({"claim": "Ana Lee"}, {"claim": "Ana Lee"}),
]

NESTED: Any = {}
for _ in range(5_000):
    NESTED = {"propose": NESTED}

RUBBISH: list[Any] = [
    None,
    True,
    3,
    float("nan"),
    "",
    "null",
    "accept",
    "[" * 100_000,
    '{"a":' * 50_000,
    '{"accept": NaN}',
    '{"accept": 1, "accept": 2}',
    '{"accept": ' + "9" * 5_000 + "}",
    b'{"accept": 1}',
    [],
    {},
    NESTED,
    {"accept": 1, "reject": 1},
    {"acept": 1},
    {"x" * 100_000: 1},
    {1: 1},
    {"accept": 0},
    {"accept": -1},
    {"accept": False},
    {"accept": None},
    {"accept": "2"},
    {"accept": 1.5},
    {"accept": 10**5_000},
    {"accept": float("inf")},
    {"propose": None},
    {"propose": {}},
    {"propose": [1]},
    {"propose": {"price": None}},
    {"propose": {"price": True}},
    {"propose": {"price": [84]}},
    {"propose": {"price": float("nan")}},
    {"propose": {"price": 10**5_000}},
    {"propose": {"price": {"a": {"b": 1}}}},
    {"propose": {1: 2}},
    {"propose": {str(i): i for i in range(5_000)}},
    {"vote": 3},
    {"vote": ""},
    {"vote": "\ud800"},
    {"\ud800": 1},
    {"claim": None},
    {"claim": ""},
    {"claim": "x" * 1_000},
    object(),
    {"claim": object()},
]


@pytest.mark.parametrize(("value", "expected"), LEGAL)
def test_every_valid_move_is_read(value: Any, expected: Any) -> None:
    assert read_move(value).to_json() == expected
    assert read_move(read_move(value)) == read_move(json.dumps(expected))


@pytest.mark.parametrize("value", RUBBISH, ids=range(len(RUBBISH)))
def test_an_invalid_move_is_refused_in_a_short_sentence(value: Any) -> None:
    with pytest.raises(InvalidMoveError) as caught:
        read_move(value)
    assert 10 < len(str(caught.value)) < 500
    str(caught.value).encode()


def test_a_misspelt_kind_is_offered_the_nearest() -> None:
    with raises(InvalidMoveError, field="move", nearest="propose"):
        read_move({"proposal": {"price": 1}})


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ('{"claim": null}', "null"),
        ('{"propose": {"price": true}}', "true"),
        ('{"propose": {"price": [null, 1]}}', "[null, 1]"),
        ("[false]", "[false]"),
    ],
)
def test_a_refusal_quotes_json_as_json(text: str, got: str) -> None:
    with pytest.raises(InvalidMoveError) as caught:
        read_move(text)
    assert caught.value.got == got
    assert pickle.loads(pickle.dumps(caught.value)).got == got


def test_ten_thousand_rubbish_moves_are_refused() -> None:
    rng = random.Random(0)
    for _ in range(10_000):
        with pytest.raises(InvalidMoveError):
            read_move(rng.choice(RUBBISH[17:]))


def test_equality_is_that_of_the_json() -> None:
    assert Move(MoveKind.ACCEPT, True) != Move(MoveKind.ACCEPT, 1)
    assert hash(read_move({"propose": {"b": 1, "a": 2}})) == hash(read_move({"propose": {"a": 2, "b": 1}}))
