"""Failures of partners and evaluators: asking again, and the note that no seat has a reward meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from sotopia_env.foundation.errors import FATAL, SotopiaError, first_line

_T = TypeVar("_T")


@dataclass(slots=True)
class Failures:
    """The failures of partners and evaluators in one episode.

    Attributes:
        retries: how often they are asked again after a failure, before it is raised.
        count: the number of failures so far, those that were recovered from included.
        reason: why no seat has a reward now: the latest work failed, or was cancelled; empty if it succeeded.
    """

    retries: int
    count: int = 0
    reason: str = ""

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Returns the result of the work, which is done again after a failure; the last failure is raised.

        Args:
            name: who does the work, for :attr:`reason`.
            work: makes the coroutine of one attempt.
        """
        self.reason = f"{name} has not finished"  # remains if the host cancels the call
        for attempt in itertools.count():
            try:
                result = await work()
            except Exception as error:
                self.count += 1
                self.reason = f"{name} failed: {type(error).__name__}: {first_line(error)}"
                if attempt == self.retries or not is_failure(error):
                    raise
            else:
                break
        self.reason = ""
        return result


def is_failure(error: Exception) -> bool:
    """Whether an error may be of one episode alone.

    A spent budget and a model that refuses every request are of the whole run, and an error that is not of our tree is
    a defect of somebody's code: a host that would swallow them must not.
    """
    return isinstance(error, SotopiaError) and not isinstance(error, FATAL)
