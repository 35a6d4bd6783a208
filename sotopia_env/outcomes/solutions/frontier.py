"""The Pareto frontier of many points in any number of dimensions, exactly, by divide and conquer.

Kung, Luccio and Preparata (1975), "On finding the maxima of a set of vectors": O(n log n) for two and three dimensions,
O(n (log n)^(d-2)) for d. Points are compared by their ranks (whole numbers), so nothing is rounded. Before two sets are
divided further, points outside the other set's bounds are left out: where interests are opposed and nearly every
point is optimal, little is left to compare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

# Up to this many points are compared pair by pair.
_LEAF = 256
# The same for the pairs of two sets: below it, calling NumPy costs more than the arithmetic.
_AREA = 1 << 17
# This many of the strongest points go first: in most spaces they dominate nearly all others.
_HEAD = 256


def pareto(payoffs: NDArray[Any]) -> Rows:
    """Returns the optimal rows of ``payoffs`` (points × dimensions): none equals or beats them in every column.

    Of equal points the first is returned. The rows come in the order of their points, ascending.
    """
    # Ranks instead of payoffs: only the order counts, and whole numbers compare exactly.
    columns = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in payoffs.T]
    # Dimensions × points, so that each column is contiguous in memory.
    ranks = np.stack(columns).astype(np.int32)
    distinct = _distinct(ranks)
    # The cloud numbers the distinct points; ``distinct`` maps them back to rows of ``payoffs``.
    optimal = _Cloud(ranks[:, distinct], _sums(payoffs[distinct])).maxima()
    return np.asarray(distinct[np.sort(optimal)])


def _distinct(ranks: NDArray[np.int32]) -> Rows:
    """The first occurrence of every distinct point, in ascending order."""
    # Stable: equal points stay in their order.
    order = np.lexsort(ranks[::-1])
    ordered = ranks[:, order]
    first = np.ones(ranks.shape[1], dtype=bool)
    # Equal points are neighbours in sorted order; shape (points - 1,).
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    return order[first]


def _sums(payoffs: NDArray[Any]) -> NDArray[np.float64]:
    """Cumulative sums of the columns, each scaled to [0, 1]: row ``d`` sums columns 0 to ``d``.

    Rounding is monotone: a point that equals or beats another in these columns has no smaller sum.
    """
    values = payoffs.astype(np.float64)
    # Shape (points, dimensions), scaled so that no column dominates the sums.
    values -= values.min(axis=0)
    spread = values.max(axis=0)
    return np.ascontiguousarray(np.cumsum(values / np.where(spread > 0, spread, 1.0), axis=1).T)


class _Cloud:
    """The distinct points; a set of them is an array of their row numbers."""

    def __init__(self, ranks: NDArray[np.int32], sums: NDArray[np.float64]) -> None:
        self.ranks = ranks
        self.sums = sums

    def maxima(self) -> Rows:
        """The points that no other equals or beats in every dimension."""
        dimensions = len(self.ranks)
        strongest = np.argsort(-self.sums[-1], kind="stable")
        head, rest = strongest[:_HEAD], strongest[_HEAD:]
        alive = np.concatenate([head, rest[~self._covered(head, rest, dimensions)]])
        return self._maxima(alive, dimensions)

    def _maxima(self, points: Rows, dimensions: int) -> Rows:
        if len(points) <= _LEAF:
            # A point covers itself; another that covers it, being distinct, dominates it.
            return np.asarray(points[self._pairs(points, points, dimensions).sum(axis=0) == 1])
        column = self.ranks[dimensions - 1, points]
        if dimensions == 1:
            return np.asarray(points[column == column.max()])
        high = _split(column)
        if high is None:
            return self._maxima(points, dimensions - 1)
        upper = self._maxima(points[high], dimensions)
        lower = self._maxima(points[~high], dimensions)
        # The upper points are strictly better in the last dimension: as good in all others is enough.
        lower = lower[~self._covered(upper, lower, dimensions - 1)]
        return np.concatenate([upper, lower])

    def _covered(self, upper: Rows, lower: Rows, dimensions: int) -> Mask:
        """Mask over ``lower``: whether a point of ``upper`` equals or beats it in each of the first ``dimensions``."""
        mask = np.zeros(len(lower), dtype=bool)
        if len(upper) and len(lower):
            if dimensions <= 2:
                return self._covered_in_plane(upper, lower, dimensions)
            upper, open_ = self._within_bounds(upper, lower, dimensions)
            if len(upper) and len(open_):
                mask[open_] = self._covered_by_halves(upper, lower[open_], dimensions)
        return mask

    def _within_bounds(self, upper: Rows, lower: Rows, dimensions: int) -> tuple[Rows, Rows]:
        """The part of ``upper`` that could cover a point of ``lower``, and the positions of such points."""
        positions = np.arange(len(lower))
        for column in (self.sums[dimensions - 1], *self.ranks[:dimensions]):
            above, below = column[upper], column[lower[positions]]
            # A point that is below all of ``lower`` in one column covers none of them.
            upper = upper[above >= below.min()]
            positions = positions[below <= above.max()]
            if not len(upper) or not len(positions):
                break
        return upper, positions

    def _covered_by_halves(self, upper: Rows, lower: Rows, dimensions: int) -> Mask:
        if len(upper) * len(lower) <= _AREA:
            return np.asarray(self._pairs(upper, lower, dimensions).any(axis=0))
        column = self.ranks[dimensions - 1]
        high = _split(np.concatenate([column[upper], column[lower]]))
        if high is None:
            return self._covered(upper, lower, dimensions - 1)
        high_upper, high_lower = high[: len(upper)], high[len(upper) :]
        mask = np.zeros(len(lower), dtype=bool)
        # Points in the lower half cannot cover those in the upper half, so three of the four pairs of halves are left.
        mask[high_lower] = self._covered(upper[high_upper], lower[high_lower], dimensions)
        low = np.flatnonzero(~high_lower)
        # These are strictly better in this dimension, so the others decide.
        mask[low] = self._covered(upper[high_upper], lower[low], dimensions - 1)
        low = low[~mask[low]]
        mask[low] = self._covered(upper[~high_upper], lower[low], dimensions)
        return mask

    def _covered_in_plane(self, upper: Rows, lower: Rows, dimensions: int) -> Mask:
        if not dimensions:
            return np.ones(len(lower), dtype=bool)
        first = self.ranks[0]
        if dimensions == 1:
            return np.asarray(first[lower] <= first[upper].max())
        upper = upper[np.argsort(first[upper], kind="stable")]
        # The best second coordinate among the points whose first is at least as great; -1 if there is no such point.
        best = np.append(np.maximum.accumulate(self.ranks[1, upper][::-1])[::-1], -1)
        start = np.searchsorted(first[upper], first[lower], side="left")
        return np.asarray(best[start] >= self.ranks[1, lower])

    def _pairs(self, upper: Rows, lower: Rows, dimensions: int) -> Mask:
        """Mask of the pairs in which a point of ``upper`` (rows) covers one of ``lower`` (columns)."""
        above, below = self.ranks[:dimensions, upper], self.ranks[:dimensions, lower]
        # Shape (upper, lower); one dimension at a time, so that only one matrix is in memory.
        covers = np.asarray(above[0][:, None] >= below[0])
        for dimension in range(1, dimensions):
            covers &= above[dimension][:, None] >= below[dimension]
        return covers


def _split(column: NDArray[np.int32]) -> Mask | None:
    """Mask of the upper half; ``None`` if all values are equal."""
    middle = np.partition(column, len(column) // 2)[len(column) // 2]
    high = column >= middle
    # More than half of the values may equal the median, and then the parts are uneven.
    if high.all():
        high = column > middle
    return high if high.any() else None
