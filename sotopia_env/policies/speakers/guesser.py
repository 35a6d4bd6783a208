"""A scripted guesser: states and asks at random, as the chance level of measures of social acts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from sotopia_env.outcomes import Menu, Move
from sotopia_env.outcomes.facts import SeatFacts
from sotopia_env.policies.speakers.speaker import Speaker
from sotopia_env.world.observation import Observation


@dataclass(frozen=True, slots=True)
class Guesser(Speaker):
    """Makes a random statement about one variable in every turn before its vote, and votes by lot.

    It draws the kind (state, show or ask), then the variable and value among those that are open, then to whom: to
    everybody or, where turns may be private, to one partner, each as likely. All draws are independent, so that the
    chance of any act has a closed form.
    """

    name: str = "guesser"
    votes: Literal["belief", "uniform"] = "uniform"

    def choose(
        self, observation: Observation, facts: SeatFacts, menu: Menu, seed: int
    ) -> tuple[tuple[str, ...], Move | None]:
        """Returns the recipients and the statement, or the vote in the seat's last turn."""
        rng = random.Random(seed)
        if menu.choose or (menu.vote and not menu.unvote and observation.own_turns_left() <= 1):
            return (), self.vote(observation, menu, seed)
        moves = menu.statements.moves()
        if not moves:
            return (), None
        # The kind comes first, as in Menu.sample: many values to state must not crowd out questions.
        kind = rng.choice(sorted({move.kind for move in moves}))
        move = rng.choice([move for move in moves if move.kind is kind])
        partners = [(partner.agent,) for partner in observation.briefing.partners]
        return rng.choice([(), *partners]) if observation.briefing.recipients else (), move
