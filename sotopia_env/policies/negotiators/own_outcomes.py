"""The outcomes of a space in the order of one seat's worth, from what the seat itself knows."""

from __future__ import annotations

import itertools
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.outcomes.amounts import count_text
from sotopia_env.outcomes.issues import NumberIssue
from sotopia_env.outcomes.space import OutcomeSpace, Terms
from sotopia_env.outcomes.valuation import WorthForm

MOST_RANKED = 100_000
"""The number of outcomes above which :func:`own_outcomes` uses a coarser grid of the numbers."""


def own_outcomes(space: OutcomeSpace, worth: WorthForm, agent: str | None = None) -> list[tuple[Terms, float]]:
    """Returns outcomes with their worth to one seat, best first; equally good ones in the order of the space.

    All outcomes, if there are at most 10⁵. In a larger space, number issues get a coarser grid: the issue with the most
    values keeps every second value and its highest one, repeatedly, until at most 10⁵ outcomes are left.

    Raises:
        InvalidValueError: there are too many outcomes even with the coarsest grid, because of choices and divisions.
    """
    values = _thinned(space)
    valuation = worth.valuation(space, agent)
    names = [issue.name for issue in space.issues]
    rows = [dict(zip(names, row, strict=True)) for row in itertools.product(*values)]
    # A stable sort: equally good outcomes keep the order of the space.
    ranked = sorted(((valuation.exact(space, terms), terms) for terms in rows), key=lambda pair: -pair[0])
    return [(terms, exact / valuation.scale) for exact, terms in ranked]


def _thinned(space: OutcomeSpace) -> list[list[Any]]:
    seats = len(space.names)
    sizes = [issue.size(seats) for issue in space.issues]
    strides = [1] * len(sizes)
    # Doubling the stride of the finest number keeps the grids of several numbers about equally fine.
    while _product(sizes, strides) > MOST_RANKED:
        numbers = [
            i for i, issue in enumerate(space.issues) if issue.kind == "number" and _points(sizes[i], strides[i]) > 2
        ]
        if not numbers:
            raise InvalidValueError(
                field="space", expected=f"at most {MOST_RANKED} outcomes to rank", got=Verbatim(count_text(space.size))
            )
        strides[max(numbers, key=lambda i: _points(sizes[i], strides[i]))] *= 2
    grids: list[list[Any]] = []
    for issue, size, stride in zip(space.issues, sizes, strides, strict=True):
        if isinstance(issue, NumberIssue):
            # The highest value stays, even where the stride would skip it.
            indexes = [*range(0, size - 1, stride), size - 1]
            grids.append([issue.value_at(index) for index in indexes])
        else:
            grids.append(list(issue.values(space.names)))
    return grids


def _points(size: int, stride: int) -> int:
    return len(range(0, size - 1, stride)) + 1


def _product(sizes: list[int], strides: list[int]) -> int:
    total = 1
    for size, stride in zip(sizes, strides, strict=True):
        total *= _points(size, stride)
    return total
