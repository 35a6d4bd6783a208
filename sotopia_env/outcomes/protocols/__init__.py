"""Protocols: the rules by which moves become an outcome, one module for each; and the function that makes them."""

from sotopia_env.outcomes.protocols.agreement import Agreement, AgreementState
from sotopia_env.outcomes.protocols.ballot import Ballot, BallotState
from sotopia_env.outcomes.protocols.claims import ClaimsProtocol, ClaimsState
from sotopia_env.outcomes.protocols.making import make_protocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol, Effect, Protocol, Settlement

__all__ = [
    "Agreement",
    "AgreementState",
    "AnyProtocol",
    "Ballot",
    "BallotState",
    "ClaimsProtocol",
    "ClaimsState",
    "Effect",
    "Protocol",
    "Settlement",
    "make_protocol",
]
