"""A numeric form of the environment, for learners that read no text: worths and offers in a box, moves by index.

``gymnasium.make("sotopia_env/SotopiaMoves-v0", task="bargaining", partner="boulware")``. Rules, partners, records and
rewards are those of :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`; only the focal
agent's observations and actions are numbers, and each of its moves comes with scripted words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sotopia_env.envs.base import EpisodeEnv, InfoDict
from sotopia_env.envs.gymnasium_env import PartnerSpec, SotopiaSingleAgentEnv
from sotopia_env.envs.options import EnvOptions
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, Verbatim, check_whole
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies.negotiators.bidding import Bids
from sotopia_env.policies.negotiators.concession import FixedDemand
from sotopia_env.tasks import phrase
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task

WAIT, ACCEPT, LEAVE, FIRST_OFFER = 0, 1, 2, 3
"""Actions: do nothing, accept the best open offer, leave; from ``FIRST_OFFER`` on, offers, the most demanding first."""
DEFAULT_TASK, DEFAULT_PARTNER = "bargaining", "boulware"
REMEMBERED = 4
"""The number of latest offers of each side in an observation."""


class SotopiaMovesEnv(gymnasium.Env[NDArray[np.float32], int]):
    """An agreement, played by one focal agent whose observations and actions are numbers.

    *Utilities* are the agent's own: 0 for no agreement, 1 for its best outcome in the space (often out of reach). In
    observations a loss ``u`` is ``u / (1 - u)``, so that all losses are above -1 and distinct. Offer ``k`` of
    ``offers`` is the outcome at or just above the utility ``1 - k / offers``; among equally good ones, the one nearest
    to the partners' positions.

    Observation, float32, shape ``(3 + 2 * REMEMBERED + offers,)``: the share of the agent's turns that is left; whether
    an offer is open to it, and the utility of the best one; the partners' latest offers, the newest first, then the
    agent's own (-1 if there are fewer); the utility of each offer it can make.

    The turn limit *terminates*: it is part of the game, and the turns left are in the observation.

    In reactive order the time of the next turn is left to the order.

    ``info["action_mask"]`` (int8) says which actions are open; :meth:`action_masks` returns the mask as truth values,
    as sb3-contrib's MaskablePPO expects. A move that is not open is a turn in which nothing is done.

    Args:
        task: as in :class:`~sotopia_env.envs.options.EnvOptions`; agreements only.
        partner: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.
        focal_seat: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.
        offers: the number of offers to choose from.
        options: see :class:`~sotopia_env.envs.gymnasium_env.SotopiaSingleAgentEnv`.

    Raises:
        InvalidValueError: an argument has an invalid value, or a task is not an agreement.
    """

    metadata = EpisodeEnv.metadata

    def __init__(
        self,
        *,
        partner: PartnerSpec | Mapping[int, PartnerSpec] = DEFAULT_PARTNER,
        focal_seat: int = 0,
        offers: int = 10,
        **options: Unpack[EnvOptions],
    ) -> None:
        check_whole("offers", offers, 2)
        options.setdefault("task", DEFAULT_TASK)
        self.game = SotopiaSingleAgentEnv(partner=partner, focal_seat=focal_seat, **options)
        for task in self.game.samples:
            _check(task)
        self._bidders = tuple(FixedDemand(demand=1 - k / offers) for k in range(offers))
        self.metadata, self.render_mode = self.game.metadata, self.game.render_mode
        self.observation_space = spaces.Box(-1.0, 1.0, (3 + 2 * REMEMBERED + offers,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(FIRST_OFFER + offers)

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return (int(self.action_space.n),)  # type: ignore[attr-defined]

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], InfoDict]:
        """Starts an episode; arguments and exceptions are those of :meth:`SotopiaSingleAgentEnv.reset`."""
        super().reset(seed=seed)
        _, info = self.game.reset(seed=seed, options=options)
        _check(self.game.episode().task)
        return self._observe(), self._with_mask(info)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, InfoDict]:
        """Takes an action by its index and plays on until it is the focal agent's turn again.

        Raises:
            InvalidActionError: ``action`` is out of range, or no episode is running.
        """
        if not self.action_space.contains(action):
            raise InvalidActionError(field="action", expected=f"0 to {self._shape[0] - 1}", got=action)
        _, reward, terminated, truncated, info = self.game.step(self._action(int(action)))
        # A learner that bootstraps at truncations would value a missed deal as one that may still be reached.
        return self._observe(), reward, terminated or truncated, False, self._with_mask(info)

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns which actions are open now; bool, shape (actions,)."""
        mask = np.zeros(self._shape, dtype=np.bool_)
        observation = self.game.observation()
        menu = observation.moves
        mask[WAIT] = True
        mask[ACCEPT] = menu is not None and bool(menu.accept)
        mask[LEAVE] = ActionType.LEAVE in observation.available
        mask[FIRST_OFFER:] = menu is not None and menu.propose
        return mask

    def render(self) -> str | None:
        """Shows the episode as :meth:`sotopia_env.envs.base.EpisodeEnv.render` does."""
        return self.game.render()

    def close(self) -> None:
        """Closes the event loop in which partners were waited for."""
        self.game.close()

    def episode(self) -> Episode:
        """Returns the record of the episode so far."""
        return self.game.episode()

    def _with_mask(self, info: InfoDict) -> InfoDict:
        return {**info, "action_mask": self.action_masks().astype(np.int8)}

    def _action(self, action: int) -> Action:
        observation = self.game.observation()
        if action == LEAVE:
            return Action(ActionType.LEAVE)
        move = self._move(action)
        return NO_ACTION if move is None else Action(argument=phrase(observation, move, observation.turn), move=move)

    def _move(self, action: int) -> Move | None:
        if action == WAIT:
            return None
        bids = Bids(self.game.observation(), 0)
        if action == ACCEPT:
            best = bids.best_open()
            return None if best is None else Move(MoveKind.ACCEPT, best[0].offer.number)
        row = self._bidders[action - FIRST_OFFER].next_offer(bids)
        return Move(MoveKind.PROPOSE, bids.ranking.terms(row))

    def _observe(self) -> NDArray[np.float32]:
        numbers = np.fromiter(self._numbers(), np.float32)
        # Opening offers of partners are far below 0; clipping would make them all equal.
        losses = np.maximum(-numbers, 0)
        return np.where(losses > 0, -1 + 1 / (1 + losses), numbers).astype(np.float32)

    def _numbers(self) -> Iterator[float]:
        observation = self.game.observation()
        bids = Bids(observation, 0)
        best, left = bids.best_open(), observation.own_turns_left()
        # The order is that of the class's docstring: time, best open offer, offers of both sides, own options.
        yield left / max(1, left + observation.own_turns)
        yield from (0.0, 0.0) if best is None else (1.0, best[1])
        partners = [terms for offers in bids.partners.values() for terms in offers]
        for offers in (partners, bids.own):
            # Newest first; missing offers are infinite losses, which ``_observe`` maps to -1.
            latest = [bids.ranking.utility(terms) for terms in offers[: -REMEMBERED - 1 : -1]]
            yield from (*latest, *[-np.inf] * (REMEMBERED - len(latest)))
        for bidder in self._bidders:
            yield float(bids.ranking.utilities[bids.ranking.cheapest(bidder.demand)])


def _check(task: Task) -> None:
    spec = task.scenario.outcome
    if spec is None or spec.protocol.kind != "agreement":
        kind = "one without an outcome" if spec is None else f"a task of {spec.protocol.kind}"
        raise InvalidValueError(
            field="task", expected="agreements, such as 'bargaining'", got=Verbatim(f"{kind}, {task.id!r}")
        )
