"""The progress of long work, on stderr when it is a terminal: done, failed, in flight, calls and cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sotopia_env.chat_model import Ledger

_EVERY = 0.5
_WINDOW = 20


class Progress:
    """Counts, and shows a line with a bar, the time that is left, and what the models do.

    Attributes:
        in_flight: pieces of work under way, the waiting ones included.
        held: pieces that wait for what is left of the budget.
        failed: pieces that failed.
    """

    def __init__(self, total: int, initial: int, visible: bool | None, unit: str, ledger: Ledger | None = None) -> None:
        """Begins.

        Args:
            total: pieces of work.
            initial: of these, how many were done before.
            visible: whether to show anything; ``None`` does if stderr is a terminal.
            unit: what a piece is called, in the plural.
            ledger: of the models; without one only the work itself is shown.
        """
        self.in_flight = self.held = 0
        self.failed = 0
        self._ledger = ledger
        self._bar: Any = None
        self._calls: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        if sys.stderr.isatty() if visible is None else visible:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=initial, unit=f" {unit}", file=sys.stderr, dynamic_ncols=True)

    def begin(self) -> None:
        """One more piece is under way."""
        self.in_flight += 1

    def end(self, done: bool = True, failed: bool = False) -> None:
        """A piece is no longer under way: it is done, it failed, or it was dropped (neither)."""
        self.in_flight -= 1
        self.failed += failed
        if self._bar is not None and (done or failed):
            self._bar.update()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts a piece as waiting while this is open."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1

    def advance(self, count: int) -> None:
        """So many pieces were done elsewhere."""
        if self._bar is not None:
            self._bar.update(count)

    def figures(self) -> str:
        """Returns what is shown behind the bar."""
        parts = [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.in_flight - self.held} in flight"] if self.in_flight > self.held else []
        parts += [f"{self.held} waiting for the budget"] if self.held else []
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
        start, before = self._calls[0]
        return (calls - before) / (now - start) if start < now else 0.0

    @asynccontextmanager
    async def refreshed(self) -> AsyncIterator[None]:
        """Keeps the line fresh as long as this is open, also when nothing is finished for a while."""
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
