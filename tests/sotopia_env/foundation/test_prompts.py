"""Prompt substitution is one pass over declared placeholders."""

import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.prompts import fill, reader
from tests.errors import raises


def test_put_in_text_is_never_substituted_again():
    """Guards S18: the predecessor replaced placeholders one after another."""
    assert fill("{{a}} {{b}}", a="{{b}}", b="{{a}}") == "{{b}} {{a}}"


@pytest.mark.parametrize("values", [{"a": "1"}, {"a": "1", "b": "2", "c": "3"}])
def test_placeholders_must_match_exactly(values):
    with raises(InvalidValueError, field="template"):
        fill("{{a}} {{b}}", **values)


def test_unknown_prompts_are_refused_with_a_hint():
    with raises(UnknownNameError, field="prompt", nearest="briefing"):
        reader("sotopia_env.world.perception")("briefings")
