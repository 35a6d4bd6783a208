"""Records of an outcome: the agreement, by moves or in words, and its worth to every seat."""

from __future__ import annotations

from pydantic import Field

from sotopia_env.foundation.records import JsonObject, Record


class OutcomeResult(Record):
    """The outcome of an episode, computed from its moves.

    Attributes:
        agreed: whether something was agreed, decided or correctly claimed.
        reason: the reason for the outcome, or for its absence.
        terms: the agreed terms, in normal form.
        payoffs: payoff per agent, in the units of the scenario's worths, seat order.
        shares: per agent, seat order: (payoff - disagreement) / (best - disagreement); below 0 when worse
            than no deal.
        efficiency: joint surplus over the best joint surplus, in (-inf, 1].
        fairness: see :meth:`~sotopia_env.outcomes.reference.ReferencePoints.fairness`.
    """

    agreed: bool
    reason: str
    terms: JsonObject = Field(default_factory=dict)
    payoffs: tuple[float, ...]
    shares: tuple[float, ...]
    efficiency: float
    fairness: float | None = None


class SpokenAgreement(Record):
    """An agreement in words alone, as read by a language model.

    Attributes:
        agreed: whether anything was agreed.
        terms: the agreed terms, in normal form; empty if nothing was agreed.
        turns: agent id to the number of its turn, from 1, that shows its assent; only seats that gave one.
        reasoning: the model's reasoning.
        outcome: the worth of the terms to every seat; it rests on the model's reading and is never a verified outcome.
    """

    agreed: bool
    terms: JsonObject = Field(default_factory=dict)
    turns: JsonObject = Field(default_factory=dict)
    reasoning: str = ""
    outcome: OutcomeResult | None = None
