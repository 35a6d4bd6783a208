"""Scripted negotiators: their knowledge, their common frame, concession tactics, and opponents from the literature."""

from sotopia_env.policies.negotiators.concession import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.negotiators.negotiation import Negotiator
from sotopia_env.policies.negotiators.opponents import FrequencyModel, Liar, Micro, OpponentModeller, RandomWalk
from sotopia_env.policies.negotiators.pressing import Presser, Prober

__all__ = [
    "FixedDemand",
    "FrequencyModel",
    "Liar",
    "Micro",
    "Negotiator",
    "OpponentModeller",
    "Presser",
    "Prober",
    "RandomOffers",
    "RandomWalk",
    "Splitter",
    "TimeDependent",
    "TitForTat",
]
