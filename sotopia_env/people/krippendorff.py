r"""Krippendorff's alpha for ordinal scores (Krippendorff 2019, chapter 12).

.. math:: \alpha = 1 - (n - 1) \frac{\sum_{ck} o_{ck} \delta^2_{ck}}{\sum_{ck} n_c n_k \delta^2_{ck}}

with the coincidences :math:`o_{ck}` of two scores in one seat, their sums :math:`n_c` and ``n``, and the ordinal
distance :math:`\delta_{ck} = \sum_{g=c}^{k} n_g - (n_c + n_k) / 2`. Unlike Randolph's kappa, alpha is 0 for independent
raters whatever the frequencies of their scores, and a difference of one point counts less than one of ten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]


def coincidences(items: Sequence[Sequence[float]], values: Sequence[float]) -> _Array:
    """Returns the coincidence matrix, of shape (values, values), of the scores of several items.

    Args:
        items: the scores of each item, by any number of raters; items with fewer than two do not count.
        values: the possible scores, in order.
    """
    at = {value: position for position, value in enumerate(values)}
    matrix = np.zeros((len(values), len(values)))
    for scores in items:
        if len(scores) > 1:
            counts = np.bincount([at[score] for score in scores], minlength=len(values)).astype(np.float64)
            # Pairs of different raters: a rating is not paired with itself.
            matrix += (np.outer(counts, counts) - np.diag(counts)) / (len(scores) - 1)
    return matrix


def ordinal_alpha(matrix: _Array) -> float | None:
    """Returns alpha of a coincidence matrix, at most 1; ``None`` if all scores are the same."""
    counts = matrix.sum(axis=0)
    total, upto = counts.sum(), np.cumsum(counts)
    # The ranks of scores in the middle of their ties: their differences are the ordinal distances.
    middle = upto - counts / 2
    squared = (middle[:, None] - middle[None, :]) ** 2
    expected = float(counts @ squared @ counts)
    return None if expected < 1e-9 else 1 - (total - 1) * float((matrix * squared).sum()) / expected
