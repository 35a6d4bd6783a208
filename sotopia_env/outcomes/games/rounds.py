"""One seat's view of a game of choices: the rounds so far, what is due now, and what was paid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Rounds:
    """One seat's view of a game of choices.

    Attributes:
        agents: agent ids in seat order.
        played: the option of each seat in each past round, :data:`HIDDEN` where the viewer may not see it.
        counts: by past round, how many seats chose each option, where the viewer may know this; else empty.
        pending: the option of each seat in this round: ``None`` before it has chosen, :data:`HIDDEN` if not visible.
        due: the seats that are to choose now.
        total: the number of rounds.
        paid: agent id to payoff so far, for the seats whose payoffs the viewer may see: its own, or all.
        stock: the level of the stock; ``None`` without one.
        is_open: whether ``total`` is only the highest possible number, since the end is random.
    """

    agents: tuple[str, ...]
    played: tuple[tuple[str, ...], ...]
    counts: tuple[Mapping[str, int], ...] = field(hash=False)
    pending: tuple[str | None, ...]
    due: tuple[str, ...]
    total: int
    paid: Mapping[str, float] = field(hash=False)
    stock: float | None = None
    is_open: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the game as JSON; options that are not visible are ``null`` in past rounds."""
        played = [dict(zip(self.agents, (option or None for option in row), strict=True)) for row in self.played]
        return {
            "played": played,
            "counts": [dict(row) for row in self.counts],
            "chosen": [agent for agent, option in zip(self.agents, self.pending, strict=True) if option is not None],
            "visible": {agent: option for agent, option in zip(self.agents, self.pending, strict=True) if option},
            "due": list(self.due),
            "rounds": self.total,
            "paid": dict(self.paid),
            "stock": self.stock,
        }

    def lines(self, names: Mapping[str, str]) -> list[str]:
        """One line per past round, and lines for this round, the stock and the payoffs."""
        lines = [self._round_line(names, number) for number in range(len(self.played))]
        if self.due:
            due = ", ".join([names[agent] for agent in self.due])
            total = f"at most {self.total}" if self.is_open else self.total
            lines.append(f"Round {len(self.played) + 1} of {total}. To choose: {due}.")
        chosen = [
            f"{names[agent]}: {option}" if option else f"{names[agent]} (hidden)"
            for agent, option in zip(self.agents, self.pending, strict=True)
            if option is not None
        ]
        lines += [f"Chosen in this round: {'; '.join(chosen)}."] if chosen else []
        lines += [] if self.stock is None else [f"Stock: {self.stock:g}."]
        paid = ", ".join(f"{names[agent]} {value:g}" for agent, value in self.paid.items())
        return [*lines, f"Paid so far: {paid}."] if self.played else lines

    def _round_line(self, names: Mapping[str, str], number: int) -> str:
        visible = zip(self.agents, self.played[number], strict=True)
        parts = [f"{names[agent]}: {option}" for agent, option in visible if option]
        counts = self.counts[number] if self.counts else {}
        parts += [f"{option} {count} times in all" for option, count in counts.items()]
        return f"Round {number + 1}. {'; '.join(parts)}."
