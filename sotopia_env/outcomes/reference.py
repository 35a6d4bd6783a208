"""Reference points of an outcome space: best per seat, frontier, Nash, egalitarian, Kalai-Smorodinsky, best joint.

Everything is exact, for any number of seats and up to 10⁶ outcomes. With gains over ``no_agreement``, g = u - d: Nash
(1950) maximises the product of g; the egalitarian solution (Kalai 1977) maximises the least g; Kalai-Smorodinsky (1975)
maximises the least share g / best gain. These three are taken over outcomes that leave *no* seat below its
``no_agreement``.

Ties are broken by the greater joint payoff, then by the earliest outcome in the order of the space. Costs per turn are
left out: they belong to an episode, not to an outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.amounts import count_text
from sotopia_env.outcomes.issues import Seats
from sotopia_env.outcomes.space import OutcomeSpace, Terms
from sotopia_env.outcomes.specification import (
    AgreementRules,
    BallotRules,
    ClaimsRules,
    OutcomeSpec,
    Quorum,
    check_seats,
)
from sotopia_env.outcomes.valuation import Valuation

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_OUTCOMES = 10**6

Payoffs = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ReferencePoints:
    """The best attainable outcomes. Payoffs are in seat order; terms are ``None`` if a point is the disagreement.

    Attributes:
        best: the best payoff of each seat over the attainable outcomes, disagreement included: those for which
            enough seats (all whose assent is needed; with a quorum, some coalition of that size with every veto
            seat) get at least their ``no_agreement``.
        disagreement: the payoff of each seat without an outcome.
        frontier: payoffs of the Pareto-optimal outcomes, each once, ascending.
        nash: the Nash solution; the disagreement if every outcome leaves some seat below it.
        egalitarian: the egalitarian solution; the disagreement in the same case.
        kalai_smorodinsky: the Kalai-Smorodinsky solution; the disagreement in the same case.
        best_joint: the payoffs with the greatest sum over attainable outcomes, disagreement included.
        best_terms: for each seat, an outcome that gives it its best payoff.
        size: the number of outcomes.
    """

    best: Payoffs
    disagreement: Payoffs
    frontier: tuple[Payoffs, ...]
    nash: Payoffs
    egalitarian: Payoffs
    kalai_smorodinsky: Payoffs
    best_joint: Payoffs
    best_terms: tuple[Terms | None, ...] = field(hash=False)
    nash_terms: Terms | None = field(hash=False)
    egalitarian_terms: Terms | None = field(hash=False)
    kalai_smorodinsky_terms: Terms | None = field(hash=False)
    best_joint_terms: Terms | None = field(hash=False)
    size: int

    def shares(self, payoffs: Sequence[float]) -> Payoffs:
        """Per seat (u - no_agreement) / (best - no_agreement), not clipped; 0 where nothing can be gained."""
        rows = zip(payoffs, self.disagreement, self.best, strict=True)
        return tuple((u - d) / (best - d) if best > d else 0.0 for u, d, best in rows)

    def efficiency(self, payoffs: Sequence[float]) -> float:
        """Joint gain over the best joint gain, at most 1 for an attainable outcome.

        Where nothing can be gained jointly: 1 if nothing was lost, else 0.
        """
        base = math.fsum(self.disagreement)
        gain, best = math.fsum(payoffs) - base, math.fsum(self.best_joint) - base
        return gain / best if best > 0 else float(gain >= 0)

    def times(self, rounds: int) -> ReferencePoints:
        """Returns the points of a game of several equal rounds in which the seats choose alike in all of them."""
        scaled: dict[str, Any] = {
            name: tuple(rounds * payoff for payoff in getattr(self, name))
            for name in ("best", "disagreement", "nash", "egalitarian", "kalai_smorodinsky", "best_joint")
        }
        frontier = tuple(tuple(rounds * payoff for payoff in point) for point in self.frontier)
        return replace(self, frontier=frontier, **scaled)

    def fairness(self, payoffs: Sequence[float]) -> float:
        """1 - (greatest - least share), shares clipped to [0, 1], over the seats that can gain; 1 where none can."""
        seats = zip(self.shares(payoffs), self.best, self.disagreement, strict=True)
        shares = [min(max(share, 0.0), 1.0) for share, best, d in seats if best > d]
        return 1.0 - (max(shares) - min(shares)) if shares else 1.0


def reference_points(spec: OutcomeSpec, names: Seats) -> ReferencePoints:
    """Computes the reference points of a task.

    Raises:
        InvalidValueError: the space has more than 10⁶ outcomes, or ``names`` another number of seats.
    """
    check_seats(spec, len(names))
    space, rules = spec.space(names), spec.protocol
    if rules.kind == "choices" and rules.stock is not None:
        from sotopia_env.outcomes.solutions.stocks import best_uses

        return _symmetric(best_uses(rules, spec.worth[0], len(names)), len(names))
    if space.size > MOST_OUTCOMES:
        raise InvalidValueError(
            f"exact reference points need at most {MOST_OUTCOMES:,} outcomes, got {count_text(space.size)}",
            field="outcome.issues",
            hint="take larger steps or fewer options",
        )
    valuations = [worth.valuation(space, agent) for agent, worth in zip(names, spec.worth, strict=True)]
    points = _Points(space, valuations, *_needs(spec, len(names))).references()
    return points.times(rules.length) if rules.kind == "choices" else points


def _symmetric(best: tuple[float, float, float], seats: int) -> ReferencePoints:
    """The reference points of a stock that is worth the same to all: an equal division of the best solves it."""
    own, joint, nothing = best
    equal = (joint / seats,) * seats
    none = (None,) * seats
    points = (equal,) * 4
    return ReferencePoints((own,) * seats, (nothing,) * seats, (equal,), *points, none, None, None, None, None, 1)


def _needs(spec: OutcomeSpec, seats: int) -> tuple[int, tuple[int, ...]]:
    """The number of seats whose assent an outcome needs, and the seats that must be among them."""
    rules = spec.protocol
    if isinstance(rules, BallotRules):
        # One vote wins a plurality if nobody else votes.
        return {"plurality": 1, "majority": seats // 2 + 1, "unanimity": seats}[rules.rule], ()
    if isinstance(rules, AgreementRules):
        if isinstance(rules.needs, Quorum):
            return rules.needs.quorum, tuple(int(agent.removeprefix("agent_")) for agent in rules.needs.veto)
        return seats, ()
    if isinstance(rules, ClaimsRules):
        return (seats if rules.needs == "all" else 1), ()
    return 0, ()  # whatever the seats choose is played: nobody is asked for assent


class _Points:
    """All payoffs of a space as whole numbers (outcomes × seats), each column in parts of its seat's scale.

    Rows are numbers of outcomes in the order of the space.
    """

    def __init__(self, space: OutcomeSpace, valuations: list[Valuation], quorum: int, veto: tuple[int, ...]) -> None:
        import numpy as np

        self.space = space
        self.scales = [valuation.scale for valuation in valuations]
        self.disagreement = [valuation.disagreement for valuation in valuations]
        # Each seat has its own scale; in the common unit payoffs can be added and compared.
        unit = math.lcm(*self.scales)
        self.factors = [unit // scale for scale in self.scales]
        # Payoffs: outcomes × seats. No later step exceeds a difference of two joint payoffs in the common unit.
        payoffs = np.stack([_column(space, valuation) for valuation in valuations], axis=1)
        largest = max(int(np.abs(payoffs).max()), *map(abs, self.disagreement)) * max(self.factors)
        self.payoffs: NDArray[Any] = _wide(payoffs, 2 * largest * len(valuations))
        # Shape (outcomes, seats): whether the seat gets at least its ``no_agreement``.
        rational = np.stack([self.payoffs[:, i] >= d for i, d in enumerate(self.disagreement)], axis=1)
        self.rational = np.asarray(rational.all(axis=1))
        # Attainable: enough seats, and every seat with a veto, lose nothing by agreeing.
        self.possible = np.flatnonzero((rational.sum(axis=1) >= quorum) & rational[:, list(veto)].all(axis=1))

    def references(self) -> ReferencePoints:
        from sotopia_env.outcomes.solutions.frontier import pareto

        frontier = pareto(self.payoffs)
        best = [self._best(seat) for seat in range(len(self.scales))]
        nash, egalitarian, smorodinsky = self._solutions(frontier, best)
        joint = self._best_joint()
        return ReferencePoints(
            best=tuple(self._payoffs(row)[seat] for seat, row in enumerate(best)),
            disagreement=self._payoffs(None),
            frontier=self._all_payoffs(frontier),
            nash=self._payoffs(nash),
            egalitarian=self._payoffs(egalitarian),
            kalai_smorodinsky=self._payoffs(smorodinsky),
            best_joint=self._payoffs(joint),
            best_terms=tuple(self._terms(row) for row in best),
            nash_terms=self._terms(nash),
            egalitarian_terms=self._terms(egalitarian),
            kalai_smorodinsky_terms=self._terms(smorodinsky),
            best_joint_terms=self._terms(joint),
            size=self.space.size,
        )

    def _solutions(self, frontier: NDArray[Any], best: list[int | None]) -> tuple[int | None, int | None, int | None]:
        """Nash, egalitarian and Kalai-Smorodinsky."""
        # An outcome that dominates a rational one is rational, too, so the best rational ones are on the frontier.
        rows = frontier[self.rational[frontier]]
        if not len(rows):
            return None, None, None
        gains = self.payoffs[rows] - self.disagreement
        # Gains of different seats are compared, hence the common unit.
        egalitarian = self._argmax(rows, (gains * self.factors).min(axis=1))
        return self._nash(rows, gains), egalitarian, self._kalai_smorodinsky(rows, gains, best)

    def _nash(self, rows: NDArray[Any], gains: NDArray[Any]) -> int:
        import numpy as np

        # Floats find the few rows that may be best; only these are multiplied exactly.
        most = gains.max(axis=0)
        near = _near((gains / np.maximum(most, 1)).astype(float).prod(axis=1))
        bound = math.prod(int(gain) for gain in most)
        return self._argmax(rows[near], _wide(gains[near], bound).prod(axis=1))

    def _kalai_smorodinsky(self, rows: NDArray[Any], gains: NDArray[Any], best: list[int | None]) -> int:
        import numpy as np

        attainable = {
            seat: int(self.payoffs[row, seat]) - self.disagreement[seat]
            for seat, row in enumerate(best)
            if row is not None
        }
        # Nobody can gain, so all rational outcomes tie; ``_argmax`` breaks the tie.
        if not attainable:
            return self._argmax(rows, np.zeros(len(rows), dtype=np.int64))
        gains, most = gains[:, list(attainable)], list(attainable.values())
        near = _near((gains / most).astype(float).min(axis=1))
        # Shares in parts of one whole number, so that they compare exactly.
        unit = math.lcm(*most)
        return self._argmax(rows[near], (_wide(gains[near], unit) * [unit // gain for gain in most]).min(axis=1))

    def _payoffs(self, row: int | None) -> Payoffs:
        # ``tolist`` gives Python's whole numbers, whose division rounds only once.
        exact = self.disagreement if row is None else self.payoffs[row].tolist()
        return tuple(payoff / scale for payoff, scale in zip(exact, self.scales, strict=True))

    def _all_payoffs(self, rows: NDArray[Any]) -> tuple[Payoffs, ...]:
        import numpy as np

        exact = self.payoffs[rows]
        # Above 2**53 a quotient of floats would be rounded twice; Python's division of whole numbers is exact.
        whole = np.int64 if max(int(np.abs(exact).max()), *self.scales) < 2**53 else object
        return tuple(map(tuple, (exact.astype(whole) / np.array(self.scales, dtype=whole)).tolist()))

    def _joint(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The sum over seats, in parts of their common unit."""
        total: NDArray[Any] = (self.payoffs[rows] * self.factors).sum(axis=1)
        return total

    def _argmax(self, rows: NDArray[Any], objective: NDArray[Any]) -> int:
        # Ties go to the greater joint payoff, then to the earliest outcome.
        rows = rows[objective == objective.max()]
        if len(rows) > 1:
            joint = self._joint(rows)
            rows = rows[joint == joint.max()]
        return int(rows.min())

    def _best(self, seat: int) -> int | None:
        column = self.payoffs[self.possible, seat]
        # No attainable outcome beats the disagreement, so that is the seat's best.
        if not len(column) or column.max() <= self.disagreement[seat]:
            return None
        return self._argmax(self.possible, column)

    def _best_joint(self) -> int | None:
        if not len(self.possible):
            return None
        joint = self._joint(self.possible)
        floor = sum(d * factor for d, factor in zip(self.disagreement, self.factors, strict=True))
        return self._argmax(self.possible, joint) if joint.max() > floor else None

    def _terms(self, row: int | None) -> Terms | None:
        return None if row is None else self.space.terms_at(row)


