"""MoveMatch of actions with a teacher's: the kind of move, and its values within one step.

Loss and token accuracy hardly depend on the few tokens that decide an episode, which are those of the moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

from sotopia_env.outcomes import MoveKind, OutcomeSpace
from sotopia_env.outcomes.issues import ChoiceIssue, ItemsIssue, NumberIssue
from sotopia_env.outcomes.move import InvalidMoveError
from sotopia_env.world import Action


@dataclass(frozen=True, slots=True)
class MoveMatch:
    """Whether an action agrees with the teacher's in one state.

    Attributes:
        kind: whether both make the same kind of move; without moves, whether they are of the same action type.
        value: whether the contents are equal, too, with numbers and counts of items within one step of each other;
            ``None`` if the teacher makes no move.
    """

    kind: bool
    value: bool | None


def move_match(action: Action | None, teacher: Action, space: OutcomeSpace | None) -> MoveMatch:
    """Compares an action with the teacher's.

    Args:
        action: the action; ``None`` if the answer was not a possible action.
        teacher: the teacher's action in the same state.
        space: the outcome space of the task; ``None`` if it has none.
    """
    if teacher.move is None:
        same = action is not None and action.move is None and action.action_type is teacher.action_type
        return MoveMatch(same, None)
    move = None if action is None else action.move
    if move is None or move.kind is not teacher.move.kind:
        return MoveMatch(kind=False, value=False)
    if move.kind is MoveKind.PROPOSE and space is not None:
        return MoveMatch(kind=True, value=_near(move.content, teacher.move.content, space))
    return MoveMatch(kind=True, value=move == teacher.move)


def _near(terms: Mapping[str, Any], other: Mapping[str, Any], space: OutcomeSpace) -> bool:
    """Whether terms differ by at most one step in every issue."""
    try:
        pair = space.normalise(terms), space.normalise(other)
    except InvalidMoveError:
        return False
    return all(_near_in(issue, *(side[issue.name] for side in pair)) for issue in space.issues)


def _near_in(issue: NumberIssue | ChoiceIssue | ItemsIssue, value: Any, other: Any) -> bool:
    if isinstance(issue, NumberIssue):
        # Decimals, because the difference of two floats may be a little above the step.
        return abs(Decimal(str(value)) - Decimal(str(other))) <= issue.step
    if isinstance(issue, ItemsIssue):
        return all(abs(value[agent] - other[agent]) <= 1 for agent in value)
    return bool(value == other)


def match_figures(rows: Sequence[MoveMatch]) -> dict[str, float]:
    """Returns the shares of agreement in ``kind`` and, over states in which the teacher makes a move, in ``value``."""
    values = [row.value for row in rows if row.value is not None]
    kinds = {"kind": fmean(row.kind for row in rows)} if rows else {}
    return {**kinds, **({"value": fmean(values)} if values else {})}
