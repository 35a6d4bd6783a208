"""Validation errors of pydantic as errors of this package, which name the field, the value and the nearest name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sotopia_env.foundation.errors import FieldError, InvalidValueError, Verbatim, joined, nearest_name
from sotopia_env.foundation.json_text import decode_json

_MISSING = object()
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


def invalid_part(problem: Any) -> InvalidValueError:
    """Returns one problem of a validation as an error of this package, without its path in the validated value."""
    kind, context, received = problem["type"], problem.get("ctx", {}), problem["input"]
    if kind in ("too_long", "too_short") and isinstance(received, str):
        kind = f"string_{kind}"  # pydantic counts a text's entries where the type of the field is open
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
        return decode_json(text)
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
