"""The knowledge of one bidding seat: its outcomes ranked by utility, and the offers of an episode that it has seen.

Utilities are the seat's own and scaled: 0 for no agreement, 1 for its best outcome, negative for outcomes that are
worse than no agreement.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sotopia_env.foundation.errors import InvalidValueError, PolicyError
from sotopia_env.outcomes import MoveKind, OutcomeSpace
from sotopia_env.outcomes.issues import Issue
from sotopia_env.outcomes.space import OPTION, Terms
from sotopia_env.outcomes.table import OpenOffer
from sotopia_env.outcomes.worth import Worth
from sotopia_env.policies.negotiators.own_outcomes import own_outcomes
from sotopia_env.world.action import ActionType
from sotopia_env.world.observation import Briefing, Observation

EPSILON = 1e-9
"""Tolerance of comparisons: utilities are quotients of floats, and an offer worth exactly the target must reach it."""
# The maximum number of rows of a band, so that the cost of a turn does not grow with the outcome space.
_MOST_COMPARED = 64

Rows = NDArray[np.intp]


class Ranking:
    """A seat's outcomes in arrays, best first: row ``r`` is the outcome with the ``r``-th highest utility.

    In a space of more than 10⁵ outcomes, :func:`.own_outcomes` uses a coarser grid.

    Attributes:
        space: the outcome space.
        utilities: the utility of every row, descending; shape (outcomes,).
    """

    __slots__ = (
        "_columns", "_disagreement", "_ladders", "_losses", "_points", "_scales", "_span", "_valuation", "_values",
        "_widths", "space", "utilities",
    )  # fmt: skip

    def __init__(self, space: OutcomeSpace, worth: Worth, agent: str) -> None:
        """Ranks the outcomes of ``space`` by their ``worth`` to ``agent``.

        Raises:
            InvalidValueError: the space is too large even with the coarsest grid for numbers.
        """
        # A copy, because the cache of rankings must not keep alive the task to which the space belongs.
        self.space = space = OutcomeSpace(space.issues, space.names)
        outcomes = own_outcomes(space, worth, agent)
        self._valuation = worth.valuation(space, agent)
        self._disagreement = worth.disagreement
        gain = outcomes[0][1] - worth.disagreement
        # If no outcome beats disagreement, utilities stay in the units of the worth; all of them are 0 or less.
        self._span = gain if gain > 0 else 1.0
        self.utilities = (np.array([value for _, value in outcomes]) - worth.disagreement) / self._span
        self._losses = -self.utilities  # ascending, as ``searchsorted`` requires
        # Terms are rebuilt from columns of indexes: a tenth of the memory of a dict per outcome.
        columns = [_column([terms[issue.name] for terms, _ in outcomes]) for issue in space.issues]
        self._values = [values for values, _ in columns]
        self._columns = [column for _, column in columns]
        self._scales = [_scale(issue) for issue in space.issues]
        # One array per issue with the coordinates of its distinct values; shape (values, coordinates).
        grids = [
            np.array([scale({issue.name: value}) for value in values])
            for issue, scale, values in zip(space.issues, self._scales, self._values, strict=True)
        ]
        self._widths = [grid.shape[1] for grid in grids]
        # The coordinates of every outcome; shape (outcomes, sum of widths).
        self._points = np.hstack([grid[column] for grid, column in zip(grids, self._columns, strict=True)])
        self._ladders: dict[int, list[int]] = {}

    @property
    def hopeless(self) -> bool:
        """Whether no outcome is better than no agreement."""
        return bool(self.utilities[0] <= 0)

    def utility(self, terms: Terms) -> float:
        """The utility of any terms in normal form, also of terms that are not a row; takes about two microseconds."""
        value = self._valuation.exact(self.space, terms) / self._valuation.scale
        return (value - self._disagreement) / self._span

    def terms(self, row: int) -> Terms:
        """The outcome of ``row``."""
        issues = zip(self.space.issues, self._values, self._columns, strict=True)
        return {issue.name: values[column[row]] for issue, values, column in issues}

    def count(self, target: float) -> int:
        """The number of outcomes with at least the utility ``target``."""
        return int(self._losses.searchsorted(EPSILON - target, side="right"))

    def cheapest(self, target: float) -> int:
        """The first row with the lowest utility that reaches ``target``; the best row if no utility reaches it."""
        utility = self._losses[max(self.count(target) - 1, 0)]
        return int(self._losses.searchsorted(utility))

    def ladder(self, steps: int) -> list[int]:
        """At most ``steps`` rows with utilities of at least 0, best first, at even distances of utility."""
        if steps not in self._ladders:
            count = self.count(0.0)
            targets = (1 - step / (steps - 1) for step in range(steps))
            rows = range(count) if count <= steps else dict.fromkeys(map(self.cheapest, targets))
            self._ladders[steps] = list(rows)
        return self._ladders[steps]

    def band(self, low: float, high: float) -> Rows:
        """Rows with utilities from ``low`` to ``high``, thinned evenly to at most 64; may be empty."""
        start = int(self._losses.searchsorted(-high - EPSILON))
        stop = self.count(low)
        return np.arange(start, stop, max(1, -(-(stop - start) // _MOST_COMPARED)))

    def distances(
        self, rows: Rows, offers: Sequence[Terms], weights: Sequence[float] | None = None
    ) -> NDArray[np.float64]:
        """The sum of the distances between each row and all ``offers``; shape (rows,).

        The distance of two numbers is their difference over the range of the issue, of two options 1, of two divisions
        the share of pieces that change hands. Distances are summed over issues, with ``weights`` if given.
        """
        own, points = self._points[rows], np.array([[x for scale in self._scales for x in scale(t)] for t in offers])
        if weights is not None:
            factors = np.repeat(weights, self._widths)
            own, points = own * factors, points * factors
        gaps = np.abs(own[:, None, :] - points).reshape(len(rows), -1)  # (rows, offers × coordinates)
        # Rounded, so that ties do not depend on the order in which a machine adds floats.
        distances: NDArray[np.float64] = gaps.sum(axis=1).round(9)
        return distances

    def nearest(self, rows: Rows, offers: Sequence[Terms]) -> int:
        """The row with the smallest sum of distances to ``offers``; ties go to the first."""
        return int(rows[self.distances(rows, offers).argmin()]) if offers else int(rows[0])


def _column(values: Sequence[Any]) -> tuple[list[Any], NDArray[np.int32]]:
    """Returns the distinct values of an issue, and for each row the index of its value among them."""
    different: dict[Any, tuple[int, Any]] = {}
    positions = []
    for value in values:
        key = tuple(value.values()) if isinstance(value, dict) else value
        positions.append(different.setdefault(key, (len(different), value))[0])
    return [value for _, value in different.values()], np.array(positions, dtype=np.int32)


def _scale(issue: Issue) -> Callable[[Terms], Sequence[float]]:
    """Returns the function from terms to coordinates of an issue, in which two values are at most 1 apart (L1)."""
    name = issue.name
    if issue.kind == "number":
        span = float(issue.high - issue.low) or 1.0
        return lambda terms: (terms[name] / span,)
    if issue.kind == "choice":
        # Two options differ in two coordinates, by one half each.
        units = {option: [0.5 * (other == option) for other in issue.options] for option in issue.options}
        return lambda terms: units[terms[name]]
    pieces = 2 * issue.count  # a piece that changes hands changes two shares
    return lambda terms: [share / pieces for share in terms[name].values()]


_RANKINGS: dict[int, tuple[weakref.ref[OutcomeSpace], dict[str, Ranking]]] = {}
"""Rankings by seat, by the ``id`` of a task's space; an entry is removed when its space is garbage-collected."""


