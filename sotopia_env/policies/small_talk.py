"""What scripted policies do where no family tells them what could be agreed: a short, polite conversation.

It greets, states its goal, asks for the others', thanks, and leaves: five own turns. It never draws on the own
profile, and a goal that shares words with the own secret is not stated.
"""

from __future__ import annotations

import re

from sotopia_env.policies.policy import Decision
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.observation import Observation

_GREETINGS = (
    "Hello, it is good to have a moment together.",
    "Good to see you. Shall we talk this through?",
    "Hello. Thank you for taking the time.",
)
_OPENINGS = (
    "What I hope for is this: {goal}",
    "To be plain about my aim: {goal}",
    "Here is what matters to me: {goal}",
)
_RESERVED = "There is something that matters to me here, and I would like us to find a way together."
_QUESTIONS = (
    "What would work for you?",
    "How do you see it, and what would you need?",
    "Which part of this matters most to you?",
)
_THANKS = (
    "Thank you, that helps. I will think it over.",
    "I am grateful that we could speak. Let us leave it there for today.",
    "Thank you for listening. I have nothing to add for now.",
)
_STEPS = (_GREETINGS, _OPENINGS, _QUESTIONS, _THANKS)
_WORD = re.compile(r"\w{5,}")
_SECRET = "Secret: "


def small_talk(observation: Observation, seed: int, step: int | None = None) -> Decision:
    """Returns the next step of the conversation.

    Args:
        observation: the seat's.
        seed: chooses the wording.
        step: how many steps are done; the seat's own turns so far when not given.
    """
    step = own_turns(observation) if step is None else step
    if not 0 <= step < len(_STEPS):
        return leave(observation)
    texts = _STEPS[step]
    text = texts[seed % len(texts)]
    return say(observation, _state_goal(observation, text) if texts is _OPENINGS else text)


def _state_goal(observation: Observation, text: str) -> str:
    goal = observation.briefing.goals[0]
    # The own profile ends with the secret; see ``observation.OWN_FIELDS``.
    _, marker, secret = observation.briefing.profile.partition(_SECRET)
    if marker and _words(goal) & _words(secret):
        return _RESERVED
    return text.replace("{goal}", goal)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


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
