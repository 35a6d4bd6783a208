"""The tables of recorded turns: the states of a task's protocol, folded from moves alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.scenario import Task


class Folded(NamedTuple):
    """A recorded turn with the table around it.

    Attributes:
        turn: the turn.
        basis: the table that its actor saw: before the turn, or before its veiled round.
        table: the table after the turn.
    """

    turn: Turn
    basis: Any
    table: Any


def folded(task: Task, turns: Iterable[Turn]) -> Iterator[Folded]:
    """Yields ``turns`` with the tables that their moves lead to.

    For records and imported episodes, which come without a state. The moves of turns are in normal form, so the fold
    needs neither the rules nor the seed.

    Raises:
        InvalidMoveError: a recorded move was not open.
        InvalidValueError: the task has no protocol.
    """
    protocol = task.protocol
    if protocol is None:
        raise InvalidValueError(field="task", expected="one with an outcome", got=task.id)
    table = basis = protocol.initial()
    round_ = -1
    for turn in turns:
        if turn.round != round_:  # ``basis`` is the table before the round
            round_, basis = turn.round, table
        action, before = turn.action, basis if turn.veiled else table
        if action.move is not None:
            table, _ = protocol.apply(table, turn.actor, action.move, turn.audience, before)
        elif action.action_type is ActionType.LEAVE:
            table = protocol.leave(table, turn.actor)
        table = protocol.advance(table, turn.actor)
        yield Folded(turn, before, table)


def final_table(task: Task, turns: Sequence[Turn]) -> tuple[Any, int | None]:
    """Returns the table after ``turns`` (:func:`folded`), and the number of turns until it was settled.

    Raises:
        InvalidMoveError: a recorded move was not open.
        InvalidValueError: the task has no protocol.
    """
    table, settled = None, None
    for item in folded(task, turns):
        table = item.table
        if settled is None and task.protocol is not None and task.protocol.settled(table):
            settled = item.turn.index + 1
    return (task.protocol.initial() if task.protocol is not None and table is None else table), settled
