"""One seat's view of a game of hidden roles: who is left, what has happened, and what is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class GameEvent(NamedTuple):
    """Something that has happened.

    Attributes:
        cycle: the number of the cycle, from 0.
        phase: the name of the phase.
        kind: ``eliminated``, ``nobody`` (was eliminated), ``inspected``, ``votes`` or ``left``.
        seat: the seat that it happened to.
        told: the role or team that was revealed; empty for none.
        votes: whom each seat voted for, in seat order, or ``None``.
        seen: the seats that know of it; ``None`` for all.
    """

    cycle: int
    phase: str
    kind: str
    seat: str
    told: str = ""
    votes: tuple[str | None, ...] = ()
    seen: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RolesView:
    """One seat's view of a game of hidden roles.

    Attributes:
        agents: agent ids in seat order.
        living: those who are not eliminated.
        events: what the viewer knows to have happened, in order.
        cycle: the number of the cycle, from 0.
        phase: the name of the phase; empty if the viewer does not witness it.
        effect: what happens to whoever is chosen in it; empty for nothing.
        due: the seats that act in it, as far as the viewer may know.
        picks: whom each seat has chosen in this phase, as far as the viewer may know.
    """

    agents: tuple[str, ...]
    living: tuple[str, ...]
    events: tuple[GameEvent, ...]
    cycle: int
    phase: str = ""
    effect: str = ""
    due: tuple[str, ...] = ()
    picks: tuple[str | None, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the view as JSON."""
        fields = ("cycle", "phase", "kind", "seat", "told")
        events = [
            {name: getattr(event, name) for name in fields}
            | ({"votes": self._chosen(event.votes)} if event.votes else {})
            for event in self.events
        ]
        return {
            "living": list(self.living),
            "cycle": self.cycle,
            "phase": self.phase,
            "effect": self.effect,
            "due": list(self.due),
            "chosen": self._chosen(self.picks),
            "events": events,
        }

    def _chosen(self, picks: tuple[str | None, ...]) -> dict[str, str]:
        return {agent: pick for agent, pick in zip(self.agents, picks, strict=False) if pick is not None}

    def lines(self, names: Mapping[str, str]) -> list[str]:
        """One line per event, one for those who are left, and one for the phase."""
        lines = [f"{self._time(event)}: {self._text(event, names)}." for event in self.events]
        lines.append(f"Left in the game: {', '.join(names[agent] for agent in self.living)}.")
        if self.phase:
            lines.append(f"Now: cycle {self.cycle + 1}, {self.phase}. Acting: {', '.join(names[a] for a in self.due)}.")
        if chosen := self._votes_text(self.picks, names):
            lines.append(f"Chosen so far: {chosen}.")
        return lines

    def _time(self, event: GameEvent) -> str:
        return f"Cycle {event.cycle + 1}" + (f", {event.phase}" if event.phase else "")

    def _votes_text(self, picks: tuple[str | None, ...], names: Mapping[str, str]) -> str:
        return ", ".join(f"{names[agent]} for {names[pick]}" for agent, pick in self._chosen(picks).items())

    def _text(self, event: GameEvent, names: Mapping[str, str]) -> str:
        who = names.get(event.seat, "")
        told = f" ({event.told})" if event.told else ""
        return {
            "eliminated": f"{who} was eliminated{told}",
            "nobody": "nobody was eliminated",
            "inspected": f"you learnt that {who} is {event.told}",
            "votes": f"votes: {self._votes_text(event.votes, names) or 'none'}",
            "left": f"{who} left",
        }[event.kind]
