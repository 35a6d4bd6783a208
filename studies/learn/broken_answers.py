"""Broken answers for the reward model: texts that are not actions, with the value 0."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from sotopia_env.foundation.json_text import decode_json
from sotopia_env.world.action import Action, parse


def corrupted(rows: Path, share: float, seed: int) -> Iterator[str]:
    """Yields further rows as lines: real prompts with broken answers of value 0.

    A reward model that has never seen an impossible answer values it at random, and GRPO finds the highest.
    """
    rng = random.Random(seed)
    for line in rows.read_text(encoding="utf-8").splitlines():
        if rng.random() < share:
            row = decode_json(line)
            text = row["completion"][0]["content"]
            row["completion"][0]["content"] = _broken(text, rng)
            row["value"] = 0.0
            yield json.dumps(row) + "\n"


def _broken(text: str, rng: random.Random) -> str:
    """Damages a text so that it is not an action; if the damage leaves a whole action, it is drawn again."""
    # A doubled answer can be read as one action, but must not pay either.
    while isinstance(parse(broken := _damaged(text, rng)), Action) and broken != text + text:
        pass
    return broken


def _damaged(text: str, rng: random.Random) -> str:
    cut = rng.randrange(1, len(text))
    kind = rng.randrange(4)
    if kind == 0:
        return text[:cut]
    if kind == 1:
        return text[cut:]
    if kind == 2:
        words = text.split()
        rng.shuffle(words)
        return " ".join(words)
    return text + text
