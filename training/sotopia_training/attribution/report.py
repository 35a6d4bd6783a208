"""The report of the attribution stage: counts and the distribution of rewards."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sotopia_env.reports.sheet import Report, Sheet, Value
from sotopia_training.attribution.methods import Attribution

_LONGEST = 100
SCORE = "the score itself"


@dataclass(slots=True)
class SeatTally:
    """Counts of attributed and missing seats of episodes, by dimension and attributor."""

    seats: Counter[tuple[str, str]] = field(default_factory=Counter)
    turns: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def attributed(self, dimension: str, attributor: str, turns: int) -> None:
        """Counts a seat with ``turns`` attributed turns."""
        self.seats[dimension, attributor] += 1
        self.turns[dimension, attributor] += turns

    def missing(self, dimension: str, attributor: str, reason: str) -> None:
        """Counts a seat that is left out; ``attributor`` is empty if the score itself is missing."""
        text = " ".join(reason.split())
        self.reasons[dimension, attributor or SCORE, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"] += 1

    def figures(self) -> list[dict[str, Any]]:
        """Returns the counts as JSON."""
        keys = dict.fromkeys([*self.seats, *((dimension, attributor) for dimension, attributor, _ in self.reasons)])
        return [
            {
                "dimension": dimension,
                "attributor": attributor,
                "attributed": self.seats[dimension, attributor],
                "turns": self.turns[dimension, attributor],
                "missing": sum(n for key, n in self.reasons.items() if key[:2] == (dimension, attributor)),
            }
            for dimension, attributor in keys
        ]


@dataclass(slots=True)
class Spread:
    """The rewards of turns, by dimension, attributor and method."""

    count: int = 0
    values: dict[tuple[str, str, str], array[float]] = field(default_factory=dict)

    def add(self, record: Attribution) -> None:
        """Adds the reward of one turn."""
        self.count += 1
        key = (record.dimension, record.attributor, record.method)
        if key not in self.values:
            self.values[key] = array("f")  # 4 bytes a reward; lists of floats would take eight times as much
        self.values[key].append(record.reward)


def attribution_report(tally: SeatTally, spread: Spread) -> Report:
    """Returns the report, with seats, missing seats and rewards as sheets."""
    three = "{:.3f}".format
    by = ("dimension", "attributor")
    seats = Sheet(
        "seats",
        (*by, "attributed", "turns", "missing"),
        [tuple(row.values()) for row in tally.figures()],
        title="Seats of episodes",
    )
    missing = Sheet(
        "missing",
        (*by, "seats", "reason"),
        [(dimension, attributor, n, reason) for (dimension, attributor, reason), n in tally.reasons.items()],
        title="Missing (left out, never 0)",
    )
    moments = ("mean", "sd", "least", "greatest", "zeros")
    rewards = Sheet(
        "rewards",
        (*by, "method", "turns", *moments),
        [(*key, *_moments(values)) for key, values in spread.values.items()],
        title="Rewards of turns",
        labels={"zeros": "share of zeros"},
        formats=dict.fromkeys(moments, three),
    )
    sheets = [seats, missing, rewards]
    return Report(name="report", title="Attribution", parts=sheets, sheets=sheets)


def _moments(values: array[float]) -> tuple[Value, ...]:
    numbers = np.frombuffer(values, dtype=np.float32).astype(np.float64)
    least, greatest = float(numbers.min()), float(numbers.max())
    return len(numbers), float(numbers.mean()), float(numbers.std()), least, greatest, float((numbers == 0).mean())
