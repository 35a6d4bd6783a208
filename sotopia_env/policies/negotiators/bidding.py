"""Knowledge of one seat that bids: its own outcomes, best first, and the offers of an episode as it has seen them.

Utilities are the seat's own, scaled: 0 is no agreement, 1 its best outcome, below 0 whatever is worse than none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sotopia_env.errors import InvalidValueError, PolicyError
from sotopia_env.outcomes import Issue, MoveKind, OpenOffer, OutcomeSpace, Terms, Worth, own_outcomes
from sotopia_env.outcomes.space import OPTION
from sotopia_env.world.action import ActionType
from sotopia_env.world.observation import Briefing, Observation

EPSILON = 1e-9
"""Utilities are quotients of floats; an offer worth exactly the target must count as such."""
_MOST_COMPARED = 64  # rows of a band: what a turn costs does not grow with the space

Rows = NDArray[np.intp]


class Ranking:
    """A seat's outcomes, best first, in arrays: row ``r`` is the outcome with the ``r``-th highest utility.

    Outcomes of a space above 10⁵ are those of :func:`~sotopia_env.outcomes.own_outcomes`: a coarser grid of numbers.

    Attributes:
        space: the outcome space.
        utilities: of every row, descending; shape (outcomes,).
    """

    __slots__ = (
        "_columns", "_disagreement", "_ladders", "_losses", "_points", "_scales", "_span", "_valuation", "_values",
        "_widths", "space", "utilities",
    )  # fmt: skip

    def __init__(self, space: OutcomeSpace, worth: Worth, agent: str) -> None:
        """Ranks the outcomes of ``space`` by their ``worth`` to ``agent``.

        Raises:
            InvalidValueError: the choices and divisions of the space alone are too many.
        """
        # A copy: whoever keeps a ranking must not keep the task alive to which the space belongs.
        self.space = space = OutcomeSpace(space.issues, space.names)
        outcomes = own_outcomes(space, worth, agent)
        self._valuation = worth.valuation(space, agent)
        self._disagreement = worth.disagreement
        gain = outcomes[0][1] - worth.disagreement
        self._span = gain if gain > 0 else 1.0
        self.utilities = (np.array([value for _, value in outcomes]) - worth.disagreement) / self._span
        self._losses = -self.utilities
        # Terms are rebuilt from columns of indexes: a tenth of the memory of a dict per outcome.
        columns = [_column([terms[issue.name] for terms, _ in outcomes]) for issue in space.issues]
        self._values = [values for values, _ in columns]
        self._columns = [column for _, column in columns]
        self._scales = [_scale(issue) for issue in space.issues]
        tables = [
            np.array([scale({issue.name: value}) for value in values])
            for issue, scale, values in zip(space.issues, self._scales, self._values, strict=True)
        ]
        self._widths = [table.shape[1] for table in tables]
        self._points = np.hstack([table[column] for table, column in zip(tables, self._columns, strict=True)])
        self._ladders: dict[int, list[int]] = {}

    @property
    def hopeless(self) -> bool:
        """Whether no outcome is better than none."""
        return bool(self.utilities[0] <= 0)

    def utility(self, terms: Terms) -> float:
        """The utility of any terms in normal form; about two microseconds."""
        value = self._valuation.exact(self.space, terms) / self._valuation.scale
        return (value - self._disagreement) / self._span

    def terms(self, row: int) -> Terms:
        """The outcome of ``row``."""
        issues = zip(self.space.issues, self._values, self._columns, strict=True)
        return {issue.name: values[column[row]] for issue, values, column in issues}

    def count(self, target: float) -> int:
        """How many outcomes have at least the utility ``target``."""
        return int(self._losses.searchsorted(EPSILON - target, side="right"))

    def cheapest(self, target: float) -> int:
        """The first of the rows that are at or just above ``target``; the best row where none is worth so much."""
        utility = self._losses[max(self.count(target) - 1, 0)]
        return int(self._losses.searchsorted(utility))

    def ladder(self, steps: int) -> list[int]:
        """At most ``steps`` rows that are no worse than no agreement, best first, at even distances of utility."""
        if steps not in self._ladders:
            count = self.count(0.0)
            targets = (1 - step / (steps - 1) for step in range(steps))
            rows = range(count) if count <= steps else dict.fromkeys(map(self.cheapest, targets))
            self._ladders[steps] = list(rows)
        return self._ladders[steps]

    def band(self, low: float, high: float) -> Rows:
        """Rows with a utility from ``low`` to ``high``, thinned evenly to a few dozen; may be empty."""
        start = int(self._losses.searchsorted(-high - EPSILON))
        stop = self.count(low)
        return np.arange(start, stop, max(1, -(-(stop - start) // _MOST_COMPARED)))

    def distances(
        self, rows: Rows, offers: Sequence[Terms], weights: Sequence[float] | None = None
    ) -> NDArray[np.float64]:
        """How far each row is from all ``offers`` together; shape (rows,).

        The distance of two numbers is their difference over the range of the issue, of two options 1, of two divisions
        the share of pieces that change hands; they are summed over issues, times the ``weights`` where there are any.
        """
        table, points = self._points[rows], np.array([[x for scale in self._scales for x in scale(t)] for t in offers])
        if weights is not None:
            factors = np.repeat(weights, self._widths)
            table, points = table * factors, points * factors
        gaps = np.abs(table[:, None, :] - points).reshape(len(rows), -1)  # (rows, offers × coordinates)
        # Rounded, so that equal distances are equal whatever the order in which a machine adds.
        distances: NDArray[np.float64] = gaps.sum(axis=1).round(9)
        return distances

    def nearest(self, rows: Rows, offers: Sequence[Terms]) -> int:
        """The row with the smallest sum of distances to ``offers``; the first of equal ones."""
        return int(rows[self.distances(rows, offers).argmin()]) if offers else int(rows[0])


def _column(values: Sequence[Any]) -> tuple[list[Any], NDArray[np.int32]]:
    """The different ones among the values of an issue, and where among them each row's value is."""
    different: dict[Any, tuple[int, Any]] = {}
    positions = []
    for value in values:
        key = tuple(value.values()) if isinstance(value, dict) else value
        positions.append(different.setdefault(key, (len(different), value))[0])
    return [value for _, value in different.values()], np.array(positions, dtype=np.int32)


