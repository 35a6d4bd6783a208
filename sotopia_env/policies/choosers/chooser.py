"""Scripts for games of choices: what they announce and what they choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import Menu, Move, MoveKind
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.outcomes.table import TableView
from sotopia_env.policies.choosers.strategies import COOPERATIVE, STRATEGIES, GameView
from sotopia_env.policies.interviews import RuledAnswers
from sotopia_env.policies.small_talk import SILENCE, commit, leave, say, small_talk
from sotopia_env.tasks.phrases import phrase
from sotopia_env.world.answers import TRUST, BeliefReply, entrusting
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision

Plays = Literal["cooperate", "deviate", "copy", "trigger", "reciprocate", "respond", "equilibrium", "uniform"]


def in_game(observation: Observation) -> bool:
    """Whether the task is a game of choices."""
    return observation.table is not None and observation.table.rounds is not None


def choose(observation: Observation, seed: int, plays: str, promises: bool) -> Decision:
    """Returns the next choice, the announcement before it, or words while others choose.

    Args:
        observation: of a seat in a game of choices.
        seed: of the decision.
        plays: a name of :data:`STRATEGIES`.
        promises: whether to announce, once a round, what the seat is going to choose; who plays ``deviate`` announces
            to co-operate.
    """
    table, menu, game = observation.table, observation.moves, observation.briefing.game
    if table is None or table.settled or game is None or table.rounds is None:
        return leave(observation)
    view = GameView(observation, game, table.rounds, seed)
    if menu is None:
        return SILENCE
    if plays in COOPERATIVE and (contract := _contract(view, menu, table)) is not None:
        return commit(observation, phrase(observation, contract, seed), contract)
    if menu.choose:
        move = Move(MoveKind.CHOOSE, STRATEGIES[plays](view))
        return commit(observation, phrase(observation, move, seed), move)
    # Who means to deviate says what the others want to hear; all others say what they would choose now.
    intention = view.cooperation if plays == "deviate" else STRATEGIES[plays](view)
    announcement = _announcement(view, menu, intention) if promises else None
    words = phrase(observation, announcement, seed)
    return say(observation, words) if announcement is None else commit(observation, words, announcement)


def _contract(view: GameView, menu: Menu, table: TableView) -> Move | None:
    """An offer that all co-operate, or the acceptance of such an offer; ``None`` where it is made or none can be."""
    names = view.observation.briefing.space
    if not menu.propose or names is None:
        return None
    terms = dict(zip(names.names.values(), view.game.cooperation, strict=True))
    equal = [entry for entry in table.offers if entry.offer.terms == terms]
    if answer := next((entry for entry in equal if entry.open), None):
        return Move(MoveKind.ACCEPT, answer.offer.number)
    return None if equal else Move(MoveKind.PROPOSE, terms)


def _announcement(view: GameView, menu: Menu, option: str) -> Move | None:
    """The promise to choose an option, once in a round and before the choice."""
    facts, own = view.observation.briefing.facts, view.observation.agent
    if facts is None or view.rounds.pending[view.seat] is not None or own in view.announcements:
        return None
    name = next((name for name, v in facts.variables.items() if v.kind == "choice" and v.of == own), "")
    return Move(MoveKind.STATE, {name: option}) if name in menu.statements.state else None


def cooperated(observation: Observation, agent: str) -> list[bool]:
    """Returns whether ``agent`` co-operated, for each round in which the seat saw its choice."""
    table, game = observation.table, observation.briefing.game
    if table is None or table.rounds is None or game is None or agent not in game.agents:
        return []
    seat = game.agents.index(agent)
    return [row[seat] == game.cooperation[seat] for row in table.rounds.played if row[seat]]


def reliance(observation: Observation, agent: str) -> float:
    """Returns how far the seat relies on ``agent``, from 0 to 1: (c + 1) / (c + d + 2), 1/2 for a stranger.

    It co-operated in c rounds that the seat saw, and in d it did not (Laplace's rule of succession).
    """
    visible = cooperated(observation, agent)
    return (visible.count(True) + 1) / (len(visible) + 2)


@dataclass(frozen=True, slots=True)
class Chooser(RuledAnswers):
    """Plays a game of choices by a fixed strategy; elsewhere it makes small talk.

    Attributes:
        name: the policy's name.
        plays: ``cooperate`` with all; ``deviate`` to what pays most if the others co-operate; ``copy`` what the others
            did; ``trigger``: co-operate until somebody has not, then punish; ``reciprocate``: co-operate if the others
            did and announce nothing else; ``respond`` best to what the others did last; ``equilibrium``: of a single
            round; ``uniform``: at random.
        promises: whether it announces in each round what it is going to choose; who plays ``deviate`` announces to
            co-operate.
    """

    name: str = "promiser"
    plays: Plays = "cooperate"
    promises: bool = True

    def __post_init__(self) -> None:
        if self.plays not in STRATEGIES:
            raise InvalidValueError(field=f"{self.name}.plays", got=self.plays, valid=STRATEGIES)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> Sequence[BeliefReply]:
        """Returns what it would entrust to others, by how often they co-operated; it has no beliefs on facts."""
        return [
            BeliefReply(entrusting(reliance(observation, variable.of)))
            if variable.kind == TRUST and in_game(observation)
            else BeliefReply(reason="a script of games answers questions about trust alone")
            for variable in variables
        ]

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the next choice or announcement."""
        return self.decide(observation, seed)

    def decide(self, observation: Observation, seed: int) -> Decision:
        """Returns the next choice or announcement; small talk in a task that is not a game of choices."""
        return (
            choose(observation, seed, self.plays, self.promises)
            if in_game(observation)
            else small_talk(observation, seed)
        )
