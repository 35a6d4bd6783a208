"""Parser of the grammar of names: ``HEAD:key=value,key=value`` and ``HEAD(INNER)``.

Commas, plus signs and words between names are separators only outside parentheses. A value in parentheses may contain
commas: ``dimensions=(goal,secret)``. Heads and values may contain colons (``ollama/llama3:8b``, URLs): the options
begin at the first colon that is followed by ``key=``.

The options are the keyword parameters of the class or function that the name stands for: its signature is the only
declaration of them, and an annotation decides how a text is read (:func:`readers_of`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Where
from sotopia_env.foundation.json_text import decode_json

_OPTIONS = re.compile(r"\s*:\s*(?=\w+\s*=|$)")
_OPTION = re.compile(r"\w+\s*=")
_CALL = re.compile(r"(?P<head>[^(:]*)\((?P<inner>.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of the text of an option.

    Attributes:
        read: returns the value; raises ValueError or KeyError for an invalid text.
        expected: description of valid texts, for messages.
    """

    read: Callable[[str], Any]
    expected: str


def optional(reader: Reader) -> Reader:
    """Returns a reader that also accepts ``none`` and, as in YAML, ``null``."""
    return Reader(
        lambda text: None if text.lower() in ("none", "null") else reader.read(text), f"{reader.expected} or 'none'"
    )


def _json_or_text(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return text


WORD = Reader(str, "a word")
NUMBER = Reader(float, "a number")
WHOLE = Reader(int, "a whole number")
PATH = Reader(Path, "a path")
BOOLEAN = Reader(lambda text: {"true": True, "false": False}[text.lower()], "'true' or 'false'")
JSON = Reader(_json_or_text, "JSON or text")


def words(text: str) -> tuple[str, ...]:
    """Returns the words of a comma-separated list, without empty ones."""
    return tuple(word for word in split(text) if word)


WORDS = Reader(words, "comma-separated words in parentheses")


# In this order: a value that may be a file or a text is a file in a name, and a whole number is a float, too.
READERS: Mapping[Any, Reader] = {
    bool: BOOLEAN,
    Path: PATH,
    float: NUMBER,
    int: WHOLE,
    tuple: WORDS,
    str: WORD,
    dict: JSON,
}
"""Readers of values in names, by type."""


def parameters_of(factory: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """Returns the parameters of a class or function, with annotations as types where their names are known.

    Raises:
        TypeError, ValueError: the factory has no signature.
    """
    try:
        return tuple(inspect.signature(factory, eval_str=True).parameters.values())
    except NameError:
        # An annotation that only type checkers import; such annotations remain texts.
        return tuple(inspect.signature(factory).parameters.values())


def readers_of(factory: Callable[..., Any], but: Container[str] = ()) -> dict[str, Reader]:
    """Returns a reader for every keyword parameter of a class or function that can be written in a name.

    Parameters without a known annotation are read as JSON if possible, otherwise as text. Parameters that are objects,
    such as a model or a function, cannot be written.

    Args:
        factory: the class or function.
        but: the names of parameters that are not options.
    """
    keywords = [p for p in parameters_of(factory) if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    readers = {p.name: _reader_of(p.annotation) for p in keywords if p.name not in but}
    return {name: reader for name, reader in readers.items() if reader is not None}


def _reader_of(annotation: Any) -> Reader | None:
    kinds = set(_kinds(annotation))
    reader = next((reader for kind, reader in READERS.items() if kind in kinds), None)
    return optional(reader) if reader is not None and NoneType in kinds else reader


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yields the types in an annotation as keys of :data:`READERS`; ``dict`` stands for any JSON value."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for member in arguments:
            yield from _kinds(member)
    elif origin is Literal:
        yield from map(type, arguments)
    elif origin in (list, tuple, Sequence, Iterable):
        members = {kind for member in arguments for kind in _kinds(member)}
        yield tuple if str in members else dict if members & set(READERS) else origin
    elif isinstance(annotation, str) or annotation in (Any, object, inspect.Parameter.empty, list, tuple):
        yield dict
    elif isinstance(annotation, type) and issubclass(annotation, str):
        yield str
    else:
        yield dict if origin is Mapping else origin or annotation


def split(text: str, separator: str = ",") -> list[str]:
    """Returns the parts of ``text`` between separators outside parentheses, stripped of spaces."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        # An unmatched closing parenthesis does not hide the separators after it.
        depth = max(0, depth + (character == "(") - (character == ")"))
        if not depth and position >= start and text.startswith(separator, position):
            parts.append(text[start:position].strip())
            start = position + len(separator)
    return [*parts, text[start:].strip()]


def split_names(text: str) -> list[str]:
    """Returns the names in ``"a,b:x=1,y=2,c"``: a comma before ``key=`` belongs to the name before it."""
    names: list[str] = []
    for part in split(text):
        if names and _OPTION.match(part):
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def split_options(name: str) -> tuple[str, str]:
    """Returns the head and the options' text of ``HEAD:key=value,…``; the text is empty if there are no options."""
    name = name.strip()
    # A colon inside parentheses begins the options of an inner name.
    matches = (m for m in _OPTIONS.finditer(name) if name.count("(", 0, m.start()) <= name.count(")", 0, m.start()))
    match = next(matches, None)
    return (name, "") if match is None else (name[: match.start()], name[match.end() :])


def split_call(name: str) -> tuple[str, str] | None:
    """Returns head and inner text of ``HEAD(INNER)``; ``None`` for a name of another form."""
    match = _CALL.fullmatch(name.strip())
    return None if match is None else (match["head"].strip(), match["inner"].strip())


def read_options(owner: str, text: str, readers: Mapping[str, Reader], default: Reader | None = None) -> dict[str, Any]:
    """Returns the values in ``key=value,key=value``.

    Args:
        owner: the object with these options, for messages.
        text: the text of the options; may be empty.
        readers: readers of the values, by key.
        default: reader of the values of all other keys; ``None`` refuses other keys.

    Raises:
        UnknownNameError: a key is unknown; the message suggests the nearest one.
        InvalidValueError: a part is not a pair, a key occurs twice, or a value is invalid.
    """
    options: dict[str, Any] = {}
    where = Where(record=owner)
    for pair in split(text) if text else ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidValueError(expected="comma-separated key=value pairs", got=pair, where=where)
        reader = readers.get(key, default)
        if reader is None:
            problem = "unknown parameter" if readers else "it has no parameters"
            raise UnknownNameError(problem, field=key, got=key, valid=readers or None, where=where)
        if key in options:
            raise InvalidValueError("duplicate parameter", field=key, where=where)
        options[key] = _read(key, reader, value, where)
    return options


@contextmanager
def options_of(owner: str, readers: Container[str]) -> Iterator[None]:
    """Adds the owner to errors about a field that is one of ``readers``."""
    # Constructors know their parameters only; a user of several evaluators must see which of them is meant.
    try:
        yield
    except InvalidValueError as error:
        if error.field in readers:
            raise type(error).of(error, where=Where(record=owner)) from None
        raise


def _read(field: str, reader: Reader, text: str, where: Where) -> Any:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    try:
        return reader.read(text)
    except InvalidValueError:
        # A ``ValueError`` itself, whose message is better than the general one.
        raise
    except (ValueError, KeyError):
        raise InvalidValueError(field=field, expected=reader.expected, got=text, where=where) from None
