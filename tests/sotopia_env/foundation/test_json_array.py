"""A JSON array read value by value."""

import io

import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import iter_array
from tests.errors import raises

BAD = [
    ("[1,]", 1),
    ("[1\n 2]", 2),
    ("[1", 1),
    ("{", 1),
    ("[1] 3", 1),
    ('[\n{"a": 1, "a": 2}]', 2),
    ("[NaN]", 1),
    ('[{"a":\n }]', 2),
    ('["abc', 1),
    ("[" + "9" * 6000 + "]", 1),
    ("[\n" + "[" * 101 + "]" * 101 + "]", 2),
]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_values_come_with_their_lines(chunk):
    text = ' [ {"a":\n 1}, 23 ,\n"x\\"]", 4.5e1]\n'
    assert list(iter_array(io.StringIO(text), chunk)) == [(1, {"a": 1}), (2, 23), (3, 'x"]'), (3, 45.0)]
    assert list(iter_array(io.StringIO("[]"), chunk)) == []


@pytest.mark.parametrize(("text", "line"), BAD)
@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_a_malformed_array_is_refused_at_its_mistake(text, line, chunk):
    with raises(InvalidValueError, line=line):
        list(iter_array(io.StringIO(text), chunk))


def test_a_value_that_does_not_end_is_refused_before_the_rest_is_read():
    stream = io.StringIO('["short",\n"' + "x" * 1_000_000 + '"]')
    values = iter_array(stream, 100, most=5_000)
    assert next(values) == (1, "short")
    with raises(InvalidValueError, line=2) as caught:
        next(values)
    assert "5,000" in str(caught.value)
    assert stream.tell() < 6_000


def test_a_mistake_is_found_before_the_rest_is_read():
    stream = io.StringIO("[{bad}, " + "1, " * 100_000 + "1]")
    with raises(InvalidValueError, line=1):
        list(iter_array(stream, 1_000))
    assert stream.tell() < 5_000
