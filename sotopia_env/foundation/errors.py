"""The exceptions that the package raises, as one class hierarchy.

::

    SotopiaError
    ├── FieldError (ValueError)               has attributes: the field, the expected and the received value
    │   ├── InvalidValueError                 a caller passed an invalid value
    │   │   ├── InvalidTaskError              a character, scenario, task or task file is malformed
    │   │   ├── InvalidActionError            an action is malformed
    │   │   ├── UnknownNameError              a name is misspelt; offers the nearest valid one
    │   │   │   ├── UnknownKeywordError (TypeError)   a constructor does not have a keyword argument
    │   │   │   └── RenderModeError (TypeError)   an environment cannot be shown in this way
    │   │   ├── ConstraintError               the available characters cannot meet a scenario's constraints
    │   │   └── InUseError                    another process is writing a file or directory
    │   └── DamagedRecordError                a line of a record file cannot be read; names file and line
    ├── EvaluationError                       an evaluator could not score an episode
    ├── PolicyError                           a policy could not produce an action (its model failed, not its text)
    ├── ModelCallError                        a call to a language model failed for good; has kind and attempts
    │   └── ModelRefusedError                 every call would fail: unknown model, key not accepted
    │       └── ModelUnavailableError         every call would fail: the model did not respond in time
    ├── ContextLengthError                    a conversation does not fit into the model's context
    └── BudgetExceededError                   the ledger's limit is reached; nothing was sent

A :class:`FieldError` holds its parts as attributes, and ``str(error)`` combines them into one sentence. Model text that
cannot be read as an action is *not* an exception: it is a :class:`sotopia_env.world.action.ParseFailure`, an event of
the episode.
"""

from __future__ import annotations

import difflib
import inspect
import json
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from typing import Any, Literal, Self

from sotopia_env.foundation.quoting import escape_line, quote

ModelFailure = Literal["rate_limit", "server", "timeout", "connection", "malformed", "empty", "auth", "bad_request"]
"""Why a call to a model failed: rate limit (429), server error (5xx, 409), timeout, failed or broken connection, an
answer that is not a completion, an answer without text, a key that is not accepted (401, 403), a request that is not
accepted (other 4xx)."""


class SotopiaError(Exception):
    """The base class: ``except SotopiaError`` catches all errors that the package raises intentionally."""


@dataclass(frozen=True, slots=True)
class Where:
    """A location in a source that was read.

    Attributes:
        file: the path of the file, or another name of the source.
        line: the line of the file, from 1.
        record: a named or numbered part of the source, such as ``task "bargain-3"`` or ``row 2``.
    """

    file: str | PathLike[str] = ""
    line: int | None = None
    record: str = ""

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}"
        return ", ".join(filter(None, (str(self.file), line, self.record)))


class Verbatim(str):
    """Text that describes a value and is shown without quotes, such as ``3 seats``."""


class FieldError(SotopiaError, ValueError):
    """A problem with one field of an argument or of a file.

    Its message is ``field: problem, expected …, got …; did you mean …?; hint (where)``, without the parts that are
    empty. Pickling and copying keep all attributes.

    Attributes:
        problem: the problem, if ``expected`` and ``got`` alone do not explain it.
        field: the argument, option or dotted path with the wrong value; empty if there is only one.
        expected: the values that the field accepts, as a noun phrase.
        got: the wrong value. A value other than a text, a number, a truth value or ``None`` is replaced by a
            :class:`Verbatim` description, so that the error can be sent to another process; ``...`` if the problem is
            not a value.
        nearest: the valid name most similar to ``got``, or the nearest valid value, as text.
        hint: how to correct the problem.
        where: the location in a file.
    """

    problem: str
    field: str
    expected: str
    got: object
    nearest: str | None
    hint: str
    where: Where

    def __init__(
        self,
        problem: str = "",
        *,
        field: str = "",
        expected: str = "",
        got: object = ...,
        valid: Iterable[str] | None = None,
        nearest: str | None = None,
        hint: str = "",
        where: Where | str | PathLike[str] = "",
    ) -> None:
        """Sets the attributes; ``expected`` and ``nearest`` are derived from ``valid`` names unless they are given."""
        names = [] if valid is None else list(valid)
        is_plain = got is None or got is ... or isinstance(got, (str, int, float))
        self.problem, self.field, self.hint = problem, field, hint
        self.expected = expected or (_one_of(names) if valid is not None else "")
        self.got = got if is_plain else Verbatim(excerpt(got))
        # Cut, since difflib takes quadratic time and ``got`` may be a whole document.
        self.nearest = nearest_name(got[:80], names) if isinstance(got, str) and nearest is None else nearest
        self.where = where if isinstance(where, Where) else Where(where)

    def __str__(self) -> str:
        expected = f"expected {self.expected}" if self.expected else ""
        got = "" if self.got is ... else f"got {excerpt(self.got)}"
        close = "" if self.nearest is None else f"did you mean {excerpt(self.nearest)}?"
        # A Verbatim is a value such as a number, not a misspelt name.
        if isinstance(self.nearest, Verbatim):
            close = f"the nearest is {self.nearest}"
        body = ", ".join(filter(None, (self.problem, expected, got)))
        sentence = ": ".join(filter(None, (self.field, "; ".join(filter(None, (body, close, self.hint))))))
        return f"{sentence} ({self.where})" if str(self.where) else sentence

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @classmethod
    def of(
        cls,
        error: FieldError,
        *,
        within: str = "",
        field: str = "",
        hint: str = "",
        where: Where | str | PathLike[str] = "",
    ) -> Self:
        """Returns the same problem as an error of this class.

        Args:
            error: the problem.
            within: the path of the value that contains ``error.field``.
            field: the name of the field, instead of the error's own.
            hint: the hint, instead of the error's own.
            where: the location, instead of the error's own; if it has no record, the error's record is kept.
        """
        copy = cls(where=where)
        location = copy.where if where else error.where
        copy.__dict__.update(error.__dict__)
        copy.field = joined(within, field or error.field)
        copy.hint = hint or error.hint
        copy.where = replace(location, record=location.record or error.where.record)
        return copy


