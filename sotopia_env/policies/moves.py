"""The few moves that scripted policies are made of."""

from __future__ import annotations

from sotopia_env.action import NO_ACTION, Action, ActionType
from sotopia_env.observation import Observation
from sotopia_env.policies.policy import Decision

SILENCE = Decision(NO_ACTION)
"""To do nothing."""
_LEAVE = Decision(Action(ActionType.LEAVE))


def own_turns(observation: Observation) -> int:
    """Returns how many turns the seat has had: every live seat acts once in each round, in every turn order."""
    agent = observation.briefing.agent
    for turn in reversed(observation.turns):
        if turn.actor == agent:
            return turn.round + 1
    return 0


def say(observation: Observation, text: str) -> Decision:
    """Returns the decision to say ``text``, or to do nothing where speaking is not possible."""
    return Decision(Action(ActionType.SPEAK, text)) if ActionType.SPEAK in observation.available else SILENCE


def leave(observation: Observation) -> Decision:
    """Returns the decision to leave, or to do nothing where leaving is not possible."""
    return _LEAVE if ActionType.LEAVE in observation.available else SILENCE
