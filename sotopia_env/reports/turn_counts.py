"""Counts of a seat's turns: answers that were no action, moves that were not open, and what the turns have cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from sotopia_env.world.episode import RecordedTurn


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """Sums over turns.

    Only a turn with a text behind it (:class:`~sotopia_env.world.Generation`) tells the last five; they are ``None``
    where no turn has one. A sum with an unknown part is unknown.

    Attributes:
        turns: how many there are.
        illegal: actions and moves that were not allowed.
        texts: turns with a text behind them.
        invalid: texts that are not an action.
        reasks: how often the policy was asked again.
        tokens: prompts and answers, re-asks included.
        cost: US dollars, likewise.
        seconds: from observation to action; a latency of exactly 0 was not measured.
    """

    turns: int = 0
    illegal: int = 0
    texts: int = 0
    invalid: int | None = None
    reasks: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    @property
    def seconds_per_turn(self) -> float | None:
        """Mean latency of the turns with a text."""
        return None if self.seconds is None else self.seconds / self.texts


def count_turns(turns: Iterable[RecordedTurn]) -> TurnCounts:
    """Returns the counts of one seat's turns."""
    turns = list(turns)
    generations = [item.generation for item in turns if item.generation is not None]
    illegal = sum(item.turn.violation is not None for item in turns)
    if not generations:
        return TurnCounts(len(turns), illegal)
    return TurnCounts(
        turns=len(turns),
        illegal=illegal,
        texts=len(generations),
        invalid=sum(item.parse_failure is not None for item in generations),
        reasks=sum(item.reasks for item in generations),
        tokens=_sum(item.usage.tokens for item in generations),
        cost=_sum(item.usage.cost for item in generations),
        seconds=_sum(item.latency or None for item in generations),
    )


def total(counts: Iterable[TurnCounts]) -> TurnCounts:
    """Returns the sums over seats; those without texts add nothing to what only texts tell."""
    counts = list(counts)
    told = [item for item in counts if item.texts] or [TurnCounts()]
    sums: dict[str, Any] = {
        field.name: _sum(getattr(item, field.name) for item in told) for field in fields(TurnCounts)
    }
    return TurnCounts(**sums | {name: sum(getattr(item, name) for item in counts) for name in ("turns", "illegal")})


def _sum(values: Iterable[Any]) -> Any:
    parts = list(values)
    return None if None in parts else sum(parts)