class InvalidValueError(FieldError):
    """A caller passed an invalid value."""


class InvalidTaskError(InvalidValueError):
    """A character, scenario, task or task file is malformed."""


class InvalidActionError(InvalidValueError):
    """An action is malformed; the state does not change."""


class UnknownNameError(InvalidValueError):
    """A name is not among the valid ones."""


class UnknownKeywordError(UnknownNameError, TypeError):
    """A constructor has no keyword argument of this name.

    It is a :class:`TypeError` with Python's usual message, because tools (TorchRL, Gymnasium) try their own keywords
    and omit them if the error has this message.
    """


class RenderModeError(UnknownNameError, TypeError):
    """An environment has no such render mode.

    It is a :class:`TypeError` because Stable-Baselines3's ``make_vec_env`` asks for ``"rgb_array"`` and makes the
    environment without a render mode if that raises one.
    """


class ConstraintError(InvalidValueError):
    """A scenario's constraints cannot be met by the available characters and relationships."""


class InUseError(InvalidValueError):
    """Another process is writing the file or the directory."""


class DamagedRecordError(FieldError):
    """A line of a record file cannot be read."""


class EvaluationError(SotopiaError):
    """An evaluator could not score an episode; the episode is *unscored*, never zero."""


class PolicyError(SotopiaError):
    """A policy failed to produce an action for a reason other than the text it wrote."""


class ModelCallError(SotopiaError):
    """A call to a language model failed after all permitted retries.

    Attributes:
        kind: the kind of the last failure.
        attempts: the number of requests sent.
        status: the HTTP status of the last failure; ``None`` if the server did not answer.
    """

    def __init__(self, message: str, *, kind: ModelFailure, attempts: int = 1, status: int | None = None) -> None:
        super().__init__(message)
        self.kind: ModelFailure = kind
        self.attempts = attempts
        self.status = status

    # By default, an exception is unpickled from its positional arguments alone, without ``kind``.
    def __reduce__(self) -> tuple[Any, ...]:
        return (_model_call_error, (type(self), str(self), self.kind, self.attempts, self.status))


def _model_call_error(
    kind_of_error: type[ModelCallError], message: str, kind: ModelFailure, attempts: int, status: int | None
) -> ModelCallError:
    return kind_of_error(message, kind=kind, attempts=attempts, status=status)


class ModelRefusedError(ModelCallError):
    """A call failed in a way in which every call to this model would fail; it ends a run, not an episode.

    The model does not exist, the key is not accepted, or the account has no funds left.
    """


class ModelUnavailableError(ModelRefusedError):
    """A model answered no call within the patience; the run can be continued when the model is available again."""


class ContextLengthError(SotopiaError):
    """A conversation does not fit into the model's context.

    Attributes:
        limit: the model's context in tokens, if the server reported it.
    """

    def __init__(self, message: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        return (ContextLengthError, (str(self), self.limit))


class BudgetExceededError(SotopiaError):
    """The limit on cost or tokens is reached; nothing was sent."""


FATAL = (BudgetExceededError, ModelRefusedError)
"""Errors that end a run and not only an episode, since every other episode would fail in the same way."""


def check_whole(field: str, value: object, low: int, high: int | None = None) -> None:
    """Raises :class:`InvalidValueError` unless ``value`` is an ``int`` (and not a ``bool``) within inclusive bounds."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):  # type: ignore[operator]  # an int by now
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidValueError(field=field, expected=f"a whole number {bounds}", got=value)


def check_number(field: str, value: object, low: float, high: float) -> None:
    """Raises :class:`InvalidValueError` unless ``value`` is a number (and not a ``bool``) within inclusive bounds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]  # a number by now
        raise InvalidValueError(field=field, expected=f"a number from {low:g} to {high:g}", got=value)


