"""Trust of scripts in the others: by how often each of them proved right, as far as the seat knows the truth."""

from __future__ import annotations

from collections.abc import Mapping

from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.facts import Distribution
from sotopia_env.outcomes.menu import names_in
from sotopia_env.policies.speakers.belief import knowledge
from sotopia_env.world.observation import Observation


def reliance(observation: Observation, agent: str) -> float:
    """Returns how far the seat relies on ``agent``, from 0 to 1; a stranger, of whom nothing is known, gets 1/2.

    It is Laplace's rule of succession, (t + 1) / (t + f + 2), over the different statements of ``agent`` that the seat
    knows to be true (t) or false (f): by its own knowledge, what follows from it, and votes that it can see, which keep
    or break promises. A proof counts as a true statement; what the seat cannot check does not count.
    """
    facts = observation.briefing.facts
    beliefs = {} if facts is None else facts.beliefs(knowledge(observation))
    verdicts = [_verdict(observation, agent, *item, beliefs) for item in _statements(observation, agent)]
    true, false = verdicts.count(True), verdicts.count(False)
    return (true + 1) / (true + false + 2)


def _statements(observation: Observation, agent: str) -> dict[tuple[str, str | None], None]:
    """The different statements of an agent that the seat has witnessed; ``None`` as the value of a proof."""
    statements: dict[tuple[str, str | None], None] = {}
    for turn in observation.turns:
        move = turn.action.move
        for kind, content in () if move is None or turn.actor != agent else move.statements:
            if kind is not MoveKind.ASK:
                values = content if kind is MoveKind.STATE else dict.fromkeys(names_in(content))
                statements |= dict.fromkeys(values.items())
    return statements


def _verdict(
    observation: Observation, agent: str, name: str, value: str | None, beliefs: Mapping[str, Distribution]
) -> bool | None:
    """Whether a statement is true; ``None`` if the seat does not know."""
    facts, table = observation.briefing.facts, observation.table
    if value is None:
        return True
    variable = facts.variables.get(name) if facts is not None else None
    if variable is None:
        return None
    if variable.kind == "choice":
        votes = table.votes.options if table is not None and table.settled and table.votes is not None else {}
        return votes[agent] == value if variable.of == agent and agent in votes else None
    chance = beliefs[name][value]
    return True if chance == 1 else False if chance == 0 else None
