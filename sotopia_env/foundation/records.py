"""The base classes of records on disk, canonical JSON for hashes and comparisons, and readable validation errors."""

from __future__ import annotations

import itertools
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from sotopia_env.foundation.errors import (
    DamagedRecordError,
    FieldError,
    InvalidValueError,
    Verbatim,
    Where,
    joined,
    nearest_name,
)
from sotopia_env.foundation.json_text import decode_json, parse_json
from sotopia_env.foundation.quoting import pose

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must be a single line without control characters")
    return text


def not_blank(text: str) -> str:
    """Returns ``text``, or raises :class:`ValueError` if it has no visible character."""
    # Characters that are not printable (a zero-width space) are as invisible as blanks.
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise ValueError("must not be blank")
    return text


def no_pose(text: str) -> str:
    """Returns ``text``, or raises :class:`ValueError` if it could imitate the structure of a turn."""
    if character := pose(text):
        raise ValueError(f"must not contain {character!r}: names appear unquoted in turns; omit it, or use a word")
    return text


def json_or_value(value: Any) -> Any:
    """Returns the value of a JSON text, and any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value)
    except ValueError as problem:
        raise ValueError(f"must be valid JSON ({problem})") from None


def canonical_json(value: Any) -> str:
    """Returns the canonical JSON of ``value``, for hashes and comparisons: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _writable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:  # not JSON, half a surrogate pair, nested too deeply
        raise ValueError(f"must be JSON that can be written ({error})") from None
    return value


def _as_read_back(value: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(canonical_json(_writable(value)))  # noqa: TID251 - it was written just now
    return content


def _sorted(value: dict[str, str]) -> dict[str, str]:
    return dict(sorted(value.items()))


Line = Annotated[str, AfterValidator(_one_line)]
MOST_CHARACTERS = 80
"""Maximum number of characters in a name or an id."""
Name = Annotated[
    str, Field(min_length=1, max_length=MOST_CHARACTERS), AfterValidator(_one_line), AfterValidator(not_blank)
]
Label = Annotated[Name, AfterValidator(no_pose)]
"""A name that appears unquoted in lines with turns and moves, see :func:`sotopia_env.foundation.quoting.pose`."""


# Free-form data has a different shape in every task family. As JSON *text* inside a record it has one column type, so
# that columnar readers (``datasets.load_dataset("json")``) can load files that mix families. Both forms can be read.
JsonObject = Annotated[
    dict[str, Any],
    BeforeValidator(json_or_value),
    AfterValidator(_writable),
    PlainSerializer(canonical_json, return_type=str, when_used="json"),
]
# Policies and prompts list the keys of what a task says. A task that was written and read must be played alike, so its
# keys have the order of the file from the start.
SortedObject = Annotated[
    dict[str, Any],
    BeforeValidator(json_or_value),
    AfterValidator(_as_read_back),
    PlainSerializer(canonical_json, return_type=str, when_used="json"),
]


TextMap = Annotated[
    dict[Name, Line],
    BeforeValidator(json_or_value),
    AfterValidator(_sorted),
    PlainSerializer(canonical_json, return_type=str, when_used="json"),
]


class Record(BaseModel):
    """Base class of everything that is written to disk: immutable, without undeclared fields."""

    # Validators are built when a class is first used: building all of them takes a sixth of the package's import time.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class SourcedRecord(Record):
    """A record that may come from an import.

    Earlier versions stored the rest of the foreign record in the field ``origin``. It is ignored when such a file is
    read.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_origin(cls, values: Any) -> Any:
        if isinstance(values, dict) and "origin" in values:
            return {name: value for name, value in values.items() if name != "origin"}
        return values


_RecordT = TypeVar("_RecordT", bound=BaseModel)


def read_record(
    kind: type[_RecordT],
    text: str | bytes,
    where: Where | str | Path,
    failure: type[FieldError] = DamagedRecordError,
) -> _RecordT:
    """Returns the record in a JSON text.

    Args:
        kind: the class of the record.
        text: the text of one JSON object.
        where: the location of the text, for messages.
        failure: the type of the exception to raise.

    Raises:
        FieldError: the text is not JSON, or not a record of this class; of type ``failure``.
    """
    raw = parse_json(text, where, failure)
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise failure.of(invalid(error, kind.model_fields, raw), where=where) from None


_MAX_DIFFERENCE = 100  # characters of each value


_MISSING = object()


def first_difference(where: str, ours: Any, theirs: Any) -> tuple[str, str, str]:
    """Returns the path and both values of the first difference of two JSON values, at most 100 characters of each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in sorted({*ours, *theirs}) if ours.get(key, _MISSING) != theirs.get(key, _MISSING)]
        key = keys[0]
        return first_difference(joined(where, key), ours.get(key, _MISSING), theirs.get(key, _MISSING))
    if isinstance(ours, list) and isinstance(theirs, list):
        pairs = enumerate(itertools.zip_longest(ours, theirs, fillvalue=_MISSING))
        index, (left, right) = next((index, pair) for index, pair in pairs if pair[0] != pair[1])
        return first_difference(f"{where}.{index}", left, right)
    texts = ["nothing" if value is _MISSING else canonical_json(value) for value in (ours, theirs)]
    if max(map(len, texts)) <= _MAX_DIFFERENCE:
        return where, texts[0], texts[1]
    equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    start = max(0, equal - _MAX_DIFFERENCE // 2)
    return where, _cut(texts[0], start), _cut(texts[1], start)


def _cut(text: str, start: int) -> str:
    end = start + _MAX_DIFFERENCE
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


@cache
def code_version() -> str:
    """Returns the version of the installed package."""
    return _version("sotopia-env") or "0+uninstalled"


_PACKAGES = ("pettingzoo", "gymnasium", "numpy", "pydantic", "aiohttp", "litellm")


def package_versions(names: Iterable[str] = _PACKAGES) -> dict[str, str | None]:
    """Returns the versions of Python and of packages, by default of those that affect episodes.

    The version is ``None`` for a package without metadata, which is not installed or was added to the path manually.
    """
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def source_revision() -> str | None:
    """Returns the git revision of the source checkout; ``None`` if the package is installed."""
    root, git = Path(__file__).resolve().parents[2], shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    process = subprocess.run([git, "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return process.stdout.strip() if process.returncode == 0 else None


def explain(error: ValidationError, names: Iterable[str] = (), value: Any = _MISSING) -> str:
    """Returns the message of :func:`invalid`."""
    return str(invalid(error, names, value))


def invalid(error: ValidationError, names: Iterable[str] = (), value: Any = _MISSING) -> InvalidValueError:
    """Returns the most helpful problem of a validation as an error of this package.

    Args:
        error: the error of pydantic.
        names: the valid field names, to suggest the nearest one for a misspelt name.
        value: the validated value; with it, paths contain the names in the value, without the tags of unions.
    """
    return invalid_of(error.errors(include_url=False), names, value)


def invalid_of(problems: Sequence[Any], names: Iterable[str] = (), value: Any = _MISSING) -> InvalidValueError:
    """Returns what :func:`invalid` does, from the problems of a validation alone."""
    # An unknown field comes first: if a field is missing as well, the unknown one is often its misspelt name.
    problem = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    path = _path(problem, value)
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = joined(path, problem["ctx"]["discriminator"].strip("'"))
    part = invalid_part(problem)
    part.nearest = part.nearest or _nearest_name(problem, names)
    count = len(problems)
    hint = "; ".join(filter(None, (part.hint, f"{count} problems in all" if count > 1 else "")))
    return InvalidValueError.of(part, within=path or ("" if part.field else "record"), hint=hint)


_WHOLE, _NUMBER, _LIST, _OBJECT = "a whole number", "a number", "a list", "an object with fields"
_EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), _OBJECT),
    **dict.fromkeys(("string_type", "string_unicode"), "a text"),
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
}
"""The expected value of a field by pydantic's type of the problem; formatted with the problem's context."""


