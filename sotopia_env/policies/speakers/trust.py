"""Trust of scripts in the others: by how often each of them proved right, as far as the seat knows the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.facts import Distribution
from sotopia_env.outcomes.menu import names_in
from sotopia_env.policies.choosers.chooser import cooperated
from sotopia_env.policies.speakers.belief import knowledge
from sotopia_env.world.observation import Observation


def reliances(observation: Observation) -> Mapping[str, float]:
    """Returns how far the seat relies on each of the others, from 0 to 1; a stranger (the id "") gets 1/2.

    It is Laplace's rule of succession, (t + 1) / (t + f + 2), over the different statements of an agent that the seat
    knows to be true (t) or false (f): by its own knowledge, what follows from it, and votes that it can see, which keep
    or break promises. A proof counts as a true statement; what the seat cannot check does not count. In games of
    choices, a round in which the agent co-operated counts as a true statement, and one in which it did not as a false.
    """
    facts = observation.briefing.facts
    beliefs = {} if facts is None else facts.beliefs(knowledge(observation))
    counts: dict[str, list[int]] = defaultdict(lambda: [1, 1])
    for agent, name, value in _statements(observation):
        verdict = _verdict(observation, agent, name, value, beliefs)
        if verdict is not None:
            counts[agent][verdict] += 1
    agents = ["", *(partner.agent for partner in observation.briefing.partners)]
    for agent in agents:
        for verdict in cooperated(observation, agent):
            counts[agent][verdict] += 1
    return {agent: counts[agent][True] / sum(counts[agent]) for agent in agents}


def _statements(observation: Observation) -> Mapping[tuple[str, str, str | None], None]:
    """The different statements that the seat has witnessed: agent, variable, value; ``None`` as that of a proof."""
    statements: dict[tuple[str, str, str | None], None] = {}
    for turn in observation.turns:
        move = turn.action.move
        for kind, content in () if move is None else move.statements:
            if kind is not MoveKind.ASK:
                values = content if kind is MoveKind.STATE else dict.fromkeys(names_in(content))
                statements |= dict.fromkeys((turn.actor, name, value) for name, value in values.items())
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
