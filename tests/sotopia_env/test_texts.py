"""JSON and YAML from outside: data or one sentence that says where, whatever the text is."""

import re

import pytest

from sotopia_env.errors import DamagedRecordError, InvalidValueError
from sotopia_env.json_text import MOST_LEVELS, parse_json, read_json
from sotopia_env.yaml_text import parse_yaml, read_yaml, to_yaml

MANY_DIGITS = "9" * 5_000
ALIASES = "".join(f"{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9 if i else ['x'] * 9)}]\n" for i in range(12))
DEEP = "nested more than 100 levels deep"


def nested(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{oops", "F: not valid JSON (Expecting property name"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice in one object"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("[1e999]", "1e999 is too large for a number"),
        (MANY_DIGITS, "a number has thousands of digits"),
        (nested(MOST_LEVELS + 1), DEEP),
        ("[" * 100_000, DEEP),
        (b'"\xff"', "invalid start byte"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_that_is_no_data_is_refused_in_one_sentence(text, problem):
    with pytest.raises(DamagedRecordError, match=re.escape(problem)) as refusal:
        parse_json(text, "F", DamagedRecordError)
    assert str(refusal.value).startswith("F: not valid JSON (")
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('\na: !!int "abc"', "F, line 2: not valid YAML ('abc' is no int that can be read; put text in quotes"),
        ('a: !!bool "x"', "'x' is no bool"),
        ('a: !!float "x"', "'x' is no float"),
        ('a: !!timestamp "x"', "'x' is no timestamp"),
        ("a: 2001-99-99", "F, line 1: not valid YAML ('2001-99-99' is no timestamp"),
        (f"a: {MANY_DIGITS}", "is no int"),
        (f"a: 0x{'f' * 5_000}", "is no int"),
        ("a: .nan", "'.nan' is no float"),
        ("a: [1, -.inf]", "'-.inf' is no float"),
        ("a: 1\nb: {c: 1}\na: 2", "F, line 3: not valid YAML (the key 'a' stands twice in one mapping; remove one)"),
        ("true: 1\n1: 2", "the key 1 stands twice"),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "the key '<<' stands twice"),
        (nested(MOST_LEVELS + 1), DEEP),
        (nested(2_000), DEEP),
        ("&a [*a]", DEEP),
        (ALIASES, "its aliases stand for too many values"),
        ("a: [", "F, line 1: not valid YAML"),
        ("a\n---\nb", "found another document"),
        ("\x00", "special characters are not allowed"),
        ("!!python/object:os.system {}", "could not determine a constructor for the tag"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_yaml_that_is_no_data_is_refused_in_one_sentence_with_its_line(text, problem):
    with pytest.raises(InvalidValueError, match=re.escape(problem)) as refusal:
        parse_yaml(text, "F")
    assert str(refusal.value).startswith("F")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_what_is_data_is_read():
    assert parse_json('{"a": [1, 2.5, null, "x"]}', "F") == {"a": [1, 2.5, None, "x"]}
    assert parse_json(nested(MOST_LEVELS), "F") == parse_yaml(nested(MOST_LEVELS), "F")
    assert parse_yaml("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}", "F") == {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}
    assert parse_yaml(to_yaml({"b": [1, None], "a": "yes"}), "F") == {"b": [1, None], "a": "yes"}
    assert parse_yaml("", "F") is None


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_file_that_is_missing_or_no_text_is_refused(read, tmp_path):
    with pytest.raises(InvalidValueError, match=r"none\.txt: cannot be read"):
        read(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InvalidValueError, match="binary, line 2: expected UTF-8 text, got byte 0xff"):
        read(tmp_path / "binary")