def _scale(issue: Issue) -> Callable[[Terms], Sequence[float]]:
    """Gives the coordinates of an issue's value; absolute differences between two values add up to at most 1."""
    name = issue.name
    if issue.kind == "number":
        span = float(issue.high - issue.low) or 1.0
        return lambda terms: (terms[name] / span,)
    if issue.kind == "choice":
        units = {option: [0.5 * (other == option) for other in issue.options] for option in issue.options}
        return lambda terms: units[terms[name]]
    pieces = 2 * issue.count  # a piece that moves is missing from one share and too much in another
    return lambda terms: [share / pieces for share in terms[name].values()]


_RANKINGS: dict[int, tuple[weakref.ref[OutcomeSpace], dict[str, Ranking]]] = {}
"""Rankings by seat, by the id of a task's space; an entry goes when its task does."""


def ranking(briefing: Briefing) -> Ranking:
    """Returns the ranking of a seat of a task with a protocol; computed once per seat and task.

    Raises:
        PolicyError: the outcomes are too many to be ranked.
    """
    space, worth = briefing.space, briefing.worth
    assert space is not None
    assert worth is not None
    entry = _RANKINGS.get(id(space))
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
    """The offers of an episode as one seat has seen them; in a ballot, votes are offers.

    Attributes:
        observation: the seat's.
        seed: of the turn.
        ranking: the seat's outcomes.
        agent: the seat.
    """

    __slots__ = ("_history", "agent", "observation", "ranking", "seed")

    def __init__(self, observation: Observation, seed: int) -> None:
        """Takes the observation of a seat of an agreement or a ballot."""
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
        """The offers of each partner that is present, oldest first."""
        return self._read()[1]

    def variety(self, partner: str) -> int:
        """How many different offers a partner has made or accepted."""
        _, offers, answers = self._read()
        return _different(self.ranking.space, offers[partner]) + len(answers[partner])

    @property
    def own_variety(self) -> int:
        """How many different offers the seat itself has made."""
        return _different(self.ranking.space, self.own)

    @property
    def standing(self) -> list[Terms]:
        """What the partners stand for now: their open offers, or their votes as far as the seat knows them."""
        table = self.observation.table
        assert table is not None
        if table.votes is not None:
            return [{OPTION: vote} for agent, vote in table.votes.options.items() if agent != self.agent]
        return [entry.offer.terms for entry in table.offers if entry.offer.proposer != self.agent]

    def best_open(self) -> tuple[OpenOffer, float] | None:
        """The open offer that the seat would rather accept than any other, with its utility.

        Of equally good ones the one that needs fewest further acceptances, and of these the oldest.
        """
        table = self.observation.table
        assert table is not None
        entries = [(entry, self.ranking.utility(entry.offer.terms)) for entry in table.offers if entry.open]
        return max(entries, key=lambda pair: (pair[1], -pair[0].more, -pair[0].offer.number), default=None)


def _different(space: OutcomeSpace, offers: Sequence[Terms]) -> int:
    return len({space.key(terms) for terms in offers})
