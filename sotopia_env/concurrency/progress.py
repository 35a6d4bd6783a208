"""A progress bar for long work on stderr, if that is a terminal: items done, failed and in flight, calls and cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sotopia_env.chat_model.spending.ledger import Ledger

_EVERY = 0.5  # seconds between two refreshes
_WINDOW = 20  # refreshes over which the rate of calls is averaged: 10 seconds


class Progress:
    """Counts items of work, and shows a bar with the remaining time and the use of the models.

    Attributes:
        in_flight: the number of items in progress, including those that wait for the budget.
        queued: the number of items that wait for the budget.
        failed: the number of items that failed.
    """

    def __init__(self, total: int, initial: int, visible: bool | None, unit: str, ledger: Ledger | None = None) -> None:
        """Creates the counters, and shows the bar if it is visible.

        Args:
            total: the total number of items.
            initial: the number of items that were done before.
            visible: whether to show the bar; ``None`` shows it if stderr is a terminal.
            unit: the name of the items, in the plural.
            ledger: the ledger of the models, whose sums are shown; ``None`` shows the items only.
        """
        self.in_flight = self.queued = 0
        self.failed = 0
        self._ledger = ledger
        self._bar: Any = None
        self._calls: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        if sys.stderr.isatty() if visible is None else visible:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=initial, unit=f" {unit}", file=sys.stderr, dynamic_ncols=True)

    def begin(self) -> None:
        """Counts one more item in progress."""
        self.in_flight += 1

    def end(self, done: bool = True, failed: bool = False) -> None:
        """Counts an item as ended: done, failed, or dropped (neither of both)."""
        self.in_flight -= 1
        self.failed += failed
        if self._bar is not None and (done or failed):
            self._bar.update()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts an item as waiting for the budget while the context is open."""
        self.queued += 1
        try:
            yield
        finally:
            self.queued -= 1

    def advance(self, count: int) -> None:
        """Advances the bar by ``count`` items that were done elsewhere, for instance in other processes."""
        if self._bar is not None:
            self._bar.update(count)

    def figures(self) -> str:
        """Returns the text after the bar."""
        parts = [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.in_flight - self.queued} in flight"] if self.in_flight > self.queued else []
        parts += [f"{self.queued} waiting for the budget"] if self.queued else []
        if self._ledger is not None:
            totals = self._ledger.totals()
            if totals.attempts:
                rate = self._rate(totals.attempts)
                cost = "" if totals.has_unknown_cost and not totals.cost else f", {totals.cost_text}"
                tokens = "? tokens" if totals.has_unknown_tokens else f"{_short(totals.tokens)} tokens"
                parts.append(f"{rate:.0f} calls/s, {tokens}{cost}")
        return ", ".join(parts)

    def _rate(self, calls: int) -> float:
        now = time.monotonic()
        self._calls.append((now, calls))
        # The first call has only one sample, which gives no rate.
        start, before = self._calls[0]
        return (calls - before) / (now - start) if start < now else 0.0

    @asynccontextmanager
    async def refreshed(self) -> AsyncIterator[None]:
        """Refreshes the bar regularly while the context is open, even while no item ends."""
        refresher = asyncio.create_task(self._refresh_forever()) if self._bar is not None else None
        try:
            yield
        finally:
            if refresher is not None:
                refresher.cancel()
                self.refresh()
                self._bar.close()

    async def _refresh_forever(self) -> None:
        while True:
            self.refresh()
            await asyncio.sleep(_EVERY)

    def refresh(self) -> None:
        """Shows the latest figures."""
        if self._bar is not None:
            self._bar.set_postfix_str(self.figures())


def _short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return str(number)
