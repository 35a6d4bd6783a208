"""The scripted speakers of the study: a random one that shows the possible actions, and an expert worth imitating.

All offer the plan in the prompt (:mod:`studies.learn.tasks`). The expert is not optimal: the best response to partners
who concede is to hold out, and the expert holds out in some conversations only. Reinforcement should learn to do it
more often.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies import Decision
from sotopia_env.world import Action, Observation
from sotopia_env.world.action import ActionType
from studies.learn.tasks import PLAN

OFFERS = ("How about this?", "Here is my offer.", "This is what I can do.", "I suggest this.")
ASSENTS = ("Deal!", "Agreed.", "I accept your offer.", "That works for me.")
"""Words never repeat the terms of a move, so that the model has to copy them only once."""
_GESTURES = ("nods slowly", "smiles", "looks it over once more", "shrugs")


def own_turns(observation: Observation) -> int:
    """Returns the number of turns that the seat has taken."""
    return sum(turn.actor == observation.agent for turn in observation.turns)


def incoming(observation: Observation) -> float | None:
    """Returns the gain from accepting the partner's open offer; ``None`` without an open offer."""
    worth, space = observation.briefing.worth, observation.briefing.space
    assert observation.table is not None
    assert worth is not None
    assert space is not None
    offers = [item.offer for item in observation.table.offers if item.open]
    if not offers:
        return None
    return worth.value(space, offers[-1].terms, observation.agent) - worth.disagreement


def _utterance(texts: tuple[str, ...], seed: int, words: bool) -> str:
    # A generator of its own: the words must not depend on the draw that chose the action.
    return random.Random(f"words {seed}").choice(texts) if words else ""


def offer(observation: Observation, seed: int, words: bool = True) -> Decision:
    """Returns an offer of the plan, with words drawn by the seed or without words."""
    move = Move(MoveKind.PROPOSE, observation.briefing.private_data[PLAN])
    return Decision(Action(ActionType.SPEAK, _utterance(OFFERS, seed, words), move=move))


def assent(seed: int, words: bool = True) -> Decision:
    """Returns an acceptance of the only open offer, with words drawn by the seed or without words."""
    return Decision(Action(ActionType.SPEAK, _utterance(ASSENTS, seed, words), move=Move(MoveKind.ACCEPT, True)))


@dataclass(frozen=True, slots=True)
class Chatter:
    """Acts at random: offers its plan, accepts any open offer, makes a gesture, or leaves.

    The base model is trained on its actions first, as a real base model has read dialogues.

    Attributes:
        words: whether it says anything besides its moves.
        name: the policy's name.
    """

    words: bool = True
    name: str = "chatter"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The constructor's arguments."""
        return {"words": self.words}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns a drawn action."""
        rng = random.Random(seed)
        gain, draw = incoming(observation), rng.random()
        if gain is not None and draw < 0.4:
            return assent(seed, self.words)
        if draw > 0.98:
            return Decision(Action(ActionType.LEAVE))
        if draw > 0.95:
            return Decision(Action(ActionType.NON_VERBAL, rng.choice(_GESTURES)))
        return offer(observation, seed, self.words)


@dataclass(frozen=True, slots=True)
class PlainDealer:
    """Offers its plan for some turns, and afterwards accepts any offer that is not a loss.

    Attributes:
        patience: the number of own turns in which it only offers, drawn from these values for each conversation.
        words: whether it says anything besides its moves.
        name: the policy's name.
    """

    patience: tuple[int, ...] = (3,)
    words: bool = True
    name: str = "plain-dealer"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The constructor's arguments."""
        return {"patience": list(self.patience), "words": self.words}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the action."""
        # Seeded by the briefing, which is the same on every turn of a conversation.
        patience, gain = random.Random(observation.briefing.head).choice(self.patience), incoming(observation)
        accepts = own_turns(observation) >= patience and gain is not None and gain >= 0
        return assent(seed, self.words) if accepts else offer(observation, seed, self.words)
