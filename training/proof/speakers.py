"""The scripted speakers of the proof: one that only shows what can be done, and one worth imitating.

All offer the plan that stands in the prompt (:mod:`training.proof.tasks`). The expert does not play as well as it
could: partners who concede are best answered by holding out, which it does in a part of its conversations, and
reinforcement is to do more often.

Their words fit the time: who has one turn left says so. So the base model learns to read how many are left, as real
base models have, before anything depends on it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies import Decision
from sotopia_env.world import Action, ActionType, Observation
from training.proof.tasks import PLAN

OFFERS = (
    ("How about this?", "Here is my offer.", "Let us begin with this."),
    ("This is what I can do.", "I still suggest this.", "Think it over once more."),
    ("My last offer.", "Take this or nothing.", "Time is up; this?"),
)
ASSENTS = (
    ("That was quick. Agreed.", "Deal, so soon!", "I accept at once."),
    ("Agreed.", "I accept your offer.", "That works for me."),
    ("In the end I agree.", "Before time is up: deal.", "Then so be it."),
)
"""What is said with three or more own turns left, with two, and with one.

Words beside a move name no terms: the move does, and there is one thing less to copy."""
Words = Literal["fitting", "any", "none"]
"""Words that fit the time, of any time, or none."""
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


def _said(texts: tuple[tuple[str, ...], ...], observation: Observation, seed: int, words: Words) -> str:
    if words == "none":
        return ""
    fit = texts[-min(observation.own_turns_left(), len(texts))] if words == "fitting" else tuple(chain(*texts))
    return random.Random(f"words {seed}").choice(fit)  # not the draw of what to do


def offer(observation: Observation, seed: int, words: Words = "fitting") -> Decision:
    """The plan, in words drawn by the seed."""
    move = Move(MoveKind.PROPOSE, observation.briefing.private_data[PLAN])
    return Decision(Action(ActionType.SPEAK, _said(OFFERS, observation, seed, words), move=move))


def assent(observation: Observation, seed: int, words: Words = "fitting") -> Decision:
    """Assent to the one offer that stands, in words drawn by the seed."""
    move = Move(MoveKind.ACCEPT, True)
    return Decision(Action(ActionType.SPEAK, _said(ASSENTS, observation, seed, words), move=move))


@dataclass(frozen=True, slots=True)
class Chatter:
    """Draws what it does: its plan, assent to whatever stands, a gesture, or leaving.

    What it does is what the base model is trained on before anything else, as a real base model has read dialogues.

    Attributes:
        words: what it says beside its moves.
        name: the policy's name.
    """

    words: Words = "fitting"
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
            return assent(observation, seed, self.words)
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
        words: what it says beside its moves.
        name: the policy's name.
    """

    patience: tuple[int, ...] = (3,)
    words: Words = "fitting"
    name: str = "plain-dealer"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was made with."""
        return {"patience": list(self.patience), "words": self.words}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the action."""
        patience, standing = random.Random(observation.briefing.head).choice(self.patience), incoming(observation)
        accepts = own_turns(observation) >= patience and standing is not None and standing >= 0
        return (assent if accepts else offer)(observation, seed, self.words)
