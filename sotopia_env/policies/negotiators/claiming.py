"""The likeliest answer of a claims task, as a seat works it out from its own records and its partners' words.

Records are the objects with a ``name`` among the seat's private data; their other texts are facts. What partners tell
is compared with them by exact phrase: enough between scripts, which tell all facts of a person in one breath. It
decides what a script claims, never what a claim is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sotopia_env.outcomes import ClaimsWorth
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.observation import Briefing, Observation

SURE = 0.9
"""The probability from which a claim need not wait for more facts."""
_SAME = 1000.0  # a partner tells of somebody with this name and all of these facts
_OTHER = 0.01  # a partner tells of somebody with this name and other facts
_CLAIMED = 20.0  # a partner names somebody while it makes a claim

Record = Mapping[str, str]


def records(briefing: Briefing) -> list[Record]:
    """Returns the people, or whatever else has a name, that the seat's private data list."""
    lists = [value for value in briefing.private_data.values() if isinstance(value, Sequence)]
    entries = [entry for values in lists if not isinstance(values, str) for entry in values]
    return [
        {key: text for key, text in entry.items() if isinstance(text, str)}
        for entry in entries
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
    ]


def odds(observation: Observation) -> dict[str, float]:
    """Returns the probability of each answer the seat can think of; empty where it can think of none.

    These are the names on its records, or the public candidates where it has none, less those it has claimed in vain.
    """
    table, moves = observation.table, observation.moves
    assert table is not None
    assert table.claims is not None
    candidates = moves.candidates if moves is not None else ()
    entries = records(observation.briefing) or [{"name": candidate} for candidate in candidates]
    wrong = table.claims.wrong.get(observation.agent, ())
    names = tuple(entry["name"] for entry in entries)
    turns = [turn for turn in observation.turns if turn.actor != observation.agent and turn.action.argument]
    weights: dict[str, float] = {}
    for entry in entries:
        if entry["name"] not in wrong and (not candidates or entry["name"] in candidates):
            weights[entry["name"]] = _weight(entry, names, turns)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _weight(entry: Record, names: Sequence[str], turns: Sequence[Turn]) -> float:
    weight = 1.0
    for turn in turns:
        words = turn.action.argument
        if entry["name"] not in words:
            continue
        if turn.effect is not None:  # all that is seen of a partner's claim, besides its words
            weight *= _CLAIMED
        elif len(entry) > 1 and all(text in words for text in entry.values()):
            weight *= _SAME
        elif len(entry) > 1 and sum(name in words for name in names) == 1:
            weight *= _OTHER
    return weight


def fact(observation: Observation) -> str | None:
    """Returns all the seat knows of the first entry on its records that nobody has named yet; ``None`` without one."""
    words = [turn.action.argument for turn in observation.turns]
    for entry in records(observation.briefing):
        if not any(entry["name"] in text for text in words):
            return f"I know {entry['name']}: {', '.join(text for key, text in entry.items() if key != 'name')}."
    return None


def expectation(worth: ClaimsWorth, probability: float) -> float:
    """Returns what a claim gains over none if it is right with ``probability``, as a share of what a right one gains.

    1 for the certain answer; below 0 where silence is better.
    """
    gain = worth.right - worth.none
    if gain <= 0:
        return -1.0
    return probability + (1 - probability) * worth.wrong / gain
