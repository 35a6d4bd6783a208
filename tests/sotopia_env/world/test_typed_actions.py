"""Actions as users write them; ``make check`` types this file strictly, and the test runs it."""

from __future__ import annotations

from sotopia_env import Action, ActionType, Move, MoveKind


def test_actions_are_typed_as_they_are_read() -> None:
    action = Action(move={"accept": 1})
    move: Move | None = action.move
    assert move == Move(MoveKind.ACCEPT, 1)
    assert Action("speak", "Deal.", move={"propose": {"price": 84}}).action_type is ActionType.SPEAK
    assert Action(ActionType.SPEAK, "Deal.", (), move).move is move
