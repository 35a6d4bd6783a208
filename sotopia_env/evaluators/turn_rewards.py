"""Turn rewards: the change that one turn makes to what a seat has, measured and not guessed.

One noun for each thing, here and in every module that pays for turns:

* A *state* is the record of an episode up to some turn (:meth:`sotopia_env.world.Episode.before`).
* The *standing* of a seat in a state is the verified reward that its own next move can obtain at once, by accepting an
  open offer that needs no other assent or by the vote that decides a ballot.
* A *continuation* is one play from a state to the end (:mod:`sotopia_env.world.play.continuations`).
* The *state value* of a seat is its expected reward when its policies play on: the mean of continuations.
* A *turn reward* is what the seat has in a state after the turn minus what it has in the state before it.
* An *attribution* divides the score of an episode among its turns by a rule or a model, by the *importance* of each
  turn (:mod:`sotopia_training.attribution`). An attributor may take turn rewards as importance.

There are three kinds of turn rewards, all for one seat:

==============  ========================================  ==============================================================
kind            from the state before the turn to         properties
==============  ========================================  ==============================================================
standing        the state before the seat's next turn     exact, costs no play; a potential (Ng et al., 1999): the
                                                          rewards of an episode sum to its final reward minus the first
                                                          standing
counterfactual  the state after the turn, or before the   unbiased, costs continuations (as VinePPO does for reasoning
                seat's next turn                          steps, arXiv 2410.01679); compares an action with those that
                                                          the seat's policy would take instead, so it is exactly 0 where
                                                          the policy draws nothing and took its own action
belief          the state after the turn                  what *others* believe, by probes after every turn; exact where
                                                          their beliefs are. It pays for speaking; silence gets 0. If
                                                          the others are Bayesian and know the speakers' strategies,
                                                          the mean change of belief in a fixed option is 0 (a
                                                          martingale), and of that in the truth not negative
==============  ========================================  ==============================================================
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

from sotopia_env.evaluators.verified import scores_of_share
from sotopia_env.foundation.errors import InvalidValueError, Verbatim, check_whole
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.answers import Belief
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.outcome import outcome_at, outcome_of
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.reward import DIMENSIONS, Dimension, Scalarisation, reward_vector
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import final_table

GOAL = Scalarisation(weights={Dimension.GOAL: 1.0})
"""The default reward of the environments: GOAL mapped to [0, 1]."""


@dataclass(frozen=True, slots=True)
class TurnRewards:
    """The rewards of a seat's own turns.

    Attributes:
        kind: ``standing``, ``counterfactual`` or ``belief``.
        by_turn: the reward of each own turn, by the turn's index in the episode.
        errors: the standard error of each reward; 0 where it is exact, ``None`` where continuations make no pairs or
            only one.
        baseline: what the seat had before its first turn.
        episodes: the number of continuations behind the rewards.
    """

    kind: Literal["standing", "counterfactual", "belief"]
    by_turn: Mapping[int, float]
    errors: Mapping[int, float | None]
    baseline: float = 0.0
    episodes: int = 0

    @property
    def values(self) -> tuple[float, ...]:
        """The rewards in the order of the turns."""
        return tuple(self.by_turn[turn] for turn in sorted(self.by_turn))


# --- after minus before -------------------------------------------------------------------------------------------


def until_next(turns: Iterable[int], end: int) -> dict[int, int]:
    """Returns the state before the next of a seat's turns, or ``end``, by the state before each turn.

    Args:
        turns: the indices of the seat's turns, in their order.
        end: the number of turns of the last state.
    """
    return dict(pairwise([*turns, end]))


def changes(values: Mapping[int, float], spans: Mapping[int, int]) -> dict[int, float]:
    """Returns the value after each turn minus that before it, by the turn's index.

    Args:
        values: the value of each state, by its number of turns.
        spans: the state after each turn, by the state before it, which has as many turns as the turn's index.
    """
    return {before: values[after] - values[before] for before, after in spans.items()}


def paired_changes(before: Sequence[float], after: Sequence[float]) -> tuple[float, ...] | None:
    """Returns the change in each pair of continuations; ``None`` if two states have different numbers of them.

    Continuations with equal draws make pairs, whose differences vary less than the rewards themselves.
    """
    ends = _repeated(after, len(before))
    return tuple(map(operator.sub, ends, before)) if len(ends) == len(before) else None


def measured_rewards(samples: Mapping[int, Sequence[float]], spans: Mapping[int, int]) -> TurnRewards:
    """Returns counterfactual rewards from the rewards of continuations.

    Args:
        samples: the seat's rewards in the continuations of each state, at least one, by the state's number of turns.
        spans: as for :func:`changes`.
    """
    before = {turn: fmean(samples[turn]) for turn in spans}
    after = {turn: fmean(_repeated(samples[end], len(samples[turn]))) for turn, end in spans.items()}
    return TurnRewards(
        "counterfactual",
        {turn: after[turn] - before[turn] for turn in spans},
        {turn: _error(samples[turn], samples[end]) for turn, end in spans.items()},
        before[min(before)] if before else 0.0,
        sum(len(samples[state]) for state in {*spans, *spans.values()}),
    )


def _repeated(rewards: Sequence[float], count: int) -> Sequence[float]:
    # The end of an episode has one reward, which every continuation would repeat: nothing is drawn there.
    return [*rewards] * count if len(rewards) == 1 else rewards


def _error(before: Sequence[float], after: Sequence[float]) -> float | None:
    pairs = paired_changes(before, after)
    return stdev(pairs) / len(pairs) ** 0.5 if pairs is not None and len(pairs) > 1 else None


# --- the three kinds ----------------------------------------------------------------------------------------------


def standing(task: Task, turns: Sequence[Turn], agent: str, scalarisation: Scalarisation = GOAL) -> float:
    """Returns the verified reward that the next move of ``agent`` can obtain at once, or that of no agreement.

    Offers that the agent does not see, and moves that need another seat's assent, do not count. Once the table is
    settled, it is the agent's reward. No seat can know which claim is right, so claims count when they are made.

    Args:
        task: the task.
        turns: the turns so far.
        agent: the seat.
        scalarisation: how the reward is computed, from GOAL, FIN or the share; by default GOAL in [0, 1].

    Raises:
        InvalidValueError: the task has no outcome, the turns are not of this task, or moves do not determine the
            reward.
    """
    protocol, seat = task.protocol, task.seat_of[agent]
    settled = outcome_of(task, turns)  # raises where there is none
    assert protocol is not None
    table, _ = final_table(task, turns)
    if protocol.settled(table):
        return _reward(settled.shares[seat], scalarisation)
    menu = protocol.menu(table, agent)
    moves = [Move(MoveKind.ACCEPT, number) for number in menu.accept] + [
        Move(MoveKind.VOTE, option) for option in menu.vote
    ]
    after = (protocol.apply(table, agent, move, task.agents, table)[0] for move in moves)
    outcomes = (outcome_at(task, end, len(turns) + 1) for end in after if protocol.settled(end))
    shares = [0.0, *(outcome.shares[seat] for outcome in outcomes)]
    return max(_reward(share, scalarisation) for share in shares)


def standing_rewards(episode: Episode, agent: str, scalarisation: Scalarisation = GOAL) -> TurnRewards:
    """Returns the change of the standing of ``agent``, from each of its turns to its next or to the end.

    A turn's reward includes the other seats' answers to it. In a simultaneous round, the moves of the whole round are
    between two turns of a seat.

    Raises:
        InvalidValueError: the task has no outcome, or moves do not determine the reward.
    """
    task, turns, own = episode.task, episode.plain_turns, _own_turns(episode, agent)
    values = {turn: standing(task, turns[:turn], agent, scalarisation) for turn in own}
    end = len(turns)
    if episode.stop is None and not episode.evaluations:
        values[end] = standing(task, turns, agent, scalarisation)
    else:  # an offer that is open at the end, or when an unfinished episode is evaluated, is worth nothing any more
        values[end] = _reward(outcome_of(task, turns).shares[task.seat_of[agent]], scalarisation)
    by_turn = changes(values, until_next(own, end))
    return TurnRewards("standing", by_turn, dict.fromkeys(by_turn, 0.0), values[min(values)])


async def state_values(
    episode: Episode, continuations: Continuations, samples: int = 8, agent: str | None = None
) -> dict[int, tuple[Evaluation, ...]]:
    """Returns the evaluations of continuations from the states of an episode, by the number of turns of the state.

    Cost: ``samples`` episodes for each state, each from there to its end. An episode of T turns has T + 1 states; those
    of all seats together cost half as much as seat by seat, because a state after one seat's turn is before another's.

    Args:
        episode: a recorded episode.
        continuations: plays on from states, and evaluates. Continuation k has equal random draws in all of them.
        samples: the number of continuations of each state; 2 or more for standard errors.
        agent: leaves out the states that are not before or after a turn of this seat.

    Raises:
        InvalidValueError: ``samples`` is not positive, or a recorded policy cannot be made again.
        SotopiaError: a policy or the evaluator failed.
    """
    check_whole("samples", samples, 1)
    own = range(len(episode.turns)) if agent is None else _own_turns(episode, agent)
    states = sorted({*own, *(turn + 1 for turn in own)})
    ends = await all_at_once(continuations.samples(episode.before(end), samples) for end in states)
    return {state: tuple(item.evaluations[-1] for item in played) for state, played in zip(states, ends, strict=True)}


def counterfactual_rewards(
    episode: Episode,
    agent: str,
    values: Mapping[int, Sequence[Evaluation]],
    scalarisation: Scalarisation = GOAL,
) -> TurnRewards:
    """Returns, for each turn of ``agent``, the mean reward of continuations after it minus that before it.

    Args:
        episode: the recorded episode.
        agent: the seat.
        values: those of :func:`state_values`.
        scalarisation: how scores become a reward; by default GOAL in [0, 1].

    Raises:
        InvalidValueError: a continuation lacks a score that the reward needs.
    """
    own = _own_turns(episode, agent)
    rewards = {
        state: [float(scalarisation(item.vector(agent, scalarisation.dimensions))) for item in values[state]]
        for state in {*own, *(turn + 1 for turn in own)}
    }
    return measured_rewards(rewards, {turn: turn + 1 for turn in own})


def belief_rewards(episode: Episode, agent: str, beliefs: Sequence[Belief] | None = None) -> TurnRewards:
    """Returns the change of what the others believe over each turn of ``agent``.

    What the seat has in a state is the mean probability that the answers of the other seats give to the true value of a
    variable, or, if the task declares ``aims`` for the seat, to the option that it wants them to believe in; other
    variables then do not count. The mean is over the questions to *all* seats, so that the rewards of all seats add up
    to the change of the mean belief, except for what a turn changed in its own speaker, which nobody is paid for. A
    question with a missing answer at any moment is left out.

    Args:
        episode: an episode in a turn order in which seats see one turn after the other.
        agent: the seat.
        beliefs: those before the first and after every turn; by default the latest such in the episode's evaluations
            (evaluator ``facts:probe=turns``).

    Raises:
        InvalidValueError: there are no such beliefs, no other seat has answered, or seats act at once, so that a change
            is not due to one turn.
    """
    if episode.rules.turn_order.veiled:
        order = episode.rules.turn_order.value
        raise InvalidValueError(field="turn_order", expected="one in which seats act one after the other", got=order)
    answers = _probed(episode) if beliefs is None else beliefs
    if not any(belief.shares and belief.respondent != agent for belief in answers):
        raise InvalidValueError(
            field="beliefs",
            expected="answers of other seats before the first and after every turn",
            got=Verbatim("none"),
            hint="evaluate the episode with 'facts:probe=turns'; name a policy that answers with 'interviewee=POLICY'",
        )
    courses, targets = _courses(answers, len(episode.turns)), _targets(episode.task, agent)
    # None are left if the others know all that counts from the start: then no turn can change anything.
    facts = episode.task.scenario.facts
    # A coming choice has no truth yet that a turn could bring others nearer to.
    courses = {key: course for key, course in courses.items() if facts is not None and key[1] in facts.truth}
    others = [(name, course) for (seat, name), course in courses.items() if seat != agent and name in targets]
    total, own = max(1, len(courses)), _own_turns(episode, agent)
    values = {
        state: sum((belief[state].probabilities or {})[targets[name]] for name, belief in others) / total
        for state in range(len(episode.turns) + 1)
    }
    errors = {
        turn: sum(belief[state].error(targets[name]) ** 2 for name, belief in others for state in (turn, turn + 1))
        ** 0.5
        / total
        for turn in own
    }
    by_turn = changes(values, {turn: turn + 1 for turn in own})
    return TurnRewards("belief", by_turn, errors, values[min(own, default=0)])


def _probed(episode: Episode) -> tuple[Belief, ...]:
    """The latest beliefs that were asked for after every turn; empty without any."""
    records = (evaluation.beliefs for evaluation in reversed(episode.evaluations))
    return next((beliefs for beliefs in records if {b.turns for b in beliefs} >= {*range(len(episode.turns) + 1)}), ())


def _courses(beliefs: Iterable[Belief], end: int) -> dict[tuple[str, str], dict[int, Belief]]:
    """The answers to each question by moment, without control questions and those that were not always answered."""
    courses: dict[tuple[str, str], dict[int, Belief]] = {}
    for belief in beliefs:
        if belief.probabilities is not None and not belief.control:
            courses.setdefault((belief.respondent, belief.variable), {})[belief.turns] = belief
    return {question: course for question, course in courses.items() if len(course) == end + 1}


def _targets(task: Task, agent: str) -> dict[str, str]:
    """By variable, the option of which a seat's turns are to convince the others."""
    facts = task.scenario.facts
    if facts is None:
        return {}
    aims = {variable.name: variable.aims[agent] for variable in facts.variables if agent in variable.aims}
    return aims or dict(facts.truth)


def _own_turns(episode: Episode, agent: str) -> list[int]:
    return [turn.index for turn in episode.plain_turns if turn.actor == agent]


def is_determined(scalarisation: Scalarisation) -> bool:
    """Whether the reward follows from the outcome of moves: the share, GOAL, FIN, or weights of these."""
    return scalarisation.share or scores_of_share(0.0).keys() >= set(scalarisation.dimensions)


def _reward(share: float, scalarisation: Scalarisation) -> float:
    if scalarisation.share:
        return share
    scores = scores_of_share(share)
    unknown = [dimension.value for dimension in scalarisation.dimensions if dimension not in scores]
    if unknown:
        expected = "the share, or dimensions that moves determine (goal, financial_and_material_benefits)"
        raise InvalidValueError(field="scalarisation", expected=expected, got=unknown)
    return scalarisation(reward_vector({**dict.fromkeys(DIMENSIONS, 0.0), **scores}))
