"""Custom dimensions from a file: read in order, or refused in one sentence that says where."""

import pytest

from sotopia_env.errors import InvalidValueError
from sotopia_env.evaluators import load_dimensions
from sotopia_env.world.reward import CustomDimension

GOOD = "dimensions:\n  - name: salary\n    low: 1\n    high: 5\n    instruction: How close?\n"


def test_custom_dimensions_are_read_from_yaml(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(GOOD + "  - {name: warmth, low: -3, high: 3, instruction: How warm}\n")
    first, second = load_dimensions(path)
    assert first == CustomDimension(name="salary", low=1, high=5, instruction="How close?")
    assert (second.name, second.low) == ("warmth", -3)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "expected a list of dimensions, each with name, low, high, instruction, got None"),
        ("dimensions: 3", "expected a list of dimensions"),
        ("dimension: []", "did you mean 'dimensions'"),
        ("- 3", "entry 1: expected the fields name, low, high, instruction, got 3"),
        (GOOD.replace("low", "lo"), r"entry 1 \('salary'\): field: expected one of .* did you mean 'low'"),
        (GOOD.replace("    high: 5\n", ""), r"entry 1 \('salary'\): field 'high': expected a value, got none"),
        (GOOD.replace("low: 1", "low: 9"), r"entry 1 \('salary'\): low must be below high, got 9 and 5"),
        (GOOD.replace("low: 1", "low: '1'"), "field 'low': expected a whole number, got '1'"),
        (GOOD.replace("low: 1", "low: 1.0"), "field 'low': expected a whole number, got 1.0"),
        (GOOD.replace("low: 1", "low: true"), "field 'low': expected a whole number, got True"),
        (GOOD.replace("low: 1", "low: [1]"), "field 'low': expected a whole number, got .1."),
        (GOOD.replace("How close?", "''"), "field 'instruction'"),
        (GOOD.replace("salary", "Salary Level"), "field 'name'"),
        (GOOD.replace("salary", "goal"), "name: 'goal' is one of the built-in dimensions"),
        (GOOD.replace("salary", "yes"), "field 'name': expected a text, got True"),
        (GOOD + GOOD.partition("\n")[2], "entry 2: field 'name': 'salary' is given twice"),
        (GOOD + "    low: 2\n", "line 6: not valid YAML .the key 'low' stands twice in one mapping"),
        (GOOD + "   - x: [", "line 6: not valid YAML"),
        ("&a [*a]", "nested more than 100 levels deep"),
        ("!!python/object:os.system {}", "could not determine a constructor"),
        (GOOD.replace("low: 1", "low: 2001-99-99"), "line 3: not valid YAML .'2001-99-99' is no timestamp"),
        (GOOD.replace("low: 1", "low: .inf"), "line 3: not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(text, hint, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=hint) as caught:
        load_dimensions(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xfd"])
def test_a_file_that_cannot_be_read_is_refused(content, tmp_path):
    path = tmp_path / "own.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValueError, match=r"own\.yaml(: cannot be read|, line 1: expected UTF-8)"):
        load_dimensions(path)
