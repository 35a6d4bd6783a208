"""Games of choices for tests."""

from __future__ import annotations

from typing import Any

from sotopia_env.outcomes import Move, OutcomeSpec
from sotopia_env.outcomes.protocols.choices import ChoicesProtocol, GameState
from sotopia_env.outcomes.protocols.making import make_protocol

from .specs import names

PRISONER = {"payoffs": {"C": {"C": 3, "D": 0}, "D": {"C": 5, "D": 1}}}
FISHERY = {"start": 100, "growth": 2, "capacity": 100, "collapse": 5}


def game(worth: Any = PRISONER, seats: int = 2, **rules: Any) -> OutcomeSpec:
    """A game; by default a prisoner's dilemma of one round."""
    options = {} if "amounts" in rules else {"options": ["C", "D"]}
    worths = worth if isinstance(worth, list) else [worth] * seats
    return OutcomeSpec.model_validate({"protocol": {"kind": "choices", **options, **rules}, "worth": worths})


def protocol(spec: OutcomeSpec) -> ChoicesProtocol:
    """The protocol of a game."""
    made = make_protocol(spec, names(len(spec.worth)))
    assert isinstance(made, ChoicesProtocol)
    return made


def played(rules: ChoicesProtocol, *rounds: str | tuple[str, ...], state: GameState | None = None) -> GameState:
    """The state after these rounds, each with the options of all seats in order."""
    state = rules.initial() if state is None else state
    for row in rounds:
        for agent, option in zip(rules.agents, row, strict=True):
            state, _ = rules.apply(state, agent, Move("choose", option))  # type: ignore[arg-type]
            state = rules.advance(state, agent)
    return state
