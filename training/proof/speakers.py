"""The scripted speakers of the proof: one that only shows what can be said, and one worth imitating.

Both say prices that stand in the prompt, because copying is what a model of less than a million parameters can learn in
a minute on a CPU; arithmetic is not. Neither plays as well as it could: partners who concede are best answered by
holding out, which the expert does in a part of its conversations, and reinforcement is to do more often.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.policies.negotiators import problem_of
from sotopia_env.policies.policy import Decision
from sotopia_env.policies.small_talk import leave, own_turns, say
from sotopia_env.tasks.family import SeatProblem, Terms
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.observation import Observation

PRICES = ("target_price", "dream_price")
"""What :class:`Chatter` draws from, once for each conversation."""
_ASSENTS = ("Deal!", "Agreed.", "I accept.", "I accept your offer.", "That works for me.")
"""They name no price: what stands is agreed to, and there is one thing less to copy."""
_GESTURES = ("nods slowly", "smiles", "looks it over once more", "shrugs")


def _problem(observation: Observation) -> SeatProblem:
    problem = problem_of(observation)
    assert problem is not None  # the proof's tasks are all of a family
    return problem


def _price(observation: Observation, name: str) -> Terms:
    return {"price": observation.briefing.private_data[name]}


def _assent(observation: Observation, seed: int) -> Decision:
    return say(observation, random.Random(seed).choice(_ASSENTS))


@dataclass(frozen=True, slots=True)
class Chatter:
    """Draws its moves: one of its prices, assent to whatever stands, a gesture, or leaving.

    Which price is drawn once for each conversation, so that there is something to copy from itself as well. What it
    says is what the base model is trained on before anything else, as a real base model has read dialogues.
    """

    name: str = "chatter"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns a drawn move."""
        problem, rng = _problem(observation), random.Random(seed)
        standing, drawn = problem.incoming(), rng.random()
        if standing is not None and drawn < 0.25:
            return _assent(observation, seed)
        if drawn > 0.98:
            return leave(observation)
        if drawn > 0.95:
            return Decision(Action(ActionType.NON_VERBAL, rng.choice(_GESTURES)))
        price = _price(observation, random.Random(observation.briefing.head).choice(PRICES))
        return say(observation, problem.phrase_offer(price, seed))


@dataclass(frozen=True, slots=True)
class PlainDealer:
    """Says what it can to the end where the last word is the partner's, and takes what it gets where it is its own.

    Who begins names one price in every turn and agrees to nothing; who does not names one price for some turns, takes
    any offer that is no loss afterwards, and names its price again if it is one. Few offers are a loss by then, so that
    a model that cannot compare two prices loses little by taking them all.

    Attributes:
        patience: own turns in which it only names its price; drawn from these for each conversation.
        price: which of its prices it names; empty is its target where it begins and its dream where it does not.
        insists: whether it agrees to nothing where it begins; otherwise it does there as in the other seat.
        name: the policy's name.
    """

    patience: tuple[int, ...] = (2,)
    price: str = ""
    insists: bool = True
    name: str = "plain-dealer"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was made with."""
        return {"patience": list(self.patience), "price": self.price, "insists": self.insists}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the move. What is said after a deal is a part of it: the same price again, or assent."""
        problem = _problem(observation)
        begins = not observation.turns or observation.turns[0].actor == observation.briefing.agent
        patience = random.Random(observation.briefing.head).choice(self.patience)
        if own_turns(observation) >= patience and not (begins and self.insists):
            standing = problem.incoming()
            if problem.settled() or (standing is not None and problem.value(standing) >= 0):
                return _assent(observation, seed)
        price = self.price or ("target_price" if begins else "dream_price")
        return say(observation, problem.phrase_offer(_price(observation, price), seed))
