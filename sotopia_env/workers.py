"""Work that is done by several at once: to the end, with a bar to watch it by, and nothing left running."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sotopia_env.errors import InvalidValueError

_T = TypeVar("_T")


def check_limits(concurrency: int, timeout: float | None) -> None:
    """Raises :class:`InvalidValueError` unless these are a number of workers and a time limit."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidValueError(f"concurrency: expected a whole number of at least 1, got {concurrency!r}")
    if timeout is not None and not timeout > 0:
        raise InvalidValueError(f"timeout: expected seconds above 0 or None, got {timeout!r}")


async def all_or_first_error(workers: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all; the first error (a full disk, Ctrl-C) cancels the rest and leaves as itself."""
    tasks = [asyncio.create_task(worker) for worker in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run_to_end(name: str, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Runs ``start()`` in an event loop of its own.

    Raises:
        InvalidValueError: a loop is running already; says that ``name_async`` is to be awaited there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    raise InvalidValueError(f"{name}() was called where an event loop is running; await {name}_async() there")


class ProgressBar(AbstractContextManager["Callable[[], object]"]):
    """A progress bar where somebody can see it, nothing otherwise; entering it gives what moves it on by one."""

    def __init__(self, total: int, initial: int, wanted: bool | None, unit: str) -> None:
        self._bar: Any = None
        if sys.stderr.isatty() if wanted is None else wanted:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=initial, unit=f" {unit}", file=sys.stderr, dynamic_ncols=True)

    def __enter__(self) -> Callable[[], object]:
        return self._bar.update if self._bar is not None else lambda: None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


__all__ = ["ProgressBar", "all_or_first_error", "check_limits", "run_to_end"]
