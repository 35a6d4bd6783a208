"""Coming choices: questions whose truth falls later, and the skill of the answers once it has fallen.

A question on a choice, such as a vote, is put as long as it is due and not made; the record of the protocol
(:meth:`~sotopia_env.outcomes.protocols.protocol.Protocol.choices`) says what it turned out to be. A choice that was
never made has no truth, so nobody is scored on it. In a game of several rounds each round has a choice of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from sotopia_env.evaluators.probes.knowledge import brier
from sotopia_env.outcomes.protocols.statements import WithFacts
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import Episode
from sotopia_env.world.tables import folded

LEAST_SKILL = -3
"""Certainty of the wrong one of two options: 1 - 2 / (1 - 1/2)."""


def outcomes_of_choices(episode: Episode) -> Mapping[tuple[int, str], str]:
    """Returns what each coming choice turned out to be, by the number of turns before it and the variable's name."""
    protocol = episode.task.protocol
    if not isinstance(protocol, WithFacts):
        return {}
    tables = [protocol.initial(), *(item.table for item in folded(episode.task, episode.plain_turns))]
    results: dict[tuple[int, str], str] = {}
    for variable in protocol.facts.variables:
        choices = protocol.choices(tables[-1], variable.of) if variable.kind == "choice" else ()
        for turns, table in enumerate(tables if choices else ()):
            due = protocol.choices(table, variable.of)
            option = choices[len(due) - 1] if due and due[-1] is None else None
            if option is not None:
                results[turns, variable.name] = option
    return results


def foresight(answers: Iterable[Belief], outcomes: Mapping[tuple[int, str], str]) -> tuple[float, str] | None:
    """Returns the skill of answers on coming choices, and what it is made of; ``None`` without such answers.

    It is 1 minus the mean Brier score over that of uniform beliefs: 1 for certainty of what was chosen, 0 for uniform
    beliefs, and at least :data:`LEAST_SKILL`.
    """
    scores, uniform = [], []
    for belief in answers:
        option = outcomes.get((belief.turns, belief.variable))
        if option is not None and belief.probabilities is not None:
            scores.append(brier(belief.probabilities, option, belief.samples))
            uniform.append(1 - 1 / len(belief.options))
    if not scores:
        return None
    text = f"{len(scores)} answers before the choices, Brier score {fmean(scores):.3f} (uniform {fmean(uniform):.3f})"
    return 1 - fmean(scores) / fmean(uniform), text
