"""Measures of how a seat played, from its moves alone.

Shares are on the seat's own scale: 0 is what no agreement is worth to it (its reservation value), 1 the best outcome
that the others could accept. An offer above 1 asks for more than that.

=====================  ================================================================================================
``opening``            share of its first offer
``reservation_shown``  1 minus the share of its lowest offer: 0 if it only asked for its best outcome, 1 if its offers
                       went down to its reservation value, which is then the best estimate of anybody who saw them
``reservation_error``  distance between the reservation value and its estimate by an observer of the offers, who fits a
                       curve of concession to them (:func:`reservation_estimate`): small if it leaked. Only with three
                       offers or more
``interests_shown``    correlation, over outcomes, of the seat's worths with those that a frequency model
                       (:class:`~sotopia_env.policies.negotiators.opponents.FrequencyModel`) estimates from its offers
``dominated``          whether the agreement is worse for one seat, and better for none, than another outcome
``value_left``         1 minus the joint efficiency
``turns``              turns of the episode
``said_otherwise``     of a seat that agreed in words: whether its next move was not for these terms, and nobody settled
                       them. Only if a model has read the words (``sotopia evaluate RUN --evaluator
                       spoken-outcome:MODEL:words_only=true``)
``disclosure``         share of the questions on its private information that the others answered right afterwards, and
``discovery``          share of those on the others' that it answered right itself; a missing answer is wrong. Only with
                       an interview (``sotopia evaluate RUN --evaluator interview``) in tasks with such questions
=====================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import numpy as np

from sotopia_env.arena.leakage import reservation_estimate
from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.outcomes.space import OPTION, Terms
from sotopia_env.outcomes.specification import worth_value
from sotopia_env.policies.negotiators.bidding import EPSILON, Ranking
from sotopia_env.policies.negotiators.opponents import FrequencyModel
from sotopia_env.world.episode import Episode
from sotopia_env.world.outcome import references
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import final_table

PROCESS = (
    "opening",
    "reservation_shown",
    "reservation_error",
    "interests_shown",
    "dominated",
    "value_left",
    "turns",
    "said_otherwise",
    "disclosure",
    "discovery",
)
"""The measures of :func:`process`."""
_COMPARED = 200  # outcomes over which interests are compared


def process(episode: Episode) -> dict[str, dict[str, float]]:
    """Returns the measures of every seat by agent; those that do not apply to the task or the episode are absent."""
    outcome = next((e.outcome for e in reversed(episode.evaluations) if e.outcome is not None), None)
    common = {"turns": float(len(episode.turns)), **_of_outcome(episode.task, outcome)}
    words, interview = _said_otherwise(episode, outcome), _of_interview(episode)
    return {
        agent: {**common, **_of_offers(episode, agent), **words.get(agent, {}), **interview.get(agent, {})}
        for agent in episode.task.agents
    }


def _said_otherwise(episode: Episode, outcome: OutcomeResult | None) -> Mapping[str, Mapping[str, float]]:
    """The measure of the seats that agreed in words, as a model has read them."""
    spoken = next((e.agreement for e in reversed(episode.evaluations) if e.agreement is not None), None)
    if spoken is None or outcome is None or not spoken.agreed:
        return {}
    terms = dict(spoken.terms)
    settled = outcome.agreed and dict(outcome.terms) == terms
    return {
        agent: {"said_otherwise": float(not settled and not _assents(episode, agent, number - 1, terms))}
        for agent, number in spoken.turns.items()
    }


def _assents(episode: Episode, agent: str, start: int, terms: Terms) -> bool:
    """Whether the first move of a seat from a turn on is for these terms; not, if it makes no move."""
    turns = episode.plain_turns
    own = ((t.index, t.action.move) for t in turns[start:] if t.actor == agent)
    moves = ((index, move.binding) for index, move in own if move is not None)
    index, move = next(((index, move) for index, move in moves if move is not None), (0, None))
    if move is None:
        return False
    if move.kind is MoveKind.ACCEPT:
        table, _ = final_table(episode.task, turns[:index])
        return any(offer.number == move.content and dict(offer.terms) == terms for offer in table.offers)
    return bool(move.content == (terms.get(OPTION) if move.kind is MoveKind.VOTE else terms))


def _of_interview(episode: Episode) -> Mapping[str, Mapping[str, float]]:
    """The shares of right answers about a seat and by a seat, in the latest interview on private information."""
    interviews = ([a for a in e.answers if a.view is None and a.asked] for e in reversed(episode.evaluations))
    answers = next(filter(None, interviews), [])
    shares: dict[str, dict[str, float]] = {}
    for agent in episode.task.agents:
        about = [float(answer.value is True) for answer in answers if answer.about == agent]
        by = [float(answer.value is True) for answer in answers if answer.respondent == agent]
        pairs = (("disclosure", about), ("discovery", by))
        shares[agent] = {name: fmean(values) for name, values in pairs if values}
    return shares


def _of_outcome(task: Task, outcome: OutcomeResult | None) -> Mapping[str, float]:
    if outcome is None:
        return {}
    left = {"value_left": 1 - outcome.efficiency}
    spec = task.scenario.resolved_outcome
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
    offers: dict[int, Terms] = {
        number: turn.action.move.content
        for number, turn in enumerate(turns)
        if turn.action.move is not None and turn.action.move.kind is MoveKind.PROPOSE and turn.violation is None
    }
    seat, points = task.seat_of[agent], references(task)
    best, nothing = points.best[seat], points.disagreement[seat]
    if not offers or best <= nothing:
        return {}
    ranking = _ranking(task, agent)
    worst, *shares = [
        (worth_value(spec, seat, terms) - nothing) / (best - nothing)
        for terms in (ranking.terms(len(ranking.utilities) - 1), *offers.values())
    ]
    times = [min(1.0, number / _last_turn(episode)) for number in offers]
    estimate = reservation_estimate(times, shares, worst)
    optional = {
        # On this scale the reservation value is 0.
        "reservation_error": None if estimate is None else abs(estimate),
        "interests_shown": _interests_shown(ranking, list(offers.values())),
    }
    present = {name: value for name, value in optional.items() if value is not None}
    return {"opening": shares[0], "reservation_shown": 1 - min(shares), **present}


def _last_turn(episode: Episode) -> int:
    """The number, from 0, of a seat's last turn before the deadline, if the seats share the turns equally."""
    limit, seats = episode.rules.turn_limit(episode.task), len(episode.task.agents)
    rounds = episode.rules.max_rounds if limit is None else limit // seats
    return max(1, (rounds or 1) - 1)


def _ranking(task: Task, agent: str) -> Ranking:
    key = f"ranking of {agent}"
    if key not in task.memo:
        spec = task.scenario.outcome
        assert spec is not None
        task.memo[key] = Ranking(spec.space(task.names), spec.worth[task.seat_of[agent]], agent)
    ranking: Ranking = task.memo[key]
    return ranking


def _interests_shown(ranking: Ranking, offers: list[Terms]) -> float | None:
    rows = np.unique(np.linspace(0, len(ranking.utilities) - 1, _COMPARED).astype(np.intp))
    true, estimated = ranking.utilities[rows], FrequencyModel(ranking, offers).scores(rows)
    if min(np.ptp(true), np.ptp(estimated)) < EPSILON:
        return None
    return float(np.corrcoef(true, estimated)[0, 1])
