"""A short, polite conversation for scripted policies in tasks without a protocol, and the decisions they all share.

The conversation takes five of the seat's turns: greet, state its goal, ask for the others' goals, thank them, and
leave. The policy never uses its profile, and it does not state a goal that shares words with its secret.
"""

from __future__ import annotations

from sotopia_env.outcomes import Move
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision

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
# Shorter words, such as "the" and "with", occur in every text and carry no information.
_SHORTEST = 5
_SECRET = "Secret: "


def small_talk(observation: Observation, seed: int, step: int | None = None) -> Decision:
    """Returns the next step of the conversation.

    Args:
        observation: the observation of the acting seat.
        seed: chooses the wording.
        step: the number of steps already taken; by default the number of the seat's own turns so far.
    """
    step = observation.own_turns if step is None else step
    if not 0 <= step < len(_STEPS):
        return leave(observation)
    texts = _STEPS[step]
    text = texts[seed % len(texts)]
    return say(observation, _state_goal(observation, text) if texts is _OPENINGS else text)


def _state_goal(observation: Observation, text: str) -> str:
    goal = observation.briefing.goals[0]
    # The own profile ends with the secret; see ``observation.OWN_FIELDS``.
    _, marker, secret = observation.briefing.profile.partition(_SECRET)
    if marker and long_words(goal) & long_words(secret):
        return _RESERVED
    return text.replace("{goal}", goal)


def long_words(text: str) -> set[str]:
    """Returns the words of a text that have at least five letters, in lower case."""
    letters = "".join(character if character.isalnum() else " " for character in text.casefold())
    return {word for word in letters.split() if len(word) >= _SHORTEST}


SILENCE = Decision(NO_ACTION)
"""The decision to do nothing."""


_LEAVE = Decision(Action(ActionType.LEAVE))


def say(observation: Observation, text: str) -> Decision:
    """Returns the decision to say ``text``, or to do nothing where speaking is not possible."""
    return Decision(Action(ActionType.SPEAK, text)) if ActionType.SPEAK in observation.available else SILENCE


def ask(observation: Observation, seed: int) -> Decision:
    """Returns the decision to ask the others for their view."""
    return say(observation, _QUESTIONS[seed % len(_QUESTIONS)])


def commit(observation: Observation, text: str, move: Move) -> Decision:
    """Returns the decision to make ``move``: with words if the seat may speak, else with a gesture or a deed.

    If the seat may do neither, the decision is to do nothing, because a move needs an action to go with.
    """
    if ActionType.SPEAK in observation.available:
        return Decision(Action(ActionType.SPEAK, text, move=move))
    for kind in (ActionType.NON_VERBAL, ActionType.ACTION):
        if kind in observation.available:
            return Decision(Action(kind, move=move))
    return SILENCE


def leave(observation: Observation) -> Decision:
    """Returns the decision to leave, or to do nothing where leaving is not possible."""
    return _LEAVE if ActionType.LEAVE in observation.available else SILENCE
