"""Report of an attribution, in counts and tables."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from training.attribution.agreement import AttributorAgreement
from training.attribution.credits import NOBODY, Attribution

_LONGEST = 100
SCORE = "the score itself"


@dataclass(slots=True)
class Tally:
    """Seats of episodes, by dimension and attributor: attributed, or missing for a reason."""

    seats: Counter[tuple[str, str]] = field(default_factory=Counter)
    turns: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def attributed(self, dimension: str, attributor: str, turns: int) -> None:
        """One more seat, with so many turns."""
        self.seats[dimension, attributor] += 1
        self.turns[dimension, attributor] += turns

    def missing(self, dimension: str, attributor: str, reason: str) -> None:
        """One more seat that is left out; ``attributor`` is empty where the score itself is missing."""
        text = " ".join(reason.split())
        self.reasons[dimension, attributor or SCORE, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"] += 1

    def figures(self) -> list[dict[str, Any]]:
        """The counts as JSON."""
        keys = dict.fromkeys([*self.seats, *((dimension, who) for dimension, who, _ in self.reasons)])
        return [
            {
                "dimension": dimension,
                "attributor": who,
                "attributed": self.seats[dimension, who],
                "turns": self.turns[dimension, who],
                "missing": sum(n for key, n in self.reasons.items() if key[:2] == (dimension, who)),
            }
            for dimension, who in keys
        ]


@dataclass(slots=True)
class Spread:
    """The rewards of turns, by dimension, attributor and method."""

    count: int = 0
    values: dict[tuple[str, str, str], array[float]] = field(default_factory=dict)

    def add(self, record: Attribution) -> None:
        """One more reward."""
        self.count += 1
        key = (record.dimension, record.attributor, record.method)
        if key not in self.values:
            self.values[key] = array("f")
        self.values[key].append(record.reward)

    def plot(self, path: Path) -> Path:
        """Draws how they are distributed: a panel for each dimension, a line for each method of each attributor."""
        from training.attribution.plot import plot_distributions

        panels: dict[str, dict[str, array[float]]] = {}
        for (dimension, attributor, method), values in self.values.items():
            label = method if attributor == NOBODY else f"{attributor}, {method}"
            panels.setdefault(dimension, {})[label] = values
        return plot_distributions(panels, path, "reward")


def to_markdown(tally: Tally, spread: Spread, agreement: Sequence[AttributorAgreement]) -> str:
    """Returns the report."""
    parts = ["# Attribution\n", "## Seats of episodes\n"]
    parts.append(
        _table(["dimension", "attributor", "attributed", "turns", "missing"], map(dict.values, tally.figures()))
    )
    if tally.reasons:
        parts.append("\n## Missing (left out, never 0)\n")
        parts.append(
            _table(
                ["dimension", "attributor", "seats", "reason"], ((d, w, n, r) for (d, w, r), n in tally.reasons.items())
            )
        )
    parts.append("\n## Rewards of turns\n")
    heads = ["dimension", "attributor", "method", "turns", "mean", "sd", "least", "greatest", "share of zeros"]
    parts.append(_table(heads, ((*key, *_moments(values)) for key, values in spread.values.items())))
    parts.append("\n## Agreement of attributors\n")
    if agreement:
        heads = [
            "dimension",
            "first",
            "second",
            "seats",
            "turns",
            "missing",
            "Spearman",
            "within a seat",
            "seats ranked",
        ]
        parts.append(_table(heads, (row.figures().values() for row in agreement)))
    else:
        parts.append("Nothing to compare: no dimension has two attributors.\n")
    return "\n".join(parts)


def _moments(values: array[float]) -> tuple[Any, ...]:
    numbers = np.frombuffer(values, dtype=np.float32).astype(np.float64)
    least, greatest = float(numbers.min()), float(numbers.max())
    return len(numbers), float(numbers.mean()), float(numbers.std()), least, greatest, float((numbers == 0).mean())


def _table(heads: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value).replace("|", "\\|")