def invalid_part(problem: Any) -> InvalidValueError:
    """Returns one problem of a validation as an error of this package, without its path in the validated value."""
    kind, context, received = problem["type"], problem.get("ctx", {}), problem["input"]
    own = context.get("error")
    if isinstance(own, FieldError):  # raised by a validator of this package
        return InvalidValueError.of(own)
    if kind == "extra_forbidden":
        return InvalidValueError("unknown field", got=received)
    if kind in ("missing", "union_tag_not_found"):
        return InvalidValueError(expected="a value", got=Verbatim("nothing"))
    if kind in ("too_short", "too_long"):
        received = context["actual_length"]
    if kind == "union_tag_invalid":
        received = received.get(context["discriminator"].strip("'"))
    if kind in _EXPECTED:
        is_mapping = kind == "string_type" and isinstance(received, dict)
        hint = "in YAML, put a text with a colon in quotes" if is_mapping else ""
        return InvalidValueError(expected=_EXPECTED[kind].format(**context), got=received, hint=hint)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if message.startswith("Input should be "):
        return InvalidValueError(expected=message.removeprefix("Input should be "), got=received)
    message = message.replace("Input should", "it should")
    # A validator of a whole record receives the record, which is too long to be shown.
    is_whole = kind == "value_error" and not isinstance(received, str)
    return InvalidValueError(message, got=... if is_whole else received)


def _path(problem: Any, value: Any) -> str:
    """Returns the location as a dotted path; parts that ``value`` lacks are tags of unions, unless one is missing."""
    parts = problem["loc"]
    if value is _MISSING:
        return ".".join(map(str, parts))
    path = []
    for part, following in itertools.pairwise((*parts, _MISSING)):
        value = _parsed_or_missing(value) if isinstance(value, str) else value
        # A tag may have the name of a field: {"quorum": 2, "veto": 1} with the path quorum.veto.
        is_tag = _has(value, following) and not (_has(value, part) and _has(value[part], following))
        if _has(value, part) and not is_tag:
            path.append(str(part))
            value = value[part]
        elif problem["type"] == "missing" and following is _MISSING:
            path.append(str(part))
    return ".".join(path)


def _has(value: Any, part: Any) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def _parsed_or_missing(text: str) -> Any:
    try:
        return json_or_value(text)
    except ValueError:
        return _MISSING


def _nearest_name(problem: Any, names: Iterable[str]) -> str | None:
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        key = str(problem["loc"][-1])
        # The key itself may be among the names if it is a field of another record in the same file.
        return nearest_name(key, [name for name in names if name != key])
    if kind == "union_tag_invalid":
        return nearest_name(
            str(problem["ctx"]["tag"]), [tag.strip("'") for tag in problem["ctx"]["expected_tags"].split(", ")]
        )
    if kind in ("enum", "literal_error") and isinstance(value, str):
        options = str(problem["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        return nearest_name(value, [name.strip("'") for name in options])
    # A union that is chosen by its keys: if none fits, one of the keys may be misspelt.
    if kind.endswith("_form") and isinstance(value, dict):
        valid = frozenset(names)
        return next((close for key in value if key not in valid and (close := nearest_name(str(key), names))), None)
    return None
