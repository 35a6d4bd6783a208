"""Every exception the package raises on purpose, as one family.

::

    SotopiaError
    ├── InvalidValueError (ValueError)        a caller passed something that cannot be meant
    │   ├── InvalidTaskError                  a character, scenario, task or task file is not well formed
    │   ├── InvalidActionError                an action that no rule of the environment can read
    │   ├── UnknownNameError                  a misspelt name; the message offers the nearest valid one
    │   └── ConstraintError                   constraints that the available characters cannot meet
    ├── DamagedRecordError (ValueError)       a line of a record file that cannot be read; names file and line
    ├── EvaluationError                       an evaluator could not score an episode
    └── PolicyError                           a policy could not produce an action (its model failed, not its text)

A message says what was expected, what came, and where. Model text that cannot be read as an action is *not* an
exception: it is a :class:`sotopia_env.action.ParseFailure`, an event of the episode.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


class ConstraintError(InvalidValueError):
    """A scenario's constraints cannot be met by the characters and relationships at hand."""


class DamagedRecordError(SotopiaError, ValueError):
    """A line of a record file cannot be read."""


class EvaluationError(SotopiaError):
    """An evaluator could not score an episode; the episode is *unscored*, never zero."""


class PolicyError(SotopiaError):
    """A policy failed to produce an action for a reason other than the text it wrote."""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Returns the valid name most like ``name``, or ``None`` when nothing is close."""
    by_folded = {candidate.casefold(): candidate for candidate in valid}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    return by_folded[matches[0]] if matches else None


def name_hint(name: str, valid: Iterable[str]) -> str:
    """Returns ``"expected one of …, got …; did you mean …?"`` for a name outside ``valid``."""
    names = list(valid)
    listed = ", ".join(repr(candidate) for candidate in names[:12]) + (", …" if len(names) > 12 else "")
    close = nearest(name, names)
    return f"expected one of {listed}, got {name!r}" + (f"; did you mean {close!r}?" if close else "")
