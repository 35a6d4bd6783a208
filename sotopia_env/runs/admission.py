"""Admission of episodes to a run with a budget: near the limit, episodes in progress finish before new ones start."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from sotopia_env.chat_model.spending.budget import NOTHING, Amount
from sotopia_env.chat_model.spending.ledger import Ledger, Totals
from sotopia_env.storage.manifest import UnfinishedPart
from sotopia_env.world.episode import RecordedTurn, Usage

MARGIN = 1.1
"""Factor on the expected use. A call is only sent if its upper bound, about twice its real use, is still available."""
FIRST = 8
"""Maximum number of concurrent episodes in a run with a limit until the first one has finished."""


@dataclass(slots=True)
class _Sum:
    """Tokens and US dollars; an unknown cost counts as 0, since only known costs can be limited."""

    tokens: int = 0
    cost: float = 0.0

    def add(self, amount: Amount) -> None:
        self.tokens += amount.tokens
        self.cost += amount.cost


@dataclass(slots=True)
class Admission:
    """Admits an episode when the remaining budget is enough for it and for the episodes in progress.

    An episode is expected to use as much as the longest one that has ended in this process, plus an average share of
    the judges' use. Without a limit, or without models, everything is admitted at once.

    Attributes:
        ledger: the ledger of the models, with its limits; ``None`` for a run without models.
    """

    ledger: Ledger | None
    _under_way: dict[str, _Sum] = field(default_factory=dict)
    _longest: _Sum = field(default_factory=_Sum)
    _count: int = 0
    _judged: Amount = NOTHING
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.ledger is not None:
            self._judged = _spent(self.ledger.totals("judge"))

    @property
    def limited(self) -> bool:
        """Whether there is a limit, so that episodes may have to wait."""
        return self.ledger is not None and self.ledger.budget.limited

    async def enter(self, key: str, parts: list[UnfinishedPart]) -> None:
        """Waits until the episode may start, or continue from the recorded ``parts``."""
        # Every waiting episode checks again after each event, and only those that fit leave the loop.
        while not self._fits():
            self._event.clear()
            await self._event.wait()
        self._under_way[key] = _Sum()
        for part in parts:
            if part.turn is not None:
                self.note(key, part.turn)

    def note(self, key: str, turn: RecordedTurn) -> None:
        """Adds the use of one turn of an episode in progress."""
        if turn.generation is not None and self.ledger is not None:
            self._under_way[key].add(_used(turn.generation.usage, self.ledger))

    def leave(self, key: str, finished: bool) -> None:
        """Removes an episode that has ended; if it was ``finished``, its use updates the expectation."""
        usage = self._under_way.pop(key)
        if finished:
            self._count += 1
            self._longest.tokens = max(self._longest.tokens, usage.tokens)
            self._longest.cost = max(self._longest.cost, usage.cost)
        self._event.set()

    def _fits(self) -> bool:
        if self.ledger is None or not self.limited or not self._under_way:
            # An episode that runs alone may use the whole remaining budget: waiting longer would not free any.
            return True
        if not self._count:
            return len(self._under_way) < FIRST
        # Expected use of one episode: the longest finished one, plus the judges' use since the start per finished
        # episode. The new episode needs all of it; each episode in progress needs what it has not used yet, and at
        # least 0 if it is already longer than any finished one.
        judged = _spent(self.ledger.totals("judge"))
        tokens = self._longest.tokens + (judged.tokens - self._judged.tokens) / self._count
        cost = self._longest.cost + (judged.cost - self._judged.cost) / self._count
        rest = tokens + sum(max(0.0, tokens - usage.tokens) for usage in self._under_way.values())
        rest_cost = cost + sum(max(0.0, cost - usage.cost) for usage in self._under_way.values())
        return self.ledger.budget.covers(Amount(math.ceil(MARGIN * rest), MARGIN * rest_cost))


def _spent(totals: Totals) -> Amount:
    return Amount(totals.tokens + totals.doubtful_tokens, totals.cost + totals.doubtful_cost)


def _used(usage: Usage, ledger: Ledger) -> Amount:
    """Returns the use of a turn; if the server did not report it, the ledger's average for unreported calls."""
    if usage.tokens is not None:
        return Amount(usage.tokens, usage.cost or 0.0)
    totals = ledger.totals()
    calls = max(1, totals.uncounted)
    return Amount(totals.doubtful_tokens // calls, totals.doubtful_cost / calls)
