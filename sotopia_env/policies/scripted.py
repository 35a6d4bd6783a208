"""Scripted policies other than negotiators: one shares its information, others leave, stay silent or act at random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.policies.interviews import RuledAnswers, random_answer
from sotopia_env.policies.negotiators.concession import TimeDependent, check
from sotopia_env.policies.negotiators.negotiation import DEFAULT_FLOOR, DEFAULT_HORIZON
from sotopia_env.policies.small_talk import SILENCE, leave, small_talk
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.answers import BeliefReply, InterviewQuestion, InterviewReply
from sotopia_env.world.observation import Briefing, Observation
from sotopia_env.world.play.policy import Decision


@dataclass(frozen=True, slots=True)
class Sharer(RuledAnswers):
    """Discloses its private information one sentence per turn, then concedes linearly.

    If it has no private information, it discloses its goals; it never discloses the secret. Sentences are shown as
    notes (non-verbal communication), because they are written to the seat and not by it. In a claims task every
    negotiator shares its facts, so this policy behaves like the linear one.

    Attributes:
        name: the policy's name.
        floor: the target at the end, from 0 to 1.
        horizon: the number of the seat's turns until the floor is reached, including those spent on disclosure; at
            least 1.
    """

    name: str = "sharer"
    floor: float = DEFAULT_FLOOR
    horizon: int = DEFAULT_HORIZON

    def __post_init__(self) -> None:
        check(self.name, "floor", self.floor, 0, 1)
        check(self.name, "horizon", self.horizon, 1, 1e6)

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the next note, or the next move of a linear negotiator once all notes were shown."""
        turns = observation.own_turns
        notes = _notes(observation.briefing) if _shows_notes(observation) else []
        if turns < len(notes):
            return Decision(Action(ActionType.NON_VERBAL, f"shows a note: {notes[turns]}"))
        if observation.table is None:
            return small_talk(observation, seed, turns - len(notes))
        # The horizon counts from the first turn on, so disclosure takes time from the concession.
        return TimeDependent(self.name, 1.0, self.floor, self.horizon).decide(observation, seed)


def _shows_notes(observation: Observation) -> bool:
    table = observation.table
    settled = table is not None and (table.settled or table.claims is not None)
    return not settled and ActionType.NON_VERBAL in observation.available


def _notes(briefing: Briefing) -> list[str]:
    texts = [briefing.private_info] if briefing.private_info else list(briefing.goals)
    return [sentence for text in texts for sentence in _sentences(text)]


def _sentences(text: str) -> list[str]:
    """The text, split after every word that ends with one of ``.!?;``."""
    sentences: list[list[str]] = [[]]
    for word in text.split():
        sentences[-1].append(word)
        if word[-1] in ".!?;":
            sentences.append([])
    return [" ".join(words) for words in sentences if words]


@dataclass(frozen=True, slots=True)
class Leaver(RuledAnswers):
    """Leaves at once; if leaving is not possible, it stays silent."""

    name: str = "leaver"

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns ``leave``."""
        return leave(observation)


@dataclass(frozen=True, slots=True)
class Silent(RuledAnswers):
    """Does nothing in every turn."""

    name: str = "silent"

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns ``none``."""
        return SILENCE


_VOCABULARY = "river maybe seven yes orange no deal window slowly 42 between thanks lamp agree never paper"
_MOVING = 0.5
"""The probability of a move along with the words, if any move is open."""


@dataclass(frozen=True, slots=True)
class UniformRandom:
    """Draws one of the available action types uniformly, with one to eight random words and sometimes an open move."""

    name: str = "random"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """No parameters."""
        return {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns an action that depends only on ``seed``, the available types and the open moves."""
        generator = random.Random(seed)
        kind = generator.choice(observation.available)
        if kind in (ActionType.NONE, ActionType.LEAVE):
            return Decision(Action(kind))
        words = " ".join(generator.choices(_VOCABULARY.split(), k=generator.randint(1, 8)))
        moves = observation.moves
        move = moves.sample(generator) if moves and generator.random() < _MOVING else None
        return Decision(Action(kind, words, move=move))

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns a random option."""
        return random_answer(question, seed)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> list[BeliefReply]:
        """Returns equal probabilities: this policy's answers are uniform by definition."""
        return [BeliefReply(dict.fromkeys(one.options, 1 / len(one.options))) for one in variables]
