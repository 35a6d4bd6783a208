"""The grammar of names: heads, options, lists in parentheses, and several names in one text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_optional_evaluator
from sotopia_env.naming.grammar import (
    BOOLEAN,
    JSON,
    NUMBER,
    PATH,
    WHOLE,
    WORD,
    WORDS,
    optional,
    read_options,
    readers_of,
    split,
    split_call,
    split_names,
    split_options,
)
from sotopia_env.world.reward import CustomDimension, Dimension
from tests.errors import raises


@pytest.mark.parametrize(
    ("name", "head", "options"),
    [
        ("boulware", "boulware", ""),
        ("boulware:", "boulware", ""),
        (" linear : floor = 0.2 ", "linear", "floor = 0.2"),
        ("ollama/llama3:8b", "ollama/llama3:8b", ""),
        ("ollama/llama3:8b:reasks=1", "ollama/llama3:8b", "reasks=1"),
        ("package.module:factory:a=1,b=http://x:1/v1", "package.module:factory", "a=1,b=http://x:1/v1"),
        ("judge:local/m:api_base=http://x:1/v1", "judge:local/m", "api_base=http://x:1/v1"),
        ("interview:interviewee=local/m", "interview", "interviewee=local/m"),
        ("mean(judge:a:bands=true+judge:b):quorum=2", "mean(judge:a:bands=true+judge:b)", "quorum=2"),
        ("mean(judge:a:bands=true+judge:b)", "mean(judge:a:bands=true+judge:b)", ""),
        ("", "", ""),
    ],
)
def test_options_start_at_the_first_colon_before_a_key(name: str, head: str, options: str) -> None:
    assert split_options(name) == (head, options)


@pytest.mark.parametrize(
    ("text", "separator", "parts"),
    [
        ("", ",", [""]),
        ("a, b,c", ",", ["a", "b", "c"]),
        ("a(b,c),d", ",", ["a(b,c)", "d"]),
        ("a)b,c", ",", ["a)b", "c"]),
        ("a(b,c", ",", ["a(b,c"]),
        ("mean(a+b) + c", "+", ["mean(a+b)", "c"]),
        ("best-of-2(x by y) by z", " by ", ["best-of-2(x by y)", "z"]),
        ("a vs b vs c", " vs ", ["a", "b", "c"]),
    ],
)
def test_separators_in_parentheses_separate_nothing(text: str, separator: str, parts: list[str]) -> None:
    assert split(text, separator) == parts


def test_a_comma_before_a_key_belongs_to_the_name_before_it() -> None:
    assert split_names("a:x=1, y=2,b,c(d,e):f=(1,2)") == ["a:x=1,y=2", "b", "c(d,e):f=(1,2)"]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mean(a+b)", ("mean", "a+b")),
        ("best-of-2( x by y )", ("best-of-2", "x by y")),
        ("a:b=(c,d)", None),
        ("a", None),
    ],
)
def test_a_call_is_a_head_with_parentheses(name: str, call: tuple[str, str] | None) -> None:
    assert split_call(name) == call


def owner(
    model: ChatModel,
    *,
    warmth: float | None = None,
    count: int = 1,
    form: Literal["none", "short"] = "short",
    names: Sequence[Dimension | str] = (),
    matrix: Sequence[int] = (),
    source: str | Path | None = None,
    flag: bool | None = None,
    rest: Any = None,
    table: Mapping[str, int] | None = None,
    tokens: Callable[[str], int] | None = None,
    examples: Sequence[CustomDimension] = (),
    untyped=0,
) -> None: ...


def owner_for_type_checkers(count: int = 1, later: NotImported | None = None) -> None: ...  # noqa: F821


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("warmth=1,count=2", {"warmth": 1.0, "count": 2}),
        ("warmth=none,form=none", {"warmth": None, "form": "none"}),
        ("flag=null", {"flag": None}),
        ("names=(goal, secret),matrix=([1,2])", {"names": ("goal", "secret"), "matrix": [1, 2]}),
        ("source=a/b.txt", {"source": Path("a/b.txt")}),
        ("rest=x,untyped=2,table={}", {"rest": "x", "untyped": 2, "table": {}}),
    ],
)
def test_the_annotations_of_a_signature_read_the_options(text: str, values: dict[str, Any]) -> None:
    assert read_options("p", text, readers_of(owner)) == values


def test_an_annotation_with_an_unknown_name_makes_every_option_json_or_text() -> None:
    assert read_options("p", "count=2,later=x", readers_of(owner_for_type_checkers)) == {"count": 2, "later": "x"}


def test_objects_and_excluded_parameters_are_not_options() -> None:
    assert not {"model", "tokens", "examples", "count"} & set(readers_of(owner, but=("count",)))


READERS = {"n": WHOLE, "x": optional(NUMBER), "yes": BOOLEAN, "word": WORD, "list": WORDS, "file": PATH}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("n=2, x = 0.5", {"n": 2, "x": 0.5}),
        ("x=None,yes=TRUE", {"x": None, "yes": True}),
        ("list=(a, b),word=c=d", {"list": ("a", "b"), "word": "c=d"}),
        ("list=a,file=my/file(1).txt", {"list": ("a",), "file": Path("my/file(1).txt")}),
    ],
)
def test_values_are_read_by_their_key(text: str, values: dict[str, Any]) -> None:
    assert read_options("policy 'p'", text, READERS) == values


def test_a_default_reads_every_other_key() -> None:
    assert read_options("p", "n=1,a=([1, 2]),b=x y,c=true", {"n": WORD}, JSON) == {
        "n": "1",
        "a": [1, 2],
        "b": "x y",
        "c": True,
    }


@pytest.mark.parametrize(
    ("text", "error", "fields"),
    [
        ("m=1", UnknownNameError, {"field": "m"}),
        ("wrod=1", UnknownNameError, {"field": "wrod", "nearest": "word"}),
        ("n=1,n=2", InvalidValueError, {"field": "n"}),
        ("n=1,", InvalidValueError, {"field": ""}),
        ("n=1,x", InvalidValueError, {"field": ""}),
        ("n=two", InvalidValueError, {"field": "n"}),
        ("x=hot", InvalidValueError, {"field": "x"}),
        ("yes=maybe", InvalidValueError, {"field": "yes"}),
    ],
)
def test_options_that_cannot_be_read_are_one_sentence(
    text: str, error: type[Exception], fields: dict[str, str]
) -> None:
    with raises(error, **fields):
        read_options("policy 'p'", text, READERS)


def test_only_the_optional_maker_takes_none() -> None:
    assert make_optional_evaluator("none") is None
    assert make_optional_evaluator("verified") is not None
    with raises(UnknownNameError, field="evaluator", got="none"):
        make_evaluator("none")
    with raises(UnknownNameError, field="x", got="x", record="evaluator 'verified'"):
        make_evaluator("verified:x=1")
