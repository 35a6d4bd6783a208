"""The language models of a stage: checked before it begins, closed when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sotopia_env.chat_model import ModelPool
from sotopia_env.concurrency import Progress, Stop, stop_on_signals, work_through
from sotopia_env.errors import BudgetExceededError

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


@asynccontextmanager
async def opened(models: ModelPool, directory: Path) -> AsyncIterator[ModelPool]:
    """Finds out whether every model is there, keeps the ledger in ``directory``, and closes all in the end.

    Raises:
        InvalidValueError: nothing answers at a base URL, or a key is not accepted.
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
    """Returns what ``work`` returns, with the models opened; a signal or a spent budget requests the stop it gets.

    Raises:
        BudgetExceededError: the limit was reached.
        ModelRefusedError: a model refuses every request.
        KeyboardInterrupt: a signal requested the stop.
    """
    stop = Stop()

    async def open_work_close() -> _T:
        async with opened(models, directory):
            return await work(stop)

    with stop_on_signals(stop, logger.warning):
        result = asyncio.run(open_work_close())
    if isinstance(stop.failure, BudgetExceededError):
        raise BudgetExceededError(f"{stop.failure}; what was done is kept; run it again with a higher limit")
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
    """Does :func:`~sotopia_env.concurrency.work_through` in :func:`run_with_models`; what is done by then is kept."""
    run_with_models(models, directory, lambda stop: work_through(items, work, stop, progress, concurrency))
