"""The numeric form of an agreement: worths and offers as numbers, moves by index.

The single-agent and the multi-agent environments of :mod:`sotopia_env.envs.moves_env` share it. It reads one seat's
typed observation and nothing else, so a learner never sees more than the seat does in the other environments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, Verbatim, check_whole
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.space import Terms
from sotopia_env.policies.negotiators.bidding import Bids
from sotopia_env.policies.negotiators.concession import FixedDemand
from sotopia_env.tasks import phrase
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Task

WAIT, ACCEPT, LEAVE, FIRST_OFFER = 0, 1, 2, 3
"""Actions: do nothing, accept the best open offer, leave; from ``FIRST_OFFER`` on, offers, the most demanding first."""
DEFAULT_TASK = "bargaining"
DEFAULT_OFFERS = 10
REMEMBERED = 4
"""The number of latest offers of each side in an observation."""


class NumericForm:
    """The observations, actions and masks of one seat of an agreement, as numbers.

    *Utilities* are the seat's own: 0 for no agreement, 1 for its best outcome in the space (often out of reach). In
    observations a loss ``u`` is ``u / (1 - u)``, so that all losses are above -1 and distinct. Offer ``k`` of
    ``offers`` is the outcome at or just above the utility ``1 - k / offers``; among equally good ones, the one nearest
    to the partners' positions.

    Observation, float32, shape ``(3 + 2 * REMEMBERED + offers,)``: the share of the seat's turns that is left; whether
    an offer is open to it, and the utility of the best one; the partners' latest offers, the newest first, then the
    seat's own (-1 if there are fewer); the utility of each offer it can make.

    Args:
        offers: the number of offers to choose from, at least 2.

    Attributes:
        actions: the number of actions.
        size: the length of an observation.

    Raises:
        InvalidValueError: ``offers`` has an invalid value.
    """

    def __init__(self, offers: int = DEFAULT_OFFERS) -> None:
        check_whole("offers", offers, 2)
        self._bidders = tuple(FixedDemand(demand=1 - k / offers) for k in range(offers))
        self.actions, self.size = FIRST_OFFER + offers, 3 + 2 * REMEMBERED + offers
        self._indices = self.action_space()

    def check(self, task: Task) -> None:
        """Raises :class:`InvalidValueError` unless the task is an agreement."""
        check_agreement(task)

    def observation_space(self) -> spaces.Space[NDArray[np.float32]]:
        """Returns a new space of observations."""
        return spaces.Box(-1.0, 1.0, (self.size,), np.float32)

    def action_space(self) -> spaces.Space[Any]:
        """Returns a new space of actions."""
        return spaces.Discrete(self.actions)

    def numbers(self, observation: Observation) -> NDArray[np.float32]:
        """Returns the observation as numbers."""
        numbers = np.fromiter(self._numbers(observation), np.float32)
        # Opening offers of partners are far below 0; clipping would make them all equal.
        losses = np.maximum(-numbers, 0)
        return np.where(losses > 0, -1 + 1 / (1 + losses), numbers).astype(np.float32)

    def mask(self, observation: Observation) -> NDArray[np.bool_]:
        """Returns which actions are open; bool, shape (actions,). Only ``WAIT`` when the seat is not to act."""
        mask = np.zeros((self.actions,), dtype=np.bool_)
        menu = observation.moves
        mask[WAIT] = True
        mask[ACCEPT] = menu is not None and bool(menu.accept)
        mask[LEAVE] = ActionType.LEAVE in observation.available
        mask[FIRST_OFFER:] = menu is not None and menu.propose
        return mask

    def action(self, observation: Observation, index: Any) -> Action:
        """Returns the action of an index, with scripted words beside its move.

        Raises:
            InvalidActionError: ``index`` is not a whole number (of Python or NumPy) in the range.
        """
        if not self._indices.contains(index):
            raise InvalidActionError(field="action", expected=f"0 to {self.actions - 1}", got=index)
        index = int(index)
        if index == LEAVE:
            return Action(ActionType.LEAVE)
        move = self._move(observation, index)
        return NO_ACTION if move is None else Action(argument=phrase(observation, move, observation.turn), move=move)

    def _move(self, observation: Observation, index: int) -> Move | None:
        if index == WAIT:
            return None
        bids = Bids(observation, 0)
        if index == ACCEPT:
            best = bids.best_open()
            return None if best is None else Move(MoveKind.ACCEPT, best[0].offer.number)
        row = self._bidders[index - FIRST_OFFER].next_offer(bids)
        return Move(MoveKind.PROPOSE, bids.ranking.terms(row))

    def _numbers(self, observation: Observation) -> Iterator[float]:
        bids = Bids(observation, 0)
        best, left = bids.best_open(), observation.own_turns_left()
        # The order is that of the class's docstring: time, best open offer, offers of both sides, own options.
        yield left / max(1, left + observation.own_turns)
        yield from (0.0, 0.0) if best is None else (1.0, best[1])
        for offers in (_offers_of(observation, bids.partners), bids.own):
            # Newest first; missing offers are infinite losses, which ``numbers`` maps to -1.
            latest = [bids.ranking.utility(terms) for terms in offers[: -REMEMBERED - 1 : -1]]
            yield from (*latest, *[-np.inf] * (REMEMBERED - len(latest)))
        for bidder in self._bidders:
            yield float(bids.ranking.utilities[bids.ranking.cheapest(bidder.demand)])


def _offers_of(observation: Observation, agents: Collection[str]) -> list[Terms]:
    """The offers of ``agents``, oldest first, whichever of them made each."""
    moves = [turn.action.move for turn in observation.turns if turn.actor in agents]
    return [move.content for move in moves if move is not None and move.kind is MoveKind.PROPOSE]


def check_agreement(task: Task) -> None:
    """Raises :class:`InvalidValueError` unless the task is an agreement."""
    spec = task.scenario.outcome
    if spec is None or spec.protocol.kind != "agreement":
        kind = "one without an outcome" if spec is None else f"a task of {spec.protocol.kind}"
        raise InvalidValueError(
            field="task",
            expected="all agreements, all ballots, all games, or all with facts",
            got=Verbatim(f"{kind}, {task.id!r}"),
        )
