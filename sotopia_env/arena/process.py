"""Measures of how a seat played, from its moves alone.

Shares are on the seat's own scale: 0 is what no agreement is worth to it (its reservation value), 1 the best outcome
that the others could accept. An offer above 1 asks for more than that.

=====================  ================================================================================================
``opening``            share of its first offer
``reservation_shown``  1 minus the share of its lowest offer: 0 if it only asked for its best outcome, 1 if its offers
                       went down to its reservation value, which is then the best estimate of anybody who saw them
``interests_shown``    correlation, over outcomes, of the seat's worths with those that a frequency model
                       (:class:`~sotopia_env.policies.FrequencyModel`) estimates from its offers
``dominated``          whether the agreement is worse for one seat, and better for none, than another outcome
``value_left``         1 minus the joint efficiency
``turns``              turns of the episode
``said_otherwise``     of a seat that agreed in words: whether its moves did not settle these terms. Only if a model has
                       read the words (``sotopia evaluate RUN --evaluator spoken-outcome:MODEL``)
=====================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sotopia_env.outcomes import MoveKind, OutcomeResult, Terms, worth_value
from sotopia_env.policies import FrequencyModel
from sotopia_env.policies.negotiators.bidding import EPSILON, Ranking
from sotopia_env.world.episode import Episode
from sotopia_env.world.outcome import references
from sotopia_env.world.scenario import Task

PROCESS = ("opening", "reservation_shown", "interests_shown", "dominated", "value_left", "turns", "said_otherwise")
"""The measures of :func:`process`."""
_COMPARED = 200  # outcomes over which interests are compared


def process(episode: Episode) -> dict[str, dict[str, float]]:
    """Returns the measures of every seat by agent; those that do not apply to the task or the episode are absent."""
    outcome = next((e.outcome for e in reversed(episode.evaluations) if e.outcome is not None), None)
    common = {"turns": float(len(episode.turns)), **_of_outcome(episode.task, outcome)}
    words = _said_otherwise(episode, outcome)
    return {agent: {**common, **_of_offers(episode, agent), **words.get(agent, {})} for agent in episode.task.agents}


def _said_otherwise(episode: Episode, outcome: OutcomeResult | None) -> Mapping[str, Mapping[str, float]]:
    """The measure of the seats that agreed in words, as a model has read them."""
    spoken = next((e.agreement for e in reversed(episode.evaluations) if e.agreement is not None), None)
    if spoken is None or outcome is None or not spoken.agreed:
        return {}
    otherwise = not outcome.agreed or dict(outcome.terms) != dict(spoken.terms)
    return {agent: {"said_otherwise": float(otherwise)} for agent in spoken.turns}


def _of_outcome(task: Task, outcome: OutcomeResult | None) -> Mapping[str, float]:
    if outcome is None:
        return {}
    left = {"value_left": 1 - outcome.efficiency}
    spec = task.scenario.outcome
    if not outcome.agreed or spec is None or spec.protocol.kind == "claims":
        return left
    payoffs = np.array([worth_value(spec, seat, outcome.terms) for seat in range(len(task.agents))])
    frontier = np.array(references(task).frontier)
    better = (frontier >= payoffs - EPSILON).all(axis=1) & (frontier > payoffs + EPSILON).any(axis=1)
    return {**left, "dominated": float(better.any())}


def _of_offers(episode: Episode, agent: str) -> Mapping[str, float]:
    """The measures of a seat's offers in an agreement."""
    task, spec = episode.task, episode.task.scenario.outcome
    if spec is None or spec.protocol.kind != "agreement":
        return {}
    turns = [item.turn for item in episode.turns if item.turn.actor == agent]
    moves = [turn.action.move for turn in turns if turn.action.move is not None and turn.violation is None]
    offers: list[Terms] = [move.content for move in moves if move.kind is MoveKind.PROPOSE]
    if not offers:
        return {}
    seat, points = task.seat_of[agent], references(task)
    best, nothing = points.best[seat], points.disagreement[seat]
    if best <= nothing:
        return {}
    shares = [(worth_value(spec, seat, terms) - nothing) / (best - nothing) for terms in offers]
    measures = {"opening": shares[0], "reservation_shown": 1 - min(shares)}
    correlation = _interests_shown(task, agent, offers)
    return measures if correlation is None else {**measures, "interests_shown": correlation}


def _interests_shown(task: Task, agent: str, offers: list[Terms]) -> float | None:
    key = f"ranking of {agent}"
    if key not in task.memo:
        spec = task.scenario.outcome
        assert spec is not None
        task.memo[key] = Ranking(spec.space(task.names), spec.worth[task.seat_of[agent]], agent)
    ranking: Ranking = task.memo[key]
    rows = np.unique(np.linspace(0, len(ranking.utilities) - 1, _COMPARED).astype(np.intp))
    true, estimated = ranking.utilities[rows], FrequencyModel(ranking, offers).scores(rows)
    if min(np.ptp(true), np.ptp(estimated)) < EPSILON:
        return None
    return float(np.corrcoef(true, estimated)[0, 1])
