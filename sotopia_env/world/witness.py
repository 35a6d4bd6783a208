"""The rule by which seats witness turns, for observations and for documents that interviews ask about.

A seat witnesses its own turns, and those of others that are addressed to it or to all and come before it leaves.
A simultaneous round is one moment: nothing of it is witnessed before it is over, and a seat that leaves in it
witnesses only its own turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import StopReason, Turn


def exit_of(turns: Sequence[Turn], agent: str) -> Turn | None:
    """Returns the turn by which ``agent`` left, or ``None``."""
    leave = (turn for turn in reversed(turns) if turn.actor == agent and turn.action.action_type is ActionType.LEAVE)
    return next(leave, None)


def round_under_way(turns: Sequence[Turn], seats: int) -> int:
    """Returns the simultaneous round of the coming turn, as far as ``turns`` tell: all present act in each."""
    if not turns:
        return 0
    # A round is complete when every agent has acted that did not leave in the round before it.
    last = turns[-1].round
    present = seats if last == 0 else sum(t.action.action_type is not ActionType.LEAVE for t in _round(turns, last - 1))
    return last + (len(_round(turns, last)) == present)


def _round(turns: Sequence[Turn], number: int) -> list[Turn]:
    return [turn for turn in turns if turn.round == number]


def over(turns: Sequence[Turn], round_: int, stop: StopReason | None) -> int:
    """Returns how many of the turns are over: all but those of ``round_``, where that is a simultaneous one.

    Args:
        turns: from the first one on.
        round_: the round of the coming turn.
        stop: why the episode ended; the last round is over then.
    """
    # From the end, because at most one round, the last one, is open.
    end = len(turns)
    while stop is None and end and turns[end - 1].veiled and turns[end - 1].round >= round_:
        end -= 1
    return end


def witnesses(agent: str, turn: Turn, leave: Turn | None) -> bool:
    """Whether ``agent`` witnesses a turn that is over; ``leave`` is the one by which it left."""
    if turn.actor == agent:
        return True
    if turn.action.to and agent not in turn.action.to:
        return False
    return leave is None or _moment(turn) < _moment(leave)


def _moment(turn: Turn) -> int:
    return turn.round if turn.veiled else turn.index


def perspective(agent: str, turn: Turn) -> Turn:
    """Returns the turn as ``agent`` knows it: without others' failed attempts and secret moves."""
    if turn.actor == agent or (turn.violation is None and turn.hidden is None):
        return turn
    action, effect = turn.action, turn.effect
    # The words that come with a secret move are public; the move and its effect are not.
    if turn.hidden is not None:
        action, effect = Action(action.action_type, action.argument, action.to), turn.hidden
    return Turn(turn.index, turn.round, turn.actor, action, veiled=turn.veiled, effect=effect)
