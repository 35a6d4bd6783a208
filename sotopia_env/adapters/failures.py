"""Failures of partners and evaluators: asking again, and the note that no seat has a reward meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from sotopia_env.foundation.errors import FATAL, InvalidActionError, SotopiaError, first_line

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
    _is_running: bool = False

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Returns the result of the work, which is done again after a failure; the last failure is raised.

        Args:
            name: who does the work, for :attr:`reason`.
            work: makes the coroutine of one attempt.

        Raises:
            InvalidActionError: earlier work of the episode is still running, as when a client repeats a request that
                it has stopped waiting for; partners would act twice.
        """
        if self._is_running:
            raise InvalidActionError("an earlier call of this episode is still running", hint="wait for its end")
        self._is_running = True
        self.reason = f"{name} has not finished"  # remains if the host cancels the call
        try:
            result = await self._attempts(name, work)
        finally:
            self._is_running = False
        self.reason = ""
        return result

    async def _attempts(self, name: str, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        for attempt in itertools.count():
            try:
                return await work()
            except Exception as error:
                self.count += 1
                self.reason = f"{name} failed: {type(error).__name__}: {first_line(error)}"
                if attempt == self.retries or not is_failure(error):
                    raise
        raise AssertionError("unreachable")


def is_failure(error: Exception) -> bool:
    """Whether an error may be of one episode alone.

    A spent budget and a model that refuses every request are of the whole run, and an error that is not of our tree is
    a defect of somebody's code: a host that would swallow them must not.
    """
    return isinstance(error, SotopiaError) and not isinstance(error, FATAL)
