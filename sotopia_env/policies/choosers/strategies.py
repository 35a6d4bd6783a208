"""Strategies of scripts in games of choices: their choices, and their promises before.

A strategy is a function of the seat's own view: the game with the payoffs that it knows, past rounds as far as they
are shown, and what was announced in this round. To co-operate is to choose the own part of the profile that is best
for all together (:meth:`~sotopia_env.outcomes.games.game.Game.cooperation`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.games.game import Game, Row
from sotopia_env.outcomes.games.rounds import Rounds
from sotopia_env.outcomes.move import MoveKind
from sotopia_env.outcomes.solutions.equilibria import pure_equilibria, symmetric_mixture
from sotopia_env.world.observation import Observation


@dataclass(frozen=True)
class GameView:
    """A seat's view of a game.

    Attributes:
        observation: the seat's observation.
        game: the game, with the payoffs that the seat knows.
        rounds: past rounds and this one.
        seed: of this decision.
    """

    observation: Observation
    game: Game
    rounds: Rounds
    seed: int

    @cached_property
    def seat(self) -> int:
        """The number of the seat."""
        return self.game.agents.index(self.observation.agent)

    @property
    def cooperation(self) -> str:
        """The option that is best for all together if the others do their part."""
        return self.game.cooperation[self.seat]

    @property
    def punishment(self) -> str:
        """The option that leaves the others least."""
        return self.game.punishment(self.seat)

    @property
    def temptation(self) -> str:
        """The option that pays the seat most if all others co-operate."""
        return self.game.reply(self.seat, [self.game.cooperation])

    @cached_property
    def past(self) -> tuple[Row, ...]:
        """The rounds in which the seat saw all choices."""
        return tuple(row for row in self.rounds.played if all(row))

    def defected(self, row: Row) -> bool:
        """Whether another seat did not co-operate in a round."""
        pairs = zip(row, self.game.cooperation, strict=True)
        return any(own != best for number, (own, best) in enumerate(pairs) if number != self.seat)

    @cached_property
    def announcements(self) -> Mapping[str, str]:
        """What the others announced in this round, by agent id: the last statement of each about its own choice."""
        facts, start = self.observation.briefing.facts, self._start
        variables = {} if facts is None else {name: v.of for name, v in facts.variables.items() if v.kind == "choice"}
        result: dict[str, str] = {}
        for turn in self.observation.turns[start:]:
            for kind, content in () if turn.action.move is None else turn.action.move.statements:
                if kind is MoveKind.STATE:
                    for value in (value for name, value in content.items() if variables.get(name) == turn.actor):
                        result[turn.actor] = value
        return result

    @cached_property
    def _start(self) -> int:
        """The index of the turn after the seat's own last choice: others' choices are hidden moves."""
        own = [
            index
            for index, turn in enumerate(self.observation.turns)
            if turn.actor == self.observation.agent
            and turn.action.move is not None
            and turn.action.move.kind is MoveKind.CHOOSE
        ]
        number = len(self.rounds.played)
        return own[number - 1] + 1 if 0 < number <= len(own) else 0


def cooperate(view: GameView) -> str:
    """Co-operates in every round."""
    return view.cooperation


def deviate(view: GameView) -> str:
    """Takes what pays most if the others co-operate."""
    return view.temptation


def copy(view: GameView) -> str:
    """Co-operates first and then does what the others did: with several, what most of them did (tit for tat)."""
    if not view.past:
        return view.cooperation
    last, options = view.past[-1], view.game.options[view.seat]
    others = [option for number, option in enumerate(last) if number != view.seat]
    if all(option in options for option in others):
        # The first of the most frequent ones, so that equal rounds are answered alike.
        return max(others, key=others.count)
    return view.punishment if view.defected(last) else view.cooperation


def trigger(view: GameView) -> str:
    """Co-operates until another seat has not, and punishes for ever after (grim trigger)."""
    return view.punishment if any(map(view.defected, view.past)) else view.cooperation


def reciprocate(view: GameView) -> str:
    """Co-operates if all others did in the last round, and none of them announces anything else."""
    names = dict(zip(view.game.agents, view.game.cooperation, strict=True))
    others = {agent: value for agent, value in view.announcements.items() if agent != view.observation.agent}
    willing = all(value == names[agent] for agent, value in others.items())
    return view.cooperation if willing and not any(map(view.defected, view.past[-1:])) else view.punishment


def respond(view: GameView) -> str:
    """Chooses what pays most against what the others did last; first, against choices at random."""
    if not view.past:
        means = view.game.means(view.seat)
        return max(means, key=means.__getitem__)
    return view.game.reply(view.seat, view.past[-1:])


def balance(view: GameView) -> str:
    """Plays an equilibrium of a round: mixed and the same for all seats of a game of two options, else a pure one."""
    options = view.game.options[view.seat]
    if None in view.game.worths or view.game.rules.stock is not None:
        return respond(view)
    chance = _mixture(view.game)
    if chance is None:
        rows = pure_equilibria(view.game)
        return max(rows, key=view.game.welfare)[view.seat] if rows else view.punishment
    return options[0] if random.Random(view.seed).random() < chance else options[1]


@lru_cache(maxsize=256)
def _mixture(game: Game) -> float | None:
    """The probability of the first option in the symmetric mixed equilibrium; ``None`` if the game has none."""
    alike = all(own == game.options[0] and len(own) == 2 for own in game.options) and game.rules.mediator is None
    if not alike or any(worth != game.worths[0] for worth in game.worths):
        return None
    try:
        return symmetric_mixture(game, game.options[0][0])
    except InvalidValueError:  # one option is at least as good at every probability
        return None


def draw(view: GameView) -> str:
    """Chooses at random, each option with equal probability."""
    return random.Random(view.seed).choice(view.game.options[view.seat])


COOPERATIVE = ("cooperate", "copy", "trigger", "reciprocate")
"""The strategies that begin by co-operating, and so make and accept contracts to co-operate."""
STRATEGIES: Mapping[str, Callable[[GameView], str]] = {
    "cooperate": cooperate,
    "deviate": deviate,
    "copy": copy,
    "trigger": trigger,
    "reciprocate": reciprocate,
    "respond": respond,
    "equilibrium": balance,
    "uniform": draw,
}
"""The strategies by name."""
