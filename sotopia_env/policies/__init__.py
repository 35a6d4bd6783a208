"""Policies, which map observations to actions. :mod:`sotopia_env.naming` makes one from its name."""

from sotopia_env.policies.agent_prompt import KEPT_TURNS, AgentPrompt, Format, complaint
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.best_of_n import BestOfNPolicy, OfferWorth, Scorer
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import Consequence, LLMPolicy, read_reply
from sotopia_env.policies.negotiators import (
    FixedDemand,
    FrequencyModel,
    Liar,
    Micro,
    Negotiator,
    OpponentModeller,
    Presser,
    Prober,
    RandomOffers,
    RandomWalk,
    Splitter,
    TimeDependent,
    TitForTat,
)
from sotopia_env.policies.scripted import Leaver, Sharer, Silent, UniformRandom
from sotopia_env.world.play.policy import Decision, Policy, policy_identity, turn_seed

__all__ = [
    "KEPT_TURNS",
    "AgentPrompt",
    "BestOfNPolicy",
    "Consequence",
    "Decision",
    "FixedDemand",
    "Format",
    "FrequencyModel",
    "HumanPolicy",
    "LLMPolicy",
    "Leaver",
    "Liar",
    "Micro",
    "Negotiator",
    "OfferWorth",
    "OpponentModeller",
    "Policy",
    "Presser",
    "Prober",
    "RandomOffers",
    "RandomWalk",
    "Scorer",
    "Sharer",
    "Silent",
    "Splitter",
    "TimeDependent",
    "TitForTat",
    "UniformRandom",
    "action_schema",
    "complaint",
    "policy_identity",
    "read_reply",
    "turn_seed",
]
