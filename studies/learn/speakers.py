"""The scripted speakers of the study: one that only shows what can be done, and one worth imitating.

All offer the plan that stands in the prompt (:mod:`studies.learn.tasks`). The expert does not play as well as it
could: partners who concede are best answered by holding out, which it does in a part of its conversations, and
reinforcement is to do more often.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies import Decision
from sotopia_env.world import Action, ActionType, Observation
from studies.learn.tasks import PLAN

OFFERS = ("How about this?", "Here is my offer.", "This is what I can do.", "I suggest this.")
ASSENTS = ("Deal!", "Agreed.", "I accept your offer.", "That works for me.")
"""Words beside a move name no terms: the move does, and there is one thing less to copy."""
_GESTURES = ("nods slowly", "smiles", "looks it over once more", "shrugs")


def own_turns(observation: Observation) -> int:
    """How often the seat has acted."""
    return sum(turn.actor == observation.agent for turn in observation.turns)


def incoming(observation: Observation) -> float | None:
    """What the partner's standing offer would bring; ``None`` where none is open."""
    worth, space = observation.briefing.worth, observation.briefing.space
    assert observation.table is not None
    assert worth is not None
    assert space is not None
    offers = [item.offer for item in observation.table.offers if item.open]
    if not offers:
        return None
    return worth.value(space, offers[-1].terms, observation.agent) - worth.disagreement


def _said(texts: tuple[str, ...], seed: int, words: bool) -> str:
    return random.Random(f"words {seed}").choice(texts) if words else ""  # not the draw of what to do


def offer(observation: Observation, seed: int, words: bool = True) -> Decision:
    """The plan, in words drawn by the seed or in none."""
    move = Move(MoveKind.PROPOSE, observation.briefing.private_data[PLAN])
    return Decision(Action(ActionType.SPEAK, _said(OFFERS, seed, words), move=move))


def assent(seed: int, words: bool = True) -> Decision:
    """Assent to the one offer that stands, in words drawn by the seed or in none."""
    return Decision(Action(ActionType.SPEAK, _said(ASSENTS, seed, words), move=Move(MoveKind.ACCEPT, True)))


@dataclass(frozen=True, slots=True)
class Chatter:
    """Draws what it does: its plan, assent to whatever stands, a gesture, or leaving.

    What it does is what the base model is trained on before anything else, as a real base model has read dialogues.

    Attributes:
        words: whether it says anything beside its moves.
        name: the policy's name.
    """

    words: bool = True
    name: str = "chatter"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was made with."""
        return {"words": self.words}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns a drawn action."""
        rng = random.Random(seed)
        standing, drawn = incoming(observation), rng.random()
        if standing is not None and drawn < 0.4:
            return assent(seed, self.words)
        if drawn > 0.98:
            return Decision(Action(ActionType.LEAVE))
        if drawn > 0.95:
            return Decision(Action(ActionType.NON_VERBAL, rng.choice(_GESTURES)))
        return offer(observation, seed, self.words)


@dataclass(frozen=True, slots=True)
class PlainDealer:
    """Offers its plan for some turns, and takes any offer that is no loss afterwards.

    Attributes:
        patience: own turns in which it only offers; drawn from these for each conversation.
        words: whether it says anything beside its moves.
        name: the policy's name.
    """

    patience: tuple[int, ...] = (3,)
    words: bool = True
    name: str = "plain-dealer"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was made with."""
        return {"patience": list(self.patience), "words": self.words}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the action."""
        patience, standing = random.Random(observation.briefing.head).choice(self.patience), incoming(observation)
        accepts = own_turns(observation) >= patience and standing is not None and standing >= 0
        return assent(seed, self.words) if accepts else offer(observation, seed, self.words)
