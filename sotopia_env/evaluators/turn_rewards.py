"""Rewards of single turns of an episode with a verified outcome, measured and not guessed.

Two methods, both for one seat:

* :func:`standing_rewards` is exact and costs no play. It is the change, from one of the seat's turns to its next, of
  what the seat has *secured*: the verified reward that its own next move can obtain at once, by accepting an open offer
  that needs no other assent or by the vote that decides a ballot. It is a potential (Ng et al., 1999): the rewards of
  an episode sum to its final reward minus what had been secured before the seat's first turn.
* :func:`counterfactual_rewards` is unbiased and plays on (:func:`state_values`): the seat's expected reward after the
  turn minus that before it, by continuations from both states (as VinePPO does for reasoning steps, arXiv 2410.01679).
  It measures an action against those that the seat's policy would take instead, so it is exactly 0 where the policy
  draws nothing and took its own action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from sotopia_env.evaluators.verified import scores_of_share
from sotopia_env.foundation.errors import InvalidValueError, check_whole
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.dynamics import Turn, final_table
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.outcome import outcome_at, outcome_of
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.reward import DIMENSIONS, Dimension, Scalarisation, reward_vector
from sotopia_env.world.scenario import Task

GOAL = Scalarisation(weights={Dimension.GOAL: 1.0})
"""The default reward of the environments: GOAL mapped to [0, 1]."""


@dataclass(frozen=True, slots=True)
class TurnRewards:
    """The rewards of a seat's own turns.

    Attributes:
        method: ``standing`` or ``counterfactual``.
        by_turn: the reward of each own turn, by the turn's index in the episode.
        errors: the standard error of each reward; 0 where it is exact, ``None`` where one continuation was played.
        baseline: what the seat had before its first turn.
        episodes: the number of continuations behind the rewards.
    """

    method: str
    by_turn: Mapping[int, float]
    errors: Mapping[int, float | None]
    baseline: float = 0.0
    episodes: int = 0

    @property
    def values(self) -> tuple[float, ...]:
        """The rewards in the order of the turns."""
        return tuple(self.by_turn[turn] for turn in sorted(self.by_turn))


def secured(task: Task, turns: Sequence[Turn], agent: str, scalarisation: Scalarisation = GOAL) -> float:
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
    """Returns the change of what ``agent`` has secured, from each of its turns to its next or to the end.

    So a turn is paid for what it brings about before the seat acts again, the answers of the others included. In a
    simultaneous round, the moves of the whole round are between two turns of a seat.

    Raises:
        InvalidValueError: the task has no outcome, or moves do not determine the reward.
    """
    task, turns, own = episode.task, episode.plain_turns, _own_turns(episode, agent)
    values = [secured(task, turns[:turn], agent, scalarisation) for turn in own]
    if episode.stop is None and not episode.evaluations:
        values.append(secured(task, turns, agent, scalarisation))
    else:  # an offer that is open at the end, or when an unfinished episode is evaluated, is worth nothing any more
        values.append(_reward(outcome_of(task, turns).shares[task.seat_of[agent]], scalarisation))
    by_turn = {turn: after - before for turn, before, after in zip(own, values, values[1:], strict=False)}
    return TurnRewards("standing", by_turn, dict.fromkeys(by_turn, 0.0), values[0])


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
        for state in sorted({*own, *(turn + 1 for turn in own)})
    }
    gains = {turn: _gains(rewards[turn], rewards[turn + 1]) for turn in own}
    return TurnRewards(
        "counterfactual",
        {turn: fmean(values) for turn, values in gains.items()},
        {turn: stdev(values) / len(values) ** 0.5 if values[1:] else None for turn, values in gains.items()},
        fmean(rewards[own[0]]) if own else 0.0,
        sum(len(values) for values in rewards.values()),
    )


def _gains(before: Sequence[float], after: Sequence[float]) -> list[float]:
    # Equal draws make pairs, whose differences vary less. The end of an episode has one value: nothing is drawn there.
    return [last - first for first, last in zip(before, after if after[1:] else [*after] * len(before), strict=True)]


def _own_turns(episode: Episode, agent: str) -> list[int]:
    return [turn.index for turn in episode.plain_turns if turn.actor == agent]


def _reward(share: float, scalarisation: Scalarisation) -> float:
    if scalarisation.share:
        return share
    scores = scores_of_share(share)
    unknown = [dimension.value for dimension in scalarisation.dimensions if dimension not in scores]
    if unknown:
        expected = "the share, or dimensions that moves determine (goal, financial_and_material_benefits)"
        raise InvalidValueError(field="scalarisation", expected=expected, got=unknown)
    return scalarisation(reward_vector({**dict.fromkeys(DIMENSIONS, 0.0), **scores}))
