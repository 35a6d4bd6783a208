r"""An observer's estimate of the reservation value of a seat, from its offers.

The observer assumes concession with time (Faratin, Sierra and Jennings, "Negotiation decision functions for autonomous
agents", 1998): offers are worth :math:`a + (r - a)\, t^{1/e}` to the seat at time :math:`t`, from the first offer
:math:`a` to the reservation value :math:`r` at the deadline. It knows deadline, first offer and outcome space, and fits
:math:`r` and the exponent :math:`e` by least squares on a grid. Early offers of a seat that concedes late fit many
reservation values; the estimate is the mean of those that fit almost as well as the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_OFFERS = 3
"""The number of offers below which nothing is estimated."""
_EXPONENTS = np.geomspace(0.1, 10, 21)  # from late (boulware) to early concession (conceder)
_RESERVATIONS = 81
_TOLERANCE = 0.01  # of the range of reservation values, since offers are rounded to outcomes


def reservation_estimate(times: Sequence[float], worths: Sequence[float], worst: float) -> float | None:
    """Returns the estimated reservation value; ``None`` for fewer than three offers.

    Args:
        times: the time of each offer, ascending, from 0 in the seat's first turn to 1 in its last before the deadline.
        worths: the worth of each offer to the seat.
        worst: the worth of the worst outcome, at or below which no reservation value is expected.
    """
    if len(worths) < LEAST_OFFERS:
        return None
    first, lowest = worths[0], min(worths)
    since = (np.array(times) - times[0]) / max(1 - times[0], 1e-9)
    progress = np.clip(since, 0, 1)[None, None, :] ** (1 / _EXPONENTS[:, None, None])
    # A seat has not offered less than its reservation value.
    reservations = np.linspace(min(worst, lowest), lowest, _RESERVATIONS)
    curves = first + (reservations[None, :, None] - first) * progress  # exponents × reservation values × offers
    errors = np.sqrt(((curves - np.array(worths)) ** 2).mean(axis=2))
    near = errors <= errors.min() + _TOLERANCE * (first - reservations[0])
    return float(np.broadcast_to(reservations, errors.shape)[near].mean())
