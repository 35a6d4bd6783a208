"""Timing helpers: CPU time over several interleaved rounds, and figures printed beside their targets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured ratio or size beside its target; ``at_most`` means that smaller is better."""

    name: str
    value: float
    unit: str
    target: float
    at_most: bool = True
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the value is on the right side of the target."""
        return self.value <= self.target if self.at_most else self.value >= self.target

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        verdict = "ok  " if self.is_met else "MISS"
        return (
            f"{verdict} {self.name:<58} {self.value:>10.2f} {self.unit:<12} target {sign} {self.target:g}  {self.note}"
        )


def cpu_rounds(programs: dict[str, Callable[[], int]], rounds: int = 7, minimum: float = 0.3) -> dict[str, float]:
    """Returns CPU microseconds per unit of work for each program: the median over interleaved rounds.

    Each program does some work and returns the number of units done; it is repeated within a round until ``minimum``
    CPU seconds have passed. Interleaving spreads the load of the machine over all programs.
    """
    # CPU time, not wall time: other processes of the machine slow a program down but do not enter its CPU time.
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            units, start = 0, time.process_time()
            while time.process_time() - start < minimum:
                units += program()
            samples[name].append((time.process_time() - start) / units * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}