def _near(objective: NDArray[Any]) -> NDArray[Any]:
    """Mask of the rows that could hold the exact maximum of a rounded objective: few, so exact arithmetic is cheap."""
    # For tiny products the relative margin would fall below the smallest float: all rows are kept then.
    top = objective.max()
    near: NDArray[Any] = objective >= (top * (1 - 1e-9) if top > 1e-200 else 0.0)
    return near


def _wide(values: NDArray[Any], bound: int) -> NDArray[Any]:
    """Returns ``values`` as Python's whole numbers where ``bound`` says that 64 bits could overflow."""
    return values if bound < 2**62 else values.astype(object)


def _column(space: OutcomeSpace, valuation: Valuation) -> NDArray[Any]:
    """One seat's payoffs over all outcomes, in the order of the space; 64-bit where they fit."""
    import numpy as np

    if valuation.table is not None:
        parts = [[valuation.exact(space, terms) for terms in space.outcomes()]]
    else:
        parts = [[valuation.constant], *valuation.columns(space)]
    largest = sum(max(map(abs, part)) for part in parts)
    dtype = np.int64 if largest < 2**62 else object
    column = np.zeros(1, dtype=dtype)
    # Outer sums, flattened row by row, because the last issue varies fastest.
    for part in parts:
        column = np.add.outer(column, np.array(part, dtype=dtype)).reshape(-1)
    return column
