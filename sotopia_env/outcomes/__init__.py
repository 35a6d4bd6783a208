"""Moves, outcome spaces, worths, protocols and reference points: everything that counts, and no dialogue."""

from sotopia_env.outcomes.descriptions import describe_space, describe_worth, outline
from sotopia_env.outcomes.issues import ChoiceIssue, Issue, ItemsIssue, NumberIssue, Seats
from sotopia_env.outcomes.menu import Menu, Offer
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind, read_move
from sotopia_env.outcomes.protocols import (
    Agreement,
    AgreementState,
    AnyProtocol,
    Ballot,
    BallotState,
    ClaimsProtocol,
    ClaimsState,
    Effect,
    Protocol,
    Settlement,
    make_protocol,
)
from sotopia_env.outcomes.reference import ReferencePoints, reference_points
from sotopia_env.outcomes.result import OutcomeResult, SpokenAgreement
from sotopia_env.outcomes.space import OutcomeSpace, Terms
from sotopia_env.outcomes.specification import (
    AgreementRules,
    BallotRules,
    ClaimsRules,
    OutcomeSpec,
    Quorum,
    check_seats,
    worth_value,
)
from sotopia_env.outcomes.table import Claims, OpenOffer, TableView, Votes
from sotopia_env.outcomes.variants import protocol_variant, register_protocol
from sotopia_env.outcomes.worth import (
    AdditiveWorth,
    BallotWorth,
    ClaimsWorth,
    TableEntry,
    TableWorth,
    Worth,
    WorthForm,
    own_outcomes,
)

__all__ = [
    "AdditiveWorth",
    "Agreement",
    "AgreementRules",
    "AgreementState",
    "AnyProtocol",
    "Ballot",
    "BallotRules",
    "BallotState",
    "BallotWorth",
    "ChoiceIssue",
    "Claims",
    "ClaimsProtocol",
    "ClaimsRules",
    "ClaimsState",
    "ClaimsWorth",
    "Effect",
    "InvalidMoveError",
    "Issue",
    "ItemsIssue",
    "Menu",
    "Move",
    "MoveKind",
    "NumberIssue",
    "Offer",
    "OpenOffer",
    "OutcomeResult",
    "OutcomeSpace",
    "OutcomeSpec",
    "Protocol",
    "Quorum",
    "ReferencePoints",
    "Seats",
    "Settlement",
    "SpokenAgreement",
    "TableEntry",
    "TableView",
    "TableWorth",
    "Terms",
    "Votes",
    "Worth",
    "WorthForm",
    "check_seats",
    "describe_space",
    "describe_worth",
    "make_protocol",
    "outline",
    "own_outcomes",
    "protocol_variant",
    "read_move",
    "reference_points",
    "register_protocol",
    "worth_value",
]
