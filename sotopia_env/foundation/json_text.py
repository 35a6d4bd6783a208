"""A strict reader of JSON from outside: unique keys, finite numbers, at most :data:`MOST_LEVELS` levels.

Every problem with a text is reported as one type of exception, including a number with 5,000 digits and a thousand
nested brackets. Beside it: canonical JSON, and the first difference of two values.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn, TextIO

from sotopia_env.foundation.errors import FieldError, InvalidValueError, Verbatim, Where, excerpt, joined
from sotopia_env.foundation.files import read_text

MOST_LEVELS = 100
"""Maximum nesting of objects and lists: far above that of any record, and far below Python's recursion limit."""
_TOO_DEEP = f"it is nested more than {MOST_LEVELS} levels deep"
_TOO_LONG = "a number has thousands of digits"
_MOST_VALUES = 100  # values per character; only YAML's aliases can give more values than characters


def parse_json(
    text: str | bytes, where: Where | str | Path, error: type[FieldError] = InvalidValueError, *, finite: bool = True
) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: the JSON text.
        where: the location of the text, for messages.
        error: the type of the exception to raise.
        finite: whether to refuse NaN and infinity, which trainers and model configurations may contain.

    Raises:
        FieldError: the text is not JSON, a key occurs twice in an object, a number is not finite or has thousands of
            digits, or values are nested too deeply; of type ``error``.
    """
    try:
        return decode_json(text, finite=finite)
    except ValueError as problem:
        raise error(f"not valid JSON ({problem})", where=where) from None


def read_json(path: str | Path, error: type[FieldError] = InvalidValueError, *, finite: bool = True) -> Any:
    """Returns the value in a JSON file; raises the errors of :func:`parse_json`, also if the file cannot be read."""
    return parse_json(read_text(path, error), path, error, finite=finite)


def decode_json(text: str | bytes, *, finite: bool = True, strict: bool = True) -> Any:
    """Does the same as :func:`parse_json`; raises a :class:`ValueError` with the problem only.

    Without ``strict``, raw line breaks inside strings are taken, as in models' texts.
    """
    numbers = _FINITE if finite else {}
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, strict=strict, **numbers)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RefusedError):
        raise
    except ValueError:  # Python's limit on digits, whose message is about a setting of the interpreter
        raise ValueError(_TOO_LONG) from None
    opening = (b"{", b"[") if isinstance(text, bytes) else ("{", "[")
    # Fewer opening brackets than levels cannot be nested too deeply, so nearly all texts skip the slow check.
    if sum(map(text.count, opening)) > MOST_LEVELS:  # type: ignore[arg-type]
        check_extent(value, len(text))
    return value


def iter_array(stream: TextIO, chunk: int = 1 << 20, most: int = 1 << 28) -> Iterator[tuple[int, Any]]:
    """Yields ``(line, value)`` for every value of a JSON array, with only one value in memory.

    Args:
        stream: the stream, at the beginning of the array; this position is in line 1.
        chunk: the number of characters to read at once.
        most: the number of characters after which a value that has not ended is refused.

    Raises:
        InvalidValueError: the text is invalid as in :func:`parse_json`, or a value is too long; the error has the line.
            Earlier values have been yielded.
    """
    text = _Window(stream, chunk, most)
    text.take("[")
    while text.peek() != "]":
        yield text.value()
        if text.peek() == ",":
            text.take(",")
            if text.peek() == "]":
                raise text.invalid("a value after the comma")
        elif text.peek() != "]":
            raise text.invalid("',' or ']' after a value")
    text.take("]")
    if text.peek():
        raise text.invalid("nothing after the array")


class _Window:
    """A buffer with the unread part of a stream, extended as needed."""

    def __init__(self, stream: TextIO, chunk: int, most: int) -> None:
        self._most = most
        self._stream, self._chunk, self._text, self._position, self._ended, self.line = stream, chunk, "", 0, False, 1

    def peek(self) -> str:
        """Returns the next character that is not white space; empty at the end."""
        while True:
            match = _BLANK.match(self._text, self._position)
            self._skip_to(match.end() if match else self._position)
            if self._position < len(self._text) or self._ended:
                return self._text[self._position : self._position + 1]
            self._more(self._chunk)

    def take(self, character: str) -> None:
        """Skips the next character, which must be ``character``."""
        if self.peek() != character:
            raise self.invalid(repr(character))
        self._position += 1

    def invalid(self, expected: str) -> InvalidValueError:
        """Returns the error for the next character, with its line."""
        got = self.peek() or Verbatim("the end")
        return InvalidValueError(expected=expected, got=got, where=Where(line=self.line))

    def value(self) -> tuple[int, Any]:
        """Returns the next value and its line."""
        self.peek()
        line = self.line
        while (entry := self._entry(line)) is None:
            rest = self._most + 1 - (len(self._text) - self._position)
            if rest <= 0:
                expected = f"values of at most {self._most:,} characters"
                raise InvalidValueError(expected=expected, got=Verbatim("a longer one"), where=Where(line=line))
            # The buffer doubles each time, so that parsing a long value again and again takes linear time in total.
            self._more(min(max(self._chunk, len(self._text)), rest))
        value, end = entry
        self._skip_to(end)
        return line, value

    def _entry(self, line: int) -> tuple[Any, int] | None:
        """Returns the value at the position and its end, or ``None`` if the buffer ends too early."""
        try:
            value, end = DECODER.raw_decode(self._text, self._position)
            check_extent(value, end - self._position)
        except RefusedError as error:
            raise InvalidValueError(f"not valid JSON ({error})", where=Where(line=line)) from None
        except RecursionError:
            raise InvalidValueError(f"not valid JSON ({_TOO_DEEP})", where=Where(line=line)) from None
        except json.JSONDecodeError as error:
            # An error far before the end of the buffer does not depend on the rest of the stream. Closer to the end, a
            # token (a literal, a number, an escape; all shorter than _NEAR_END) may be cut off by the buffer. An
            # unterminated string is reported at its start, so its position proves nothing.
            if self._ended or (error.pos < len(self._text) - _NEAR_END and not error.msg.startswith("Unterminated")):
                at = self.line + self._text.count("\n", self._position, error.pos)
                raise InvalidValueError(f"not valid JSON ({error.msg})", where=Where(line=at)) from None
            return None
        except ValueError:
            raise InvalidValueError(f"not valid JSON ({_TOO_LONG})", where=Where(line=line)) from None
        # A number is complete only if another character follows, since its next digits may not be in the buffer yet.
        is_cut = isinstance(value, int | float) and end > len(self._text) - _NEAR_END
        return None if is_cut and not self._ended else (value, end)

    def _more(self, size: int) -> None:
        data = self._stream.read(size)
        self._text, self._position, self._ended = self._text[self._position :] + data, 0, not data

    def _skip_to(self, position: int) -> None:
        self.line += self._text.count("\n", self._position, position)
        self._position = position


def check_extent(value: Any, characters: int) -> None:
    """Raises :class:`ValueError` if ``value`` is nested too deeply, or far larger than the text it was read from."""
    # Level by level and not recursively: the value may be nested too deeply for a recursion.
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        containers = [item for item in level if isinstance(item, (dict, list, tuple))]  # YAML's !!omap has tuples
        if not containers:
            return
        values = chain.from_iterable(item.values() if isinstance(item, dict) else item for item in containers)
        level = list(islice(values, _MOST_VALUES * characters + 1))
        if len(level) > _MOST_VALUES * characters:
            raise RefusedError("its aliases expand to too many values")
    raise RefusedError(_TOO_DEEP)


class RefusedError(ValueError):
    """A text that the JSON grammar or Python's reader accepts, but this reader refuses."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RefusedError(f"duplicate key {excerpt(next(key for key in keys if keys.count(key) > 1))}")
    return unique


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise RefusedError(f"{text[:40]} is too large for a number")
    return number


def _no_number(name: str) -> NoReturn:
    raise RefusedError(f"{name} is not a JSON number")


_BLANK = re.compile(r"[ \t\n\r]*")
_NEAR_END = 64  # characters; longer than any token that may be cut off, except strings and numbers
_FINITE: dict[str, Any] = {"parse_float": _finite, "parse_constant": _no_number}
DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, **_FINITE)
"""Reads one value inside a text (``raw_decode``), by the rules of :func:`parse_json`."""
ANSWER_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, strict=False, **_FINITE)
"""Does the same for models' texts: a raw line break inside a string, which has only one reading, is taken."""


_MISSING = object()


def canonical_json(value: Any) -> str:
    """Returns the canonical JSON of ``value``, for hashes and comparisons: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_MAX_DIFFERENCE = 100  # characters of each value


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