class _Excerpts(reprlib.Repr):
    """Short representations of values that may be huge, or whose own ``repr`` fails."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 60, 78

    def repr1(self, x: Any, level: int) -> str:
        # ``reprlib`` dispatches on the name of the class, so subclasses of str, such as StrEnum, need this check.
        if isinstance(x, str):
            return quote(str(x) if len(x) <= self.maxstring else x[: self.maxstring - 1] + "…")
        return x.__name__ if isinstance(x, type) else super().repr1(x, level)

    def repr_Decimal(self, x: Any, level: int) -> str:  # noqa: N802  # reprlib looks for the name of the type
        return str(x)

    def repr_int(self, x: int, level: int) -> str:
        # ``repr`` fails for integers with more than 4,300 digits (``sys.set_int_max_str_digits``).
        return repr(x) if x.bit_length() <= 200 else "a huge number"


class _JsonExcerpts(_Excerpts):
    """The same, with ``null``, ``true`` and ``false`` as in JSON."""

    def repr1(self, x: Any, level: int) -> str:
        return json.dumps(x) if x is None or isinstance(x, bool) else super().repr1(x, level)


_EXCERPTS, _JSON_EXCERPTS = _Excerpts(), _JsonExcerpts()


def excerpt(value: object) -> str:
    """Returns a value for a message, as at most 80 characters on one line; texts as JSON literals, classes by name."""
    return value if isinstance(value, Verbatim) else _one_line(_EXCERPTS.repr(value))


def json_excerpt(value: object) -> Verbatim:
    """Returns a value from JSON in JSON notation, as at most 80 characters on one line."""
    return Verbatim(_one_line(_JSON_EXCERPTS.repr(value)))


def _one_line(text: str) -> str:
    line = escape_line(text)
    return line if len(line) <= 80 else line[:79] + "…"


def joined(path: str, field: str) -> str:
    """Returns the dotted path of a field, ``"worth[0].table[3]"`` for one of ``"worth[0]"``."""
    return f"{path}{field}" if not path or not field or field[0] in ".[" else f"{path}.{field}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_members(field: str, expected: str, value: object, protocol: type) -> None:
    """Raises :class:`InvalidValueError`, naming what is missing, unless an object has the members of a protocol.

    Args:
        field: the name of the field with the value, for the message.
        expected: the values that the field accepts, for the message.
        value: the object.
        protocol: a protocol that does not extend another one. Its coroutine functions must be ``async def`` in the
            object, too.
    """
    members = [name for name in vars(protocol) if not name.startswith("_")]
    missing = [name for name in members if not hasattr(value, name)]
    if isinstance(value, type):
        got = Verbatim(f"the class {value.__name__}")
        raise InvalidValueError(field=field, expected=expected, got=got, hint="call it to make an object")
    if missing:
        hint = f"it lacks {', '.join(missing)}" if len(missing) < len(members) else ""
        raise InvalidValueError(field=field, expected=expected, got=value, hint=hint)
    for name in _coroutine_functions(protocol):
        if _is_synchronous(getattr(value, name)):
            kind = type(value).__name__
            raise InvalidValueError(
                field=field,
                expected=f"a coroutine function {kind}.{name}",
                got=Verbatim("a function"),
                hint=f"write 'async def {name}'",
            )


def nearest_name(name: str, valid: Iterable[str]) -> str | None:
    """Returns the valid name most similar to ``name``, or ``None`` if no name is similar."""
    by_key = {candidate.casefold(): candidate for candidate in valid}
    matches = difflib.get_close_matches(name.casefold(), by_key, n=1, cutoff=0.5)
    return by_key[matches[0]] if matches else None


@cache
def _coroutine_functions(protocol: type) -> tuple[str, ...]:
    return tuple(name for name, member in vars(protocol).items() if inspect.iscoroutinefunction(member))


def _is_synchronous(function: object) -> bool:
    # What another callable object returns is known only when it is called.
    return inspect.isroutine(function) and not inspect.iscoroutinefunction(function)


def _one_of(names: list[str]) -> str:
    if not names:
        return "a name, but no names exist"
    return f"one of {', '.join(map(quote, names[:12]))}{', …' if len(names) > 12 else ''}"
