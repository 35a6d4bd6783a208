"""Records: what is wrong with one is said in this package's words, never in pydantic's."""

import importlib.metadata
import re
from types import SimpleNamespace
from typing import Literal, get_args

import pytest
from pydantic import Field, ValidationError
from pydantic_core import PydanticKnownError, core_schema

from sotopia_env import records
from sotopia_env.errors import DamagedRecordError, InvalidValueError, check_members
from sotopia_env.policies import Policy
from sotopia_env.records import Record, expectation, explain, package_versions, read_record
from sotopia_env.storage.manifest import RunManifest
from sotopia_env.world.episode import Evaluator


class Sample(Record):
    name: str = Field(default="x", min_length=2, pattern="^[a-z]+$")
    count: int = Field(default=1, ge=1, le=9)
    share: float = 0.5
    kind: Literal["plain", "fancy"] = "plain"
    parts: tuple[int, ...] = Field(default=(1,), min_length=1)
    open: bool = False
    inner: "Sample | None" = None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"count": "many"}', "count: expected a whole number, got 'many'"),
        ('{"count": 1.5}', "count: expected a whole number, got 1.5"),
        ('{"count": 0}', "count: expected a number of at least 1, got 0"),
        ('{"count": 10}', "count: expected a number of at most 9, got 10"),
        ('{"share": "half"}', "share: expected a number, got 'half'"),
        ('{"name": 3}', "name: expected a text, got 3"),
        ('{"name": "a"}', "name: expected at least 2 characters, got 'a'"),
        ('{"name": "A3"}', "name: expected a text that matches ^[a-z]+$, got 'A3'"),
        ('{"kind": "plan"}', "kind: expected 'plain' or 'fancy', got 'plan'; did you mean 'plain'?"),
        ('{"parts": 3}', "parts: expected a list, got 3"),
        ('{"parts": []}', "parts: expected at least 1 entries, got 0"),
        ('{"open": "perhaps"}', "open: expected true or false, got 'perhaps'"),
        ('{"inner": [1]}', "inner: expected an object with fields, got [1]"),
        ('{"inner": {"namez": "ab"}}', "inner.namez: unknown field, got 'ab'; did you mean 'name'?"),
        ('{"share": null, "count": null}', "count: expected a whole number, got None (and 1 more)"),
        ("[1]", "record: expected an object with fields, got [1]"),
        ('{"name": "ab", "name": "cd"}', "not valid JSON: the key 'name' stands twice in one object"),
        ('{"share": Infinity}', "not valid JSON: Infinity is no JSON number"),
        ("{", "not valid JSON: Expecting property name"),
    ],
)
def test_a_damaged_record_is_explained_by_field_expectation_and_value(text, problem):
    with pytest.raises(DamagedRecordError) as refusal:
        read_record(Sample, text, "f.jsonl, line 3")
    assert str(refusal.value).startswith(f"f.jsonl, line 3: damaged record ({problem}")


NUMBERS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "actual_length", "expected_version")
NUMBERS += ("length", "tz_expected", "tz_actual", "max_digits", "decimal_places", "whole_digits")
TEXTS = ("expected", "field_type", "pattern", "error", "class", "class_name", "method_name", "attribute", "name", "tag")
TEXTS += ("encoding", "encoding_error", "mapping_type", "discriminator", "expected_tags", "expected_schemes")
CONTEXT = dict.fromkeys(NUMBERS, 3) | dict.fromkeys(TEXTS, "kind")


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_no_problem_is_told_in_pydantics_words(kind):
    message = PydanticKnownError(kind, CONTEXT).message()
    sentence = expectation({"type": kind, "msg": message, "input": {"kind": 1}, "ctx": CONTEXT})
    assert not re.search("Input should|Value error|Field required|Extra inputs|valid (integer|string|number)", sentence)


def test_the_sentence_of_a_check_of_our_own_is_left_as_it_is():
    with pytest.raises(ValidationError) as refusal:
        RunManifest.model_validate({"schema_version": 99})
    assert explain(refusal.value).startswith("schema_version: this code reads version 2, got 99; play the run again")


def test_a_package_without_metadata_has_no_version(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(records, "version", missing)
    assert {name: version for name, version in package_versions().items() if version is not None}.keys() == {"python"}
    assert package_versions()["litellm"] is None


class HalfAnEvaluator:
    name = "half"

    def evaluate(self, transcript):
        return None

    def __repr__(self):
        return "half"


@pytest.mark.parametrize(
    ("value", "protocol", "problem"),
    [
        (HalfAnEvaluator(), Evaluator, "got half, which lacks parameters, evaluate_async"),
        (HalfAnEvaluator(), Policy, "got half, which lacks parameters, act"),
        (HalfAnEvaluator, Evaluator, "HalfAnEvaluator'>, a class; call it to make an object"),
        (7, Policy, "got 7"),
    ],
)
def test_an_object_of_another_kind_is_refused_with_what_it_lacks(value, protocol, problem):
    with pytest.raises(InvalidValueError) as refusal:
        check_members("field", "a thing", value, protocol)
    assert str(refusal.value).startswith("field: expected a thing, got ")
    assert str(refusal.value).endswith(problem)


def test_an_object_of_the_kind_is_taken():
    check_members("field", "a policy", SimpleNamespace(name="x", parameters={}, act=None), Policy)
