"""Rewards of single turns of an episode with a verified outcome, measured and not guessed.

Two methods, both for one seat:

* :func:`standing_rewards` is exact and costs no play. It is the change, from one of the seat's turns to its next, of
  what the seat has *secured*: the verified reward that its own next move can obtain at once, by accepting an open offer
  that needs no other assent or by the vote that decides a ballot. It is a potential (Ng et al., 1999): the rewards of
  an episode sum to its final reward minus what had been secured before the seat's first turn.
* :func:`counterfactual_rewards` is unbiased and plays on: the seat's expected reward after the turn minus that before
  it, by continuations from both states (as VinePPO does for reasoning steps, arXiv 2410.01679).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sotopia_env.continuations import Continuations
from sotopia_env.errors import InvalidValueError
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.waiting import all_at_once
from sotopia_env.world.dynamics import Turn, final_table
from sotopia_env.world.episode import Episode
from sotopia_env.world.outcome import outcome_at, outcome_of
from sotopia_env.world.reward import Dimension, Scalarisation
from sotopia_env.world.scenario import Task

GOAL = Scalarisation(weights={Dimension.GOAL: 1.0})
"""The default reward of the environments: GOAL mapped to [0, 1]."""


@dataclass(frozen=True, slots=True)
class TurnRewards:
    """The rewards of a seat's own turns.

    Attributes:
        method: ``standing`` or ``counterfactual``.
        by_turn: the reward of each own turn, by the turn's index in the episode.
        errors: the standard error of each reward; 0 where it is exact.
        baseline: what the seat had before its first turn.
        episodes: the number of continuations that were played.
    """

    method: str
    by_turn: Mapping[int, float]
    errors: Mapping[int, float]
    baseline: float = 0.0
    episodes: int = 0

    @property
    def values(self) -> tuple[float, ...]:
        """The rewards in the order of the turns."""
        return tuple(self.by_turn[turn] for turn in sorted(self.by_turn))


def secured(task: Task, turns: Sequence[Turn], agent: str) -> float:
    """Returns the verified reward in [0, 1] that the next move of ``agent`` can obtain at once; 0 if there is none.

    Offers that the agent does not see, and moves that need somebody else's assent, do not count. Once the table is
    settled, it is the agent's reward, and it is never below 0, the reward without an agreement. Which claim would be
    right is known to nobody at the table, so claims count when they are made.

    Raises:
        InvalidValueError: the task has no outcome, or the turns are not of this task.
    """
    protocol, seat = task.protocol, task.seat_of[agent]
    settled = outcome_of(task, turns)  # raises where there is none
    assert protocol is not None
    table, _ = final_table(task, turns)
    if protocol.settled(table):
        return _reward(settled.shares[seat])
    menu = protocol.menu(table, agent)
    moves = [Move(MoveKind.ACCEPT, number) for number in menu.accept] + [
        Move(MoveKind.VOTE, option) for option in menu.vote
    ]
    after = (protocol.apply(table, agent, move, task.agents, table)[0] for move in moves)
    outcomes = (outcome_at(task, end, len(turns) + 1) for end in after if protocol.settled(end))
    return max((_reward(outcome.shares[seat]) for outcome in outcomes), default=0.0)


def standing_rewards(episode: Episode, agent: str) -> TurnRewards:
    """Returns the change of what ``agent`` has secured, from each of its turns to its next or to the end.

    So a turn is paid for what it brings about before the seat acts again, the answers of the others included. In a
    simultaneous round, the moves of the whole round are between two turns of a seat.

    Raises:
        InvalidValueError: the task has no outcome.
    """
    task, turns, own = episode.task, episode.plain_turns, _own_turns(episode, agent)
    values = [secured(task, turns[:turn], agent) for turn in own]
    if episode.stop is None:
        values.append(secured(task, turns, agent))
    else:  # an offer that is open at the end is worth nothing any more
        values.append(_reward(outcome_of(task, turns).shares[task.seat_of[agent]]))
    by_turn = {turn: after - before for turn, before, after in zip(own, values, values[1:], strict=False)}
    return TurnRewards("standing", by_turn, dict.fromkeys(by_turn, 0.0), values[0])


async def counterfactual_rewards(
    episode: Episode, agent: str, continuations: Continuations, samples: int = 8, scalarisation: Scalarisation = GOAL
) -> TurnRewards:
    """Returns, for each turn of ``agent``, the mean reward of continuations after it minus that before it.

    Continuation k has equal random draws in both states, so errors are of paired differences. The cost is at most
    ``2 · samples`` episodes a turn, each from that turn to its end.

    Args:
        episode: a recorded episode.
        agent: the seat.
        continuations: plays on from states, and evaluates.
        samples: the number of continuations of each state; 2 or more for standard errors.
        scalarisation: how scores become a reward; by default GOAL in [0, 1].

    Raises:
        InvalidValueError: ``samples`` is not positive, or a recorded policy cannot be made again.
        SotopiaError: a policy or the evaluator failed.
    """
    if samples < 1:
        raise InvalidValueError(field="samples", expected="at least 1", got=samples)
    own = _own_turns(episode, agent)
    states = {end: episode.before(end) for end in sorted({*own, *(turn + 1 for turn in own)})}
    draws = {end: range(1 if state.stop is not None else samples) for end, state in states.items()}
    ends = await all_at_once(continuations.play(states[end], draw) for end in states for draw in draws[end])
    played = iter(ends)
    rewards: dict[int, list[float]] = {}
    for end in states:
        evaluations = [next(played).evaluations[-1] for _ in draws[end]]
        rewards[end] = [float(scalarisation(item.vector(agent, scalarisation.dimensions))) for item in evaluations]
    gains = {turn: _gains(rewards[turn], rewards[turn + 1]) for turn in own}
    return TurnRewards(
        "counterfactual",
        {turn: fmean(values) for turn, values in gains.items()},
        {turn: _error(values) for turn, values in gains.items()},
        fmean(rewards[own[0]]) if own else 0.0,
        len(ends),
    )


def _gains(before: Sequence[float], after: Sequence[float]) -> list[float]:
    # The end of an episode has one value, since nothing is drawn there.
    size = max(len(before), len(after))
    one, other = ([*values] * (size if len(values) == 1 else 1) for values in (before, after))
    return [last - first for first, last in zip(one, other, strict=True)]


def _error(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = fmean(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)) ** 0.5)


def _own_turns(episode: Episode, agent: str) -> list[int]:
    return [turn.index for turn in episode.plain_turns if turn.actor == agent]


def _reward(share: float) -> float:
    return min(max(share, 0.0), 1.0)
