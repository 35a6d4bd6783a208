"""JSON and YAML from outside: data or one sentence that says where, whatever the text is."""

import pytest

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.foundation.json_text import MOST_LEVELS, parse_json, read_json
from sotopia_env.foundation.yaml_text import parse_yaml, read_yaml, to_yaml
from tests.errors import raises

MANY_DIGITS = "9" * 5_000
ALIASES = "".join(f"{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9 if i else ['x'] * 9)}]\n" for i in range(12))


def nested(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text",
    [
        "{oops",
        '{"a": 1, "b": {"c": 1, "c": 2}}',
        '{"a": NaN}',
        "[-Infinity]",
        "[1e999]",
        MANY_DIGITS,
        nested(MOST_LEVELS + 1),
        "[" * 100_000,
        b'"\xff"',
    ],
    ids=lambda value: str(value)[:20],
)
def test_malformed_json_is_refused_in_one_sentence(text):
    with raises(DamagedRecordError, file="F", line=None) as refusal:
        parse_json(text, "F", DamagedRecordError)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('\na: !!int "abc"', 2),
        ('a: !!bool "x"', 1),
        ('a: !!float "x"', 1),
        ('a: !!timestamp "x"', 1),
        ("a: 2001-99-99", 1),
        (f"a: {MANY_DIGITS}", 1),
        (f"a: 0x{'f' * 5_000}", 1),
        ("a: .nan", 1),
        ("a: [1, -.inf]", 1),
        ("a: 1\nb: {c: 1}\na: 2", 3),
        ("true: 1\n1: 2", 2),
        ("a: {<<: {b: 1}, <<: {c: 1}}", 1),
        (nested(MOST_LEVELS + 1), None),
        (nested(2_000), None),
        ("&a [*a]", None),
        (ALIASES, None),
        ("a: [", 1),
        ("a\n---\nb", 2),
        ("\x00", None),
        ("!!python/object:os.system {}", 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_malformed_yaml_is_refused_in_one_sentence_with_its_line(text, line):
    with raises(InvalidValueError, file="F", line=line) as refusal:
        parse_yaml(text, "F")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_valid_json_and_yaml_are_read():
    assert parse_json('{"a": [1, 2.5, null, "x"]}', "F") == {"a": [1, 2.5, None, "x"]}
    assert parse_json(nested(MOST_LEVELS), "F") == parse_yaml(nested(MOST_LEVELS), "F")
    assert parse_yaml("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}", "F") == {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}
    assert parse_yaml(to_yaml({"b": [1, None], "a": "yes"}), "F") == {"b": [1, None], "a": "yes"}
    assert parse_yaml("", "F") is None


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_file_that_is_missing_or_not_text_is_refused(read, tmp_path):
    with raises(InvalidValueError, file="none.txt"):
        read(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"a: 1\nb: \xff\n")
    with raises(InvalidValueError, file="binary", line=2, got="byte 0xff"):
        read(tmp_path / "binary")
