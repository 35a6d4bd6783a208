"""A JSON array read value by value."""

import io

import pytest

from sotopia_env.json_text import iter_array

BAD = [
    ("[1,]", "line 1: expected a value after the comma, got ']'"),
    ("[1\n 2]", "line 2: expected ',' or ']' after a value, got '2'"),
    ("[1", "line 1: expected ',' or ']' after a value, got 'the end'"),
    ("{", r"line 1: expected '\[', got '{'"),
    ("[1] 3", "line 1: expected nothing after the array, got '3'"),
    ('[\n{"a": 1, "a": 2}]', "line 2: the key 'a' stands twice"),
    ("[NaN]", "line 1: NaN is no JSON number"),
    ('[{"a":\n }]', "line 2: Expecting value"),
    ('["abc', "line 1: Unterminated string"),
    ("[" + "9" * 6000 + "]", "thousands of digits"),
    ("[" + "[" * 101 + "]" * 101 + "]", "nested more than 100 levels"),
]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_values_come_with_their_lines(chunk):
    text = ' [ {"a":\n 1}, 23 ,\n"x\\"]", 4.5e1]\n'
    assert list(iter_array(io.StringIO(text), chunk)) == [(1, {"a": 1}), (2, 23), (3, 'x"]'), (3, 45.0)]
    assert list(iter_array(io.StringIO("[]"), chunk)) == []


@pytest.mark.parametrize(("text", "message"), BAD)
@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_what_is_no_array_is_refused_where_it_is_wrong(text, message, chunk):
    with pytest.raises(ValueError, match=message):
        list(iter_array(io.StringIO(text), chunk))


def test_a_mistake_is_found_before_the_rest_is_read():
    stream = io.StringIO("[{bad}, " + "1, " * 100_000 + "1]")
    with pytest.raises(ValueError, match="line 1"):
        list(iter_array(stream, 1_000))
    assert stream.tell() < 5_000
