"""Errors with fields: the sentence of each kind, and what survives pickling and copying."""

import copy
import pickle

import pytest

from sotopia_env.foundation.errors import (
    ConstraintError,
    DamagedRecordError,
    FieldError,
    InvalidActionError,
    InvalidTaskError,
    InvalidValueError,
    RenderModeError,
    UnknownKeywordError,
    UnknownNameError,
    Verbatim,
    Where,
    check_whole,
    excerpt,
)
from tests.errors import check_fields, raises

PRICE = InvalidValueError(field="price", expected="0 to 10", got=12, hint="the nearest is 10", where=Where("t.yaml", 3))
SENTENCES = {
    "price: expected 0 to 10, got 12; the nearest is 10 (t.yaml, line 3)": PRICE,
    'seat: expected one of "buyer", "seller", got "byer"; did you mean "buyer"?': UnknownNameError(
        field="seat", got="byer", valid=("buyer", "seller")
    ),
    'got an unexpected keyword argument "sed", expected one of "seed"': UnknownKeywordError(
        'got an unexpected keyword argument "sed"', valid=["seed"]
    ),
    'render_mode: expected one of "human", "ansi", got "rgb_array"': RenderModeError(
        field="render_mode", got="rgb_array", valid=("human", "ansi")
    ),
    "goal: expected a value, got nothing (t.json)": InvalidTaskError(
        field="goal", expected="a value", got=Verbatim("nothing"), where="t.json"
    ),
    "the episode has ended": InvalidActionError("the episode has ended"),
    'ages: 3 castings asked for, got 2; widen them (scenario "x")': ConstraintError(
        "3 castings asked for", field="ages", got=2, hint="widen them", where=Where(record='scenario "x"')
    ),
    "not valid JSON (e.jsonl, line 7)": DamagedRecordError("not valid JSON", where=Where("e.jsonl", 7)),
}


@pytest.mark.parametrize(("sentence", "error"), SENTENCES.items(), ids=lambda value: type(value).__name__)
def test_the_fields_make_one_sentence(sentence, error):
    assert str(error) == sentence


@pytest.mark.parametrize("remade", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("error", [*SENTENCES.values(), InvalidValueError(field="f", got=lambda: None)])
def test_pickling_and_copying_keep_class_and_fields(error, remade):
    other = remade(error)
    assert type(other) is type(error)
    assert vars(other) == vars(error)
    assert str(other) == str(error)


def test_an_error_about_a_part_becomes_one_about_the_whole():
    whole = DamagedRecordError.of(PRICE, within="terms", where=Where("runs.jsonl", 9))
    check_fields(whole, field="terms.price", expected="0 to 10", got=12, file="runs.jsonl", line=9)
    check_fields(InvalidValueError.of(PRICE, field="--price"), field="--price", file="t.yaml", line=3)
    check_fields(PRICE, field="price", line=3)


@pytest.mark.parametrize("value", [True, 1.0, "2", None, 0, 6])
def test_a_whole_number_within_bounds_is_required(value):
    with raises(InvalidValueError, field="turns", got=value):
        check_whole("turns", value, 1, 5)
    check_whole("turns", 1, 1, 5)
    check_whole("turns", 10**30, 1)


class Fails:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", '"a\\nb"'),
        ("<|im_end|>", '"\\u003c|im_end|>"'),
        (None, "None"),
        pytest.param(10**5000, "a huge number", id="huge"),
        (int, "int"),
        (["a", 1], '["a", 1]'),
        ({"k": ("v",)}, '{"k": ("v",)}'),
        (Verbatim("3 seats"), "3 seats"),
    ],
)
def test_an_excerpt_is_one_harmless_line(value, text):
    assert excerpt(value) == text


@pytest.mark.parametrize("value", ["x" * 10**6, list(range(10**6)), [["y" * 99] * 99] * 99, Fails(), b"z" * 999])
def test_an_excerpt_is_short_whatever_the_value(value):
    assert len(excerpt(value)) <= 80


def test_every_kind_can_be_made_of_another():
    kinds = [InvalidValueError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert isinstance(kind.of(PRICE), FieldError)
