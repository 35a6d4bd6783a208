"""Records: what is wrong with one is said in this package's words, never in pydantic's."""

import importlib.metadata
import re
from types import MappingProxyType, SimpleNamespace
from typing import Literal, get_args

import pytest
from pydantic import Field, ValidationError
from pydantic_core import PydanticKnownError, core_schema

from sotopia_env.foundation import versions
from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Where, check_members
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.foundation.validation import invalid, invalid_part
from sotopia_env.foundation.versions import package_versions
from sotopia_env.policies import Policy
from sotopia_env.storage.manifest import RunManifest
from sotopia_env.world.episode import Evaluator
from tests.errors import check_fields, raises


class Sample(Record):
    name: str = Field(default="x", min_length=2, pattern="^[a-z]+$")
    count: int = Field(default=1, ge=1, le=9)
    share: float = 0.5
    kind: Literal["plain", "fancy"] = "plain"
    parts: tuple[int, ...] = Field(default=(1,), min_length=1)
    open: bool = False
    inner: "Sample | None" = None


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"count": "many"}', {"field": "count", "expected": "a whole number", "got": "many"}),
        ('{"count": 1.5}', {"field": "count", "expected": "a whole number", "got": 1.5}),
        ('{"count": 0}', {"field": "count", "expected": "a number of at least 1", "got": 0}),
        ('{"count": 10}', {"field": "count", "expected": "a number of at most 9", "got": 10}),
        ('{"share": "half"}', {"field": "share", "expected": "a number", "got": "half"}),
        ('{"name": 3}', {"field": "name", "expected": "a text", "got": 3}),
        ('{"name": "a"}', {"field": "name", "expected": "at least 2 characters", "got": "a"}),
        ('{"name": "A3"}', {"field": "name", "expected": "a text that matches ^[a-z]+$", "got": "A3"}),
        ('{"kind": "plan"}', {"field": "kind", "expected": "'plain' or 'fancy'", "got": "plan", "nearest": "plain"}),
        ('{"parts": 3}', {"field": "parts", "expected": "a list", "got": 3}),
        ('{"parts": []}', {"field": "parts", "expected": "at least 1 entries", "got": 0}),
        ('{"open": "perhaps"}', {"field": "open", "expected": "true or false", "got": "perhaps"}),
        ('{"inner": [1]}', {"field": "inner", "expected": "an object with fields", "got": "[1]"}),
        ('{"inner": {"namez": "ab"}}', {"field": "inner.namez", "got": "ab", "nearest": "name"}),
        ('{"share": null, "count": null}', {"field": "count", "expected": "a whole number", "got": None}),
        ("[1]", {"field": "record", "expected": "an object with fields", "got": "[1]"}),
        ('{"name": "ab", "name": "cd"}', {"field": "", "expected": ""}),
        ('{"share": Infinity}', {"field": "", "expected": ""}),
        ("{", {"field": "", "expected": ""}),
    ],
)
def test_a_damaged_record_is_explained_by_field_expectation_and_value(text, fields):
    with raises(DamagedRecordError, file="f.jsonl", line=3, **fields):
        read_record(Sample, text, Where("f.jsonl", 3))


NUMBERS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "actual_length", "expected_version")
NUMBERS += ("length", "tz_expected", "tz_actual", "max_digits", "decimal_places", "whole_digits")
TEXTS = ("expected", "field_type", "pattern", "error", "class", "class_name", "method_name", "attribute", "name", "tag")
TEXTS += ("encoding", "encoding_error", "mapping_type", "discriminator", "expected_tags", "expected_schemes")
CONTEXT = dict.fromkeys(NUMBERS, 3) | dict.fromkeys(TEXTS, "kind")


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_no_problem_is_reported_in_pydantics_words(kind):
    message = PydanticKnownError(kind, CONTEXT).message()
    sentence = str(invalid_part({"type": kind, "msg": message, "input": {"kind": 1}, "ctx": CONTEXT}))
    assert not re.search("Input should|Value error|Field required|Extra inputs|valid (integer|string|number)", sentence)


def test_the_fields_of_a_check_of_our_own_are_left_as_they_are():
    with pytest.raises(ValidationError) as refusal:
        RunManifest.model_validate({"schema_version": 99})
    check_fields(invalid(refusal.value), field="schema_version", got=99)


def test_a_package_without_metadata_has_no_version(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    assert {name: version for name, version in package_versions().items() if version is not None}.keys() == {"python"}
    assert package_versions()["litellm"] is None


class HalfAnEvaluator:
    name = "half"

    async def act(self, episode):
        return None

    def __repr__(self):
        return "half"


@pytest.mark.parametrize(
    ("value", "protocol", "got", "missing"),
    [
        (HalfAnEvaluator(), Evaluator, "half", ["parameters", "evaluate"]),
        (HalfAnEvaluator(), Policy, "half", ["parameters"]),
        (HalfAnEvaluator, Evaluator, "the class HalfAnEvaluator", []),
        (7, Policy, 7, []),
    ],
)
def test_an_object_of_another_kind_is_refused_with_its_missing_members(value, protocol, got, missing):
    with raises(InvalidValueError, field="field", expected="a thing", got=got) as refusal:
        check_members("field", "a thing", value, protocol)
    assert all(name in refusal.value.hint for name in missing)


def test_an_object_of_the_kind_is_taken():
    check_members("field", "a policy", SimpleNamespace(name="x", parameters={}, act=None), Policy)


def test_a_function_in_the_place_of_a_coroutine_function_is_refused():
    class Synchronous(HalfAnEvaluator):
        parameters = MappingProxyType({})

        def evaluate(self, episode):
            return None

    with raises(InvalidValueError, field="field", expected="a coroutine function Synchronous.evaluate"):
        check_members("field", "an evaluator", Synchronous(), Evaluator)
