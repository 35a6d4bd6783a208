"""Scripted policies that do not bargain: sharing, leaving, silence, chance."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.policies.negotiators import DEFAULT_HORIZON, TimeDependent, about_facts, check, negotiate, problem_of
from sotopia_env.policies.policy import Decision
from sotopia_env.policies.small_talk import SILENCE, leave, own_turns, small_talk
from sotopia_env.tasks.family import SeatProblem
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.observation import Briefing, Observation

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")


@dataclass(frozen=True, slots=True)
class Sharer:
    """Lays its cards on the table, one a turn, then concedes linearly.

    A card is a sentence of its private information, or of its goals where it has none; it is *shown* (non-verbal
    communication), so that a number on it is not taken for an offer. The secret is never among them. In families about
    facts (``mutual_friend``) every negotiator tells all it knows, and so there are no cards.

    Attributes:
        name: the policy's name.
        floor: aspiration at the end, from 0 to 1.
        horizon: own turns until the floor is reached, those spent on sharing included; at least 1.
    """

    name: str = "sharer"
    floor: float = 0.1
    horizon: int = DEFAULT_HORIZON

    def __post_init__(self) -> None:
        check(self.name, "floor", self.floor, 0, 1)
        check(self.name, "horizon", self.horizon, 1, 1e6)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Floor and horizon."""
        return {"floor": self.floor, "horizon": self.horizon}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the next card, or the next move of a linear negotiator when all have been shown."""
        problem = problem_of(observation)
        cards, shown = _cards(observation.briefing), own_turns(observation)
        if shown < len(cards) and self._may_show(problem) and ActionType.NON_VERBAL in observation.available:
            return Decision(Action(ActionType.NON_VERBAL, f"shows a note: {cards[shown]}"))
        if problem is None:
            return small_talk(observation, seed, shown - len(cards))
        pace = TimeDependent(self.name, 1.0, self.floor, self.horizon)
        return negotiate(problem, observation, seed, pace.aspiration(observation, problem, seed))

    def _may_show(self, problem: SeatProblem | None) -> bool:
        return problem is None or not (problem.settled() or about_facts(type(problem)))


def _cards(briefing: Briefing) -> list[str]:
    texts = [briefing.private_info] if briefing.private_info else list(briefing.goals)
    return [sentence for text in texts for sentence in _SENTENCE_END.split(text)]


@dataclass(frozen=True, slots=True)
class Leaver:
    """Leaves at once; where leaving is not possible it stays silent."""

    name: str = "leaver"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns ``leave``."""
        return leave(observation)


@dataclass(frozen=True, slots=True)
class Silent:
    """Does nothing, always."""

    name: str = "silent"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns ``none``."""
        return SILENCE


_VOCABULARY = "river maybe seven yes orange no deal window slowly 42 between thanks lamp agree never paper"


@dataclass(frozen=True, slots=True)
class UniformRandom:
    """Draws the action type evenly from those available, with up to eight random words."""

    name: str = "random"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns an action that depends on ``seed`` and the available types alone."""
        generator = random.Random(seed)
        kind = generator.choice(observation.available)
        if kind in (ActionType.NONE, ActionType.LEAVE):
            return Decision(Action(kind))
        return Decision(Action(kind, " ".join(generator.choices(_VOCABULARY.split(), k=generator.randint(1, 8)))))
