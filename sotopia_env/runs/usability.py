"""Counts, by policy, of turns whose text was not an action, so that a run says so when most of them were not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sotopia_env.foundation.quoting import escape_line
from sotopia_env.world.episode import Episode

_LONGEST = 240  # long enough for the setting that helps, which ends a reason


@dataclass(slots=True)
class _Texts:
    turns: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Usability:
    """The texts of the episodes that were added, by policy; scripted turns have no text and are not counted."""

    _policies: dict[str, _Texts] = field(default_factory=dict)

    def add(self, episode: Episode) -> None:
        """Adds the turns of an episode."""
        names = {policy.agent: policy.name for policy in episode.policies}
        for item in episode.turns:
            if item.generation is None:
                continue
            texts = self._policies.setdefault(names.get(item.turn.actor, item.turn.actor), _Texts())
            texts.turns += 1
            if item.generation.parse_failure is not None:
                texts.reasons[item.generation.parse_failure] += 1

    def update(self, other: Usability) -> None:
        """Adds the counts of another part of the run."""
        for name, texts in other._policies.items():
            total = self._policies.setdefault(name, _Texts())
            total.turns += texts.turns
            total.reasons += texts.reasons

    @property
    def useless(self) -> tuple[str, ...]:
        """The policies none of whose texts was an action."""
        return tuple(name for name, texts in self._policies.items() if texts.reasons.total() == texts.turns)

    def lines(self) -> list[str]:
        """Returns a line for every policy most of whose texts were not actions."""
        return [
            f"{escape_line(name)}: {texts.reasons.total()} of {texts.turns} turns were not an action "
            f"(most often: {_line(texts.reasons.most_common(1)[0][0])})"
            for name, texts in self._policies.items()
            if 2 * texts.reasons.total() > texts.turns
        ]


def _line(reason: str) -> str:
    line = escape_line(reason)
    return f'"{line}"' if len(line) <= _LONGEST else f'"{line[: _LONGEST - 1]}…"'
