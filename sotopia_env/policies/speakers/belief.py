"""Beliefs of scripts on the variables of a task: Bayes' rule over what a seat knows and what the others stated.

The model of a speaker has one number, ``lies``: with probability 1 - ``lies`` it states everything that it knew at the
start about a deal, and otherwise what it would have known in another world (:func:`pretences`); then it repeats that.
So a belief is exact among speakers of that kind (:mod:`~sotopia_env.policies.speakers.speaker`): if they lie as often
as is assumed, the mean change of a belief is 0. Statements on variables without a deal are true with probability
1 - ``lies``, and every other option is equally likely. In games of hidden roles, where seats learn more, so are all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.facts import Deal, PublicVariable, SeatFacts, Values
from sotopia_env.outcomes.facts import beliefs as prior
from sotopia_env.world.observation import Observation

_MOST_REMEMBERED = 4_096
Beliefs = dict[str, dict[str, float]]
"""The probability of every option, by variable."""


def knowledge(observation: Observation) -> Values:
    """Returns the values that the seat knows by now, by variable."""
    table = observation.table
    return {} if table is None or table.knowledge is None else table.knowledge


def assertions(observation: Observation, own: bool = False) -> Iterator[tuple[str, Values]]:
    """Yields what the others, or the seat itself, stated in turns that it has witnessed: agent id, and values."""
    for turn in observation.turns:
        move = turn.action.move
        if move is not None and (turn.actor == observation.agent) is own:
            for kind, content in move.statements:
                if kind is MoveKind.STATE:
                    yield turn.actor, content


def posterior(observation: Observation, lies: float | None, more: Iterable[PublicVariable] = ()) -> Beliefs:
    """Returns the seat's belief on every variable that it may know.

    Args:
        observation: the seat's observation, in a task with facts.
        lies: the probability with which others lie, from 0 to 1; ``None`` believes nothing that is stated.
        more: variables that the seat may not know and is asked about.
    """
    facts, values = observation.briefing.facts, knowledge(observation)
    assert facts is not None
    unread = {variable.name: variable for variable in more if variable.name not in facts.variables}
    # A repeated statement is one statement.
    stories = (
        () if lies is None else dict.fromkeys([(who, tuple(said.items())) for who, said in assertions(observation)])
    )
    learns = observation.table is not None and observation.table.game is not None
    key = (lies, *stories, *values.items(), *unread)
    if key not in facts.memo:
        # Most turns add nothing to what a belief depends on.
        if len(facts.memo) >= _MOST_REMEMBERED:
            facts.memo.clear()
        extended = replace(facts, variables={**facts.variables, **unread}) if unread else facts
        statements = [(who, dict(items)) for who, items in stories]
        facts.memo[key] = _posterior(extended, values, statements, lies, learns)
    beliefs: Beliefs = facts.memo[key]
    return beliefs


def _posterior(
    facts: SeatFacts, values: Values, statements: Sequence[tuple[str, Values]], lies: float | None, learns: bool
) -> Beliefs:
    if lies is None or not statements:
        return facts.beliefs(values)
    result = prior(facts.variables.values(), (), values)
    for name in result.keys() - values.keys():
        result[name] = _on_statements(result[name], [values[name] for _, values in statements if name in values], lies)
    for deal, ways in facts.worlds(values):
        # Where seats learn more as the game goes on, what they knew at the start does not limit what they can tell.
        chance = partial(_truth, deal) if learns else partial(_likelihood, facts, deal)
        weights = [math.prod([chance(way, item, lies) for item in statements]) for way in ways]
        # Statements that no world admits, of speakers of another kind, say nothing.
        total = sum(weights) or float(len(ways))
        shares = [weight / total for weight in weights] if any(weights) else [1 / total] * len(ways)
        for name in deal.variables:
            options = facts.variables[name].options
            result[name] = dict.fromkeys(options, 0.0)
            for way, share in zip(ways, shares, strict=True):
                result[name][way[name]] += share
    return result


def _on_statements(belief: dict[str, float], values: Sequence[str], lies: float) -> dict[str, float]:
    """The belief on a variable without a deal after these values of it were stated."""
    rest = lies / max(1, len(belief) - 1)
    weights = {
        option: share * math.prod([1 - lies if option == value else rest for value in values])
        for option, share in belief.items()
    }
    total = sum(weights.values())
    return {option: weight / total for option, weight in weights.items()} if total else belief


def _likelihood(facts: SeatFacts, deal: Deal, way: Values, statement: tuple[str, Values], lies: float) -> float:
    """The probability that a speaker states this in a world, as far as it is about the variables of a deal."""
    agent, values = statement
    part = {name: value for name, value in values.items() if name in deal.variables}
    if not part:
        return 1.0
    briefings = facts.briefings(deal, agent)
    honest = part.items() <= briefings[deal.ways.index(way)].items()
    if not lies:
        return float(honest)
    pretended = pretences(facts, deal, way, agent)
    false = sum(part.items() <= other.items() for other in pretended) / (len(pretended) or 1)
    return (1 - lies) * honest + lies * false


def _truth(deal: Deal, way: Values, statement: tuple[str, Values], lies: float) -> float:
    """The probability of a statement in a world if each is true with probability 1 - ``lies``."""
    values = [(name, value) for name, value in statement[1].items() if name in deal.variables]
    return 1.0 if not values else (1 - lies if all(way[name] == value for name, value in values) else lies)


def pretences(facts: SeatFacts, deal: Deal, way: Values, agent: str) -> tuple[Values, ...]:
    """Returns what a liar may state in this world, each as likely: what it would know if it were somebody else.

    Of the worlds in which its own values are others, it takes those in which it would know most: in Mini-Mafia a
    mafioso claims to be the detective, who accuses either of the others.
    """
    own = [name for name in deal.variables if facts.variables[name].of == agent]
    briefings = zip(deal.ways, facts.briefings(deal, agent), strict=True)
    others = [values for other, values in briefings if any(other[name] != way[name] for name in own)]
    most = max(map(len, others), default=0)
    return tuple(values for values in others if len(values) == most)
