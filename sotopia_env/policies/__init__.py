"""Policies: who acts. :mod:`sotopia_env.naming` makes one of its name."""

from sotopia_env.policies.best_of_n import BestOfNPolicy, OfferWorth, Scorer
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.mixed import MixedPolicy, Mixture
from sotopia_env.policies.negotiators import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.policy import Decision, Policy
from sotopia_env.policies.scripted import Leaver, Sharer, Silent, UniformRandom

__all__ = [
    "BestOfNPolicy",
    "Decision",
    "FixedDemand",
    "HumanPolicy",
    "LLMPolicy",
    "Leaver",
    "MixedPolicy",
    "Mixture",
    "OfferWorth",
    "Policy",
    "RandomOffers",
    "Scorer",
    "Sharer",
    "Silent",
    "Splitter",
    "TimeDependent",
    "TitForTat",
    "UniformRandom",
]
