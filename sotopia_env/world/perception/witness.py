"""The rule by which seats witness turns, for observations and for documents that interviews ask about.

A seat witnesses its own turns, and those of others that are addressed to it or to all, in a phase that it witnesses,
and that come before it leaves.
A veiled round (simultaneous and reactive order) is one moment: nothing of it is witnessed before it is over, and a
seat that leaves in it witnesses only its own turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from sotopia_env.outcomes import Move
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import StopReason, Turn


def exit_of(turns: Sequence[Turn], agent: str) -> Turn | None:
    """Returns the turn by which ``agent`` left, or ``None``."""
    leave = (turn for turn in reversed(turns) if turn.actor == agent and turn.action.action_type is ActionType.LEAVE)
    return next(leave, None)


def over(turns: Sequence[Turn], round_: int, stop: StopReason | None) -> int:
    """Returns how many of the turns are over: all except those of ``round_``, if that is veiled.

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
    """Whether ``agent`` witnesses a turn that is over; ``leave`` is the turn by which it left."""
    if turn.actor == agent:
        return True
    if agent not in (turn.action.to or (agent,)) or agent not in (turn.seen or (agent,)):
        return False
    # Strictly before: of the veiled round in which it left, a seat witnesses only its own turn.
    return leave is None or moment(turn) < moment(leave)


def moment(turn: Turn) -> int:
    """Returns the moment of a turn, comparable within an episode: its round, if that is veiled, or its index."""
    return turn.round if turn.veiled else turn.index


def is_public(turn: Turn) -> bool:
    """Whether every witness may see the whole turn: it has no failed attempt, secret move or plan."""
    # A wait is a plan that only its actor knows.
    return turn.violation is None and turn.hidden is None and turn.action.wait is None


def perspective(agent: str, turn: Turn) -> Turn:
    """Returns the turn as ``agent`` knows it: without others' failed attempts, secret moves and plans."""
    if turn.actor == agent or is_public(turn):
        return turn
    # The words and statements that come with a secret move are public; the move and its effect are not.
    action, move = turn.action, turn.action.move
    secret = turn.hidden is not None
    if secret and move is not None:
        move = Move.of_parts(move.statements)
    # Without ``wait``; violation and attempt are left out of the turn below: only the actor knows them.
    action = Action(action.action_type, action.argument, action.to, move)
    effect = turn.hidden if secret else turn.effect
    return Turn(turn.index, turn.round, turn.actor, action, veiled=turn.veiled, effect=effect, seen=turn.seen)
