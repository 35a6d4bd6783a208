"""Counts of a seat's turns: unusable answers, illegal actions and moves, re-asks, tokens, cost and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from sotopia_env.world.episode import RecordedTurn


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """Sums over turns.

    The last five are recorded only for turns that were read from a text
    (:class:`~sotopia_env.world.episode.Generation`); they are ``None`` if no turn has one. A sum with an unknown part
    is unknown.

    Attributes:
        turns: the number of turns.
        illegal: the number of actions and moves that were not allowed.
        texts: the number of turns that were read from a text.
        invalid: the number of texts that are not an action.
        reasks: the number of times the policy was asked again.
        tokens: the tokens of prompts and answers, including re-asks.
        cost: the cost in US dollars, including re-asks.
        seconds: the time from observation to action; a latency of exactly 0 was not measured.
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
        """The mean latency of the turns with a text."""
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
    """Returns the sums over seats; seats without texts are ignored in the counts that need texts."""
    counts = list(counts)
    # Their ``None`` would otherwise make the sum unknown, as an unknown price does.
    texted = [item for item in counts if item.texts] or [TurnCounts()]
    sums: dict[str, Any] = {
        field.name: _sum(getattr(item, field.name) for item in texted) for field in fields(TurnCounts)
    }
    return TurnCounts(**sums | {name: sum(getattr(item, name) for item in counts) for name in ("turns", "illegal")})


def _sum(values: Iterable[Any]) -> Any:
    parts = list(values)
    return None if None in parts else sum(parts)
