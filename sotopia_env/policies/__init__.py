"""Policies, which map observations to actions. :mod:`sotopia_env.naming` makes one from its name."""

from sotopia_env.policies.combined.best_of_n import BestOfNPolicy
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.negotiators.negotiation import Negotiator
from sotopia_env.world.play.policy import Decision, Policy

__all__ = [
    "BestOfNPolicy",
    "Decision",
    "HumanPolicy",
    "LLMPolicy",
    "Negotiator",
    "Policy",
]
