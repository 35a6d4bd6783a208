"""The exceptions that the package raises on purpose, as one family.

::

    SotopiaError
    ├── InvalidValueError (ValueError)        a caller passed something that cannot be meant
    │   ├── InvalidTaskError                  a character, scenario, task or task file is not well formed
    │   ├── InvalidActionError                an action that no rule of the environment can read
    │   ├── UnknownNameError                  a misspelt name; the message offers the nearest valid one
    │   │   └── UnknownKeywordError (TypeError)   a keyword argument that a constructor does not have
    │   └── ConstraintError                   constraints that the available characters cannot meet
    ├── DamagedRecordError (ValueError)       a line of a record file that cannot be read; names file and line
    ├── EvaluationError                       an evaluator could not score an episode
    ├── PolicyError                           a policy could not produce an action (its model failed, not its text)
    ├── ModelCallError                        a call to a language model failed for good; says how and how often
    │   └── ModelRefusedError                 and so would every other: no such model, a key that is not accepted
    │       └── ModelUnavailableError         or one that was waited for in vain
    ├── ContextLengthError                    a conversation does not fit into the model's context
    └── BudgetExceededError                   the ledger's limit is reached; nothing was sent

A message says what was expected, what came, and where. Model text that cannot be read as an action is *not* an
exception: it is a :class:`sotopia_env.world.action.ParseFailure`, an event of the episode.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Literal

ModelFailure = Literal["rate_limit", "server", "timeout", "connection", "malformed", "empty", "auth", "bad_request"]
"""Why a call to a model failed: refused for now (429), the server's fault (5xx, 409), no answer in time, no or a broken
connection, an answer that is no completion, an answer without text, a key that is not accepted (401, 403), a request
that is not accepted (other 4xx)."""


class SotopiaError(Exception):
    """The root of the family: ``except SotopiaError`` catches everything raised on purpose."""


class InvalidValueError(SotopiaError, ValueError):
    """A value that was passed in is not one the callee can mean."""


class InvalidTaskError(InvalidValueError):
    """A character, scenario, task or task file is not well formed."""


class InvalidActionError(InvalidValueError):
    """An action is not of a form the environment reads; the state is left as it was."""


class UnknownNameError(InvalidValueError):
    """A name is not among the valid ones."""


class UnknownKeywordError(UnknownNameError, TypeError):
    """A constructor has no keyword argument of this name.

    It is a :class:`TypeError` with Python's own words, because tools (TorchRL, Gymnasium) try keywords of theirs and
    leave them out when they read these words.
    """


class ConstraintError(InvalidValueError):
    """A scenario's constraints cannot be met by the characters and relationships at hand."""


class DamagedRecordError(SotopiaError, ValueError):
    """A line of a record file cannot be read."""


class EvaluationError(SotopiaError):
    """An evaluator could not score an episode; the episode is *unscored*, never zero."""


class PolicyError(SotopiaError):
    """A policy failed to produce an action for a reason other than the text it wrote."""


class ModelCallError(SotopiaError):
    """A call to a language model failed for good, after the retries that are allowed.

    Attributes:
        kind: of the last failure.
        attempts: how many requests were sent.
        status: HTTP status of the last failure; ``None`` when the server did not answer.
    """

    def __init__(self, message: str, *, kind: ModelFailure, attempts: int = 1, status: int | None = None) -> None:
        super().__init__(message)
        self.kind: ModelFailure = kind
        self.attempts = attempts
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return (_model_call_error, (type(self), str(self), self.kind, self.attempts, self.status))


def _model_call_error(
    kind_of_error: type[ModelCallError], message: str, kind: ModelFailure, attempts: int, status: int | None
) -> ModelCallError:
    return kind_of_error(message, kind=kind, attempts=attempts, status=status)


class ModelRefusedError(ModelCallError):
    """A call failed in a way in which every other call to this model would: it ends a run, not an episode.

    The model does not exist, the key is not accepted, or the account has nothing left to spend.
    """


class ModelUnavailableError(ModelRefusedError):
    """A model gave no call an answer for as long as the patience allows; the run is continued when it is back."""


class ContextLengthError(SotopiaError):
    """A conversation does not fit into the model's context.

    Attributes:
        limit: the model's context in tokens, where the server named it.
    """

    def __init__(self, message: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        return (ContextLengthError, (str(self), self.limit))


class BudgetExceededError(SotopiaError):
    """The limit on cost or tokens is reached; nothing was sent."""


FATAL = (BudgetExceededError, ModelRefusedError)
"""What ends a run, not an episode: every other episode would fail likewise."""


def check_whole(name: str, value: object, low: int) -> None:
    """Raises :class:`InvalidValueError` unless ``value`` is an ``int`` (and no ``bool``) of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidValueError(f"{name}: expected a whole number of at least {low}, got {value!r}")


def short_repr(value: object) -> str:
    """Returns the ``repr`` of a value, at most 78 characters of it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_members(field: str, expected: str, value: object, protocol: type) -> None:
    """Raises :class:`InvalidValueError`, naming what is missing, unless an object has the members of a protocol.

    Args:
        field: that holds the value, in the message.
        expected: what the field takes, in the message.
        value: the object.
        protocol: a protocol that extends no other.
    """
    members = [name for name in vars(protocol) if not name.startswith("_")]
    missing = [name for name in members if not hasattr(value, name)]
    problem = ""
    if isinstance(value, type):
        problem = ", a class; call it to make an object"
    elif missing:
        problem = f", which lacks {', '.join(missing)}" if len(missing) < len(members) else ""
    if problem or missing:
        raise InvalidValueError(f"{field}: expected {expected}, got {short_repr(value)}{problem}")


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Returns the valid name most like ``name``, or ``None`` when nothing is close."""
    by_key = {candidate.casefold(): candidate for candidate in valid}
    matches = difflib.get_close_matches(name.casefold(), by_key, n=1, cutoff=0.5)
    return by_key[matches[0]] if matches else None


def name_hint(name: str, valid: Iterable[str]) -> str:
    """Returns ``"expected one of …, got …; did you mean …?"`` for a name outside ``valid``."""
    names = list(valid)
    options = ", ".join(repr(candidate) for candidate in names[:12]) + (", …" if len(names) > 12 else "")
    close = nearest(name, names)
    return f"expected one of {options}, got {name!r}" + (f"; did you mean {close!r}?" if close else "")
