"""Moves, outcome spaces, worths, protocols and reference points: everything that is scored, without any dialogue."""

from sotopia_env.outcomes.issues import ChoiceIssue, ItemsIssue, NumberIssue
from sotopia_env.outcomes.menu import Menu
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind
from sotopia_env.outcomes.protocols.agreement import Agreement
from sotopia_env.outcomes.reference import reference_points
from sotopia_env.outcomes.space import OutcomeSpace
from sotopia_env.outcomes.specification import AgreementRules, BallotRules, ClaimsRules, OutcomeSpec
from sotopia_env.outcomes.variants import register_protocol
from sotopia_env.outcomes.worth import AdditiveWorth

__all__ = [
    "AdditiveWorth",
    "Agreement",
    "AgreementRules",
    "BallotRules",
    "ChoiceIssue",
    "ClaimsRules",
    "InvalidMoveError",
    "ItemsIssue",
    "Menu",
    "Move",
    "MoveKind",
    "NumberIssue",
    "OutcomeSpace",
    "OutcomeSpec",
    "reference_points",
    "register_protocol",
]
