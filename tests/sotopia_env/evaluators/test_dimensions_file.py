"""Custom dimensions from a file: read in order, or refused in one sentence that says where."""

import pytest

from sotopia_env.evaluators.judge.dimensions_file import load_dimensions
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.world.reward import CustomDimension
from tests.errors import raises

GOOD = "dimensions:\n  - name: salary\n    low: 1\n    high: 5\n    instruction: How close?\n"


def test_custom_dimensions_are_read_from_yaml(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(GOOD + "  - {name: warmth, low: -3, high: 3, instruction: How warm}\n")
    first, second = load_dimensions(path)
    assert first == CustomDimension(name="salary", low=1, high=5, instruction="How close?")
    assert (second.name, second.low) == ("warmth", -3)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {"field": "dimensions", "got": None}),
        ("dimensions: 3", {"field": "dimensions", "got": 3}),
        ("dimension: []", {"field": "dimension", "nearest": "dimensions"}),
        ("- 3", {"record": "entry 1", "got": 3}),
        (GOOD.replace("low", "lo"), {"record": "entry 1", "field": "lo", "nearest": "low"}),
        (GOOD.replace("    high: 5\n", ""), {"record": "entry 1", "field": "high"}),
        (GOOD.replace("low: 1", "low: 9"), {"record": "entry 1", "field": "low", "got": 9}),
        (GOOD.replace("low: 1", "low: '1'"), {"field": "low", "got": "1"}),
        (GOOD.replace("low: 1", "low: 1.0"), {"field": "low", "got": 1.0}),
        (GOOD.replace("low: 1", "low: true"), {"field": "low", "got": True}),
        (GOOD.replace("low: 1", "low: [1]"), {"field": "low", "got": "[1]"}),
        (GOOD.replace("How close?", "''"), {"field": "instruction", "got": ""}),
        (GOOD.replace("salary", "Salary Level"), {"field": "name", "got": "Salary Level"}),
        (GOOD.replace("salary", "goal"), {"field": "name", "got": "goal"}),
        (GOOD.replace("salary", "yes"), {"field": "name", "got": True}),
        (GOOD + GOOD.partition("\n")[2], {"record": "entry 2", "field": "name", "got": "salary"}),
        (GOOD + "    low: 2\n", {"line": 6}),
        (GOOD + "   - x: [", {"line": 6}),
        ("&a [*a]", {"line": None}),
        ("!!python/object:os.system {}", {"line": 1}),
        (GOOD.replace("low: 1", "low: 2001-99-99"), {"line": 3}),
        (GOOD.replace("low: 1", "low: .inf"), {"line": 3}),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(text, fields, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with raises(InvalidValueError, file="own.yaml", **fields) as caught:
        load_dimensions(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xfd"])
def test_a_file_that_cannot_be_read_is_refused(content, tmp_path):
    path = tmp_path / "own.yaml"
    if content is not None:
        path.write_bytes(content)
    with raises(InvalidValueError, file="own.yaml"):
        load_dimensions(path)