def ranking(briefing: Briefing) -> Ranking:
    """Returns the ranking of a seat of a task with a protocol; computed once per seat and task.

    Raises:
        PolicyError: the outcomes are too many to be ranked.
    """
    space, worth = briefing.space, briefing.worth
    assert space is not None
    assert worth is not None
    entry = _RANKINGS.get(id(space))
    # An id may be reused by another space before the callback has removed the entry.
    if entry is None or entry[0]() is not space:
        entry = _RANKINGS[id(space)] = (weakref.ref(space, partial(_forget, id(space))), {})
    by_seat = entry[1]
    if briefing.agent not in by_seat:
        try:
            by_seat[briefing.agent] = Ranking(space, worth, briefing.agent)
        except InvalidValueError as error:
            raise PolicyError(f"a scripted policy ranks all outcomes; {error}") from None
    return by_seat[briefing.agent]


def _forget(key: int, reference: weakref.ref[OutcomeSpace]) -> None:
    entry = _RANKINGS.get(key)
    if entry is not None and entry[0] is reference:
        del _RANKINGS[key]


class Bids:
    """The offers of an episode that one seat has seen; in a ballot, votes count as offers.

    Attributes:
        observation: the seat's observation.
        seed: the seed of the turn.
        ranking: the ranking of the seat's outcomes.
        agent: the agent id of the seat.
    """

    __slots__ = ("_history", "agent", "observation", "ranking", "seed")

    def __init__(self, observation: Observation, seed: int) -> None:
        """Reads the observation of a seat in a task with an agreement or a ballot."""
        self.observation = observation
        self.seed = seed
        self.ranking = ranking(observation.briefing)
        self.agent = observation.agent
        self._history: tuple[list[Terms], dict[str, list[Terms]], dict[str, set[int]]] | None = None

    def _read(self) -> tuple[list[Terms], dict[str, list[Terms]], dict[str, set[int]]]:
        if self._history is None:
            offers: dict[str, list[Terms]] = {self.agent: []}
            offers |= {partner.agent: [] for partner in self.observation.briefing.partners}
            answers: dict[str, set[int]] = {agent: set() for agent in offers}
            for turn in self.observation.turns:
                move = turn.action.move
                if move is None:
                    # A partner that left can no longer agree, so its offers must not influence the target.
                    if turn.action.action_type is ActionType.LEAVE and turn.actor != self.agent:
                        offers.pop(turn.actor)
                elif move.kind is MoveKind.PROPOSE:
                    offers[turn.actor].append(move.content)
                elif move.kind is MoveKind.VOTE and move.content is not None:
                    offers[turn.actor].append({OPTION: move.content})
                elif move.kind is MoveKind.ACCEPT:
                    answers[turn.actor].add(move.content)
            self._history = (offers.pop(self.agent), offers, answers)
        return self._history

    @property
    def own(self) -> list[Terms]:
        """The seat's own offers, oldest first."""
        return self._read()[0]

    @property
    def partners(self) -> dict[str, list[Terms]]:
        """The offers of each partner that is still present, oldest first."""
        return self._read()[1]

    def variety(self, partner: str) -> int:
        """The number of different offers that a partner has made or accepted."""
        _, offers, answers = self._read()
        return _different(self.ranking.space, offers[partner]) + len(answers[partner])

    @property
    def own_variety(self) -> int:
        """The number of different offers that the seat itself has made."""
        return _different(self.ranking.space, self.own)

    @property
    def standing(self) -> list[Terms]:
        """The partners' current positions: their open offers, or their votes if the seat knows them."""
        table = self.observation.table
        assert table is not None
        if table.votes is not None:
            return [{OPTION: vote} for agent, vote in table.votes.options.items() if agent != self.agent]
        return [entry.offer.terms for entry in table.offers if entry.offer.proposer != self.agent]

    def best_open(self) -> tuple[OpenOffer, float] | None:
        """The open offer with the highest utility to the seat, and that utility.

        Ties go to the offer that needs the fewest further acceptances, then to the oldest.
        """
        table = self.observation.table
        assert table is not None
        entries = [(entry, self.ranking.utility(entry.offer.terms)) for entry in table.offers if entry.open]
        return max(entries, key=lambda pair: (pair[1], -pair[0].more, -pair[0].offer.number), default=None)


def _different(space: OutcomeSpace, offers: Sequence[Terms]) -> int:
    return len({space.key(terms) for terms in offers})
