"""Probabilities of the answers in a claims task, from a seat's own records and its partners' words.

Records are the objects with a ``name`` among the seat's private data; their other texts are facts. Partners' words are
compared with the records by exact phrase. This is sufficient between scripts, which state all facts of a person in one
utterance. The result decides only which claim a script makes, never the worth of a claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sotopia_env.outcomes.worth import ClaimsWorth
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.observation import Briefing, Observation

SURE = 0.9
"""The probability from which a seat claims at once, without waiting for more facts."""
# Likelihood ratios of an utterance; only their order of magnitude matters. A partner states this name with all of
# these facts, states this name with other facts, or uses this name while it makes a claim.
_SAME = 1000.0
_OTHER = 0.01
_CLAIMED = 20.0

Record = Mapping[str, str]


def records(briefing: Briefing) -> list[Record]:
    """Returns the objects with a name (usually people) that the seat's private data list."""
    lists = [value for value in briefing.private_data.values() if isinstance(value, Sequence)]
    entries = [entry for values in lists if not isinstance(values, str) for entry in values]
    return [
        {key: text for key, text in entry.items() if isinstance(text, str)}
        for entry in entries
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
    ]


def odds(observation: Observation) -> dict[str, float]:
    """Returns the probability of each possible answer; empty if the seat knows no possible answer.

    Possible answers are the names in the seat's records, or the public candidates if it has no records, without its
    own wrong claims.
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
        if turn.effect is not None:  # a claim; a partner perceives its effect and its words, but not its content
            weight *= _CLAIMED
        elif len(entry) > 1 and all(text in words for text in entry.values()):
            weight *= _SAME
        # If several names are mentioned, the facts may be another person's, so they are not evidence against this one.
        elif len(entry) > 1 and sum(name in words for name in names) == 1:
            weight *= _OTHER
    return weight


def fact(observation: Observation) -> str | None:
    """Returns all facts of the seat's first record whose name was not mentioned yet; ``None`` if there is none."""
    words = [turn.action.argument for turn in observation.turns]
    for entry in records(observation.briefing):
        if not any(entry["name"] in text for text in words):
            return f"I know {entry['name']}: {', '.join(text for key, text in entry.items() if key != 'name')}."
    return None


def expectation(worth: ClaimsWorth, probability: float) -> float:
    """Returns the expected gain of a claim over no claim, as a share of the gain of a right claim.

    It is 1 for a certain answer, and negative if silence is better.

    Args:
        worth: the seat's worth of right and wrong claims.
        probability: the probability that the claim is right.
    """
    gain = worth.right - worth.none
    if gain <= 0:
        return -1.0
    return probability + (1 - probability) * worth.wrong / gain
