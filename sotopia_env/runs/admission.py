"""The admission of episodes to a run with a limit: near the limit those that were begun finish before others begin."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from sotopia_env.chat_model import Amount, Ledger, Totals
from sotopia_env.chat_model.spending.budget import NOTHING
from sotopia_env.storage.manifest import UnfinishedPart
from sotopia_env.world.episode import RecordedTurn, Usage

MARGIN = 1.1
"""Of the expectation: a call is sent only where the most that it may use is left, about twice what it uses."""
FIRST = 8
"""Episodes under way at once in a run with a limit, until one has shown what an episode uses."""


@dataclass(slots=True)
class _Sum:
    """Tokens and US dollars; an unknown cost adds nothing, for only a known one can be limited."""

    tokens: int = 0
    cost: float = 0.0

    def add(self, amount: Amount) -> None:
        self.tokens += amount.tokens
        self.cost += amount.cost


@dataclass(slots=True)
class Admission:
    """Lets an episode begin when what is left of the budget is enough for it and for those under way.

    An episode is expected to use as much as the longest one that has ended in this process, and its share of what the
    judges have used. Without a limit, or without models, everything is admitted at once.

    Attributes:
        ledger: of the models, with its limits.
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
        """Whether there is a limit, so that anything may have to wait."""
        return self.ledger is not None and self.ledger.budget.limited

    async def enter(self, key: str, begun: list[UnfinishedPart]) -> None:
        """Waits until the episode may begin, or go on from what was ``begun`` before."""
        while not self._fits():
            self._event.clear()
            await self._event.wait()
        self._under_way[key] = _Sum()
        for part in begun:
            if part.turn is not None:
                self.note(key, part.turn)

    def note(self, key: str, turn: RecordedTurn) -> None:
        """Adds what a turn of an episode under way has used."""
        if turn.generation is not None and self.ledger is not None:
            self._under_way[key].add(_used(turn.generation.usage, self.ledger))

    def leave(self, key: str, finished: bool) -> None:
        """Takes an episode out that has ended; one that was ``finished`` shows what an episode uses."""
        used = self._under_way.pop(key)
        if finished:
            self._count += 1
            self._longest.tokens = max(self._longest.tokens, used.tokens)
            self._longest.cost = max(self._longest.cost, used.cost)
        self._event.set()

    def _fits(self) -> bool:
        if self.ledger is None or not self.limited or not self._under_way:
            return True  # alone, an episode may use all that is left
        if not self._count:
            return len(self._under_way) < FIRST
        judged = _spent(self.ledger.totals("judge"))
        tokens = self._longest.tokens + (judged.tokens - self._judged.tokens) / self._count
        cost = self._longest.cost + (judged.cost - self._judged.cost) / self._count
        rest = tokens + sum(max(0.0, tokens - used.tokens) for used in self._under_way.values())
        rest_cost = cost + sum(max(0.0, cost - used.cost) for used in self._under_way.values())
        return self.ledger.budget.covers(Amount(math.ceil(MARGIN * rest), MARGIN * rest_cost))


def _spent(totals: Totals) -> Amount:
    return Amount(totals.tokens + totals.doubtful_tokens, totals.cost + totals.doubtful_cost)


def _used(usage: Usage, ledger: Ledger) -> Amount:
    """What a turn has used; where the server did not count it, as much as the ledger holds for such a call."""
    if usage.tokens is not None:
        return Amount(usage.tokens, usage.cost or 0.0)
    totals = ledger.totals()
    calls = max(1, totals.uncounted)
    return Amount(totals.doubtful_tokens // calls, totals.doubtful_cost / calls)
