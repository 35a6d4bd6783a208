"""Access to the language models of a stage, which are checked before it begins and closed when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Stop, stop_on_signals
from sotopia_env.concurrency.workers import work_through
from sotopia_env.foundation.errors import BudgetExceededError

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


@asynccontextmanager
async def opened(models: ModelPool, directory: Path) -> AsyncIterator[ModelPool]:
    """Checks that every model exists, keeps the ledger in ``directory``, and closes all models at the end.

    Raises:
        InvalidValueError: no server answers at a base URL, or a key is not accepted.
        UnknownNameError: a server does not have a model.
        BudgetExceededError: the limit was reached in an earlier run.
    """
    try:
        await models.check()
        models.open(directory)
        yield models
    finally:
        await models.close()


def run_with_models(models: ModelPool, directory: Path, work: Callable[[Stop], Awaitable[_T]]) -> _T:
    """Runs ``work`` with opened models and returns its result; a signal or a spent budget requests its :class:`Stop`.

    Raises:
        BudgetExceededError: the limit was reached.
        ModelRefusedError: a model refuses every request.
        KeyboardInterrupt: a signal requested the stop.
    """
    stop = Stop()

    async def open_work_close() -> _T:
        async with opened(models, directory):
            return await work(stop)

    # ``work`` ends cleanly when it is stopped, so the reason is raised only after the ledger is closed.
    with stop_on_signals(stop, logger.warning):
        result = asyncio.run(open_work_close())
    if isinstance(stop.failure, BudgetExceededError):
        raise BudgetExceededError(f"{stop.failure}; completed work is kept; run it again with a higher limit")
    if stop.failure is not None:
        raise stop.failure
    if stop.reason:
        raise stop.interruption
    return result


def work_with_models(
    items: Iterable[_T],
    work: Callable[[_T], Awaitable[bool]],
    models: ModelPool,
    directory: Path,
    progress: Progress,
    concurrency: int,
) -> None:
    """Runs :func:`~sotopia_env.concurrency.workers.work_through` in :func:`run_with_models`; keeps completed items."""
    run_with_models(models, directory, lambda stop: work_through(items, work, stop, progress, concurrency))
