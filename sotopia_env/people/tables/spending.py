"""Costs of the turns of a conversation with people: of its programs and of the assistants of its people."""

from __future__ import annotations

from collections.abc import Iterable

from sotopia_env.world.episode import RecordedTurn, Usage


def spent_on(turns: Iterable[RecordedTurn]) -> Usage:
    """Returns the tokens and US dollars of turns and of the advice on them; ``None`` where a part is unknown."""
    total = Usage()
    for generation in (item.generation for item in turns if item.generation is not None):
        advice = generation.advice
        # An assistant that acted is the policy of the turn: its text is counted once.
        if advice is None or advice.response == "played":
            total += generation.usage
        else:
            total += Usage(prompt_tokens=advice.tokens, completion_tokens=0, cost=advice.cost)
    return total
