"""Prints every figure beside its target; ``python -m benchmarks [name ...]`` runs some."""

from __future__ import annotations

import importlib
import os
import sys

# Set before the first import of pygame, which PettingZoo's classic games load.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
NAMES = (
    "startup",
    "importing",
    "outcomes",
    "prompts",
    "episodes",
    "seats",
    "procedural",
    "concurrency",
    "models",
    "training",
    "turns",
    "sampling",
    "probes",
    "social",
    "sensitivity",
    "studio",
)


def main(names: list[str]) -> None:
    """Runs the named benchmarks, or all of them, and prints one line per figure."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"benchmark: expected one of {', '.join(NAMES)}, got {unknown[0]!r}")
    # Imported one by one: a benchmark must not pay, in time or memory, for the imports of another.
    # In this order: a process that starts others passes its peak memory on to them.
    for name in (name for name in NAMES if name in names or not names):
        for figure in importlib.import_module(f"benchmarks.{name}").figures():
            print(figure, flush=True)


main(sys.argv[1:])
