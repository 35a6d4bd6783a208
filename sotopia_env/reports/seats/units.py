"""The units that intervals and tests are over: those from which a reader would generalise.

They are scenarios (a vignette with all its versions is one). Where people play, people and scenarios are crossed and
both are units. Within one vignette they are its *distinct* castings: the same characters in the same seats are one
casting, however many rows it has. Repeats of a seat are averaged first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sotopia_env.reports.intervals import (
    CASTINGS,
    PARTICIPANTS,
    SCENARIOS,
    VIGNETTES,
    Bounds,
    Estimate,
    contrast_estimate,
    difference_estimate,
    estimate,
)
from sotopia_env.reports.seat_results import SeatResult, shared_seat
from sotopia_env.reports.seats.crossed import crossed_estimate

Unit = Callable[[SeatResult], str]
Side = tuple[float, Sequence[SeatResult]]
"""A weight, and seats without repeats."""


def averaged(rows: Iterable[SeatResult], metric: str) -> list[SeatResult]:
    """Returns each seat with a value once, with the mean of its repeats; an episode of other people is another one."""
    groups: dict[tuple[object, ...], list[SeatResult]] = defaultdict(list)
    for row in rows:
        if metric in row.values:
            groups[(row.policy, *shared_seat(row), row.people)].append(row)
    # Sorted, so that sums of floats do not depend on the order of the rows; ``repr``, because keys mix types.
    return [_mean_of(groups[key], metric) for key in sorted(groups, key=repr)]


def _mean_of(repeats: Sequence[SeatResult], metric: str) -> SeatResult:
    if len(repeats) == 1:
        return repeats[0]
    mean = math.fsum(row.values[metric] for row in repeats) / len(repeats)
    return replace(repeats[0], values={metric: mean})


def unit_of(seats: Sequence[SeatResult]) -> tuple[str, Unit]:
    """Returns the kind of unit without people: scenarios, or the castings of a single vignette."""
    if len({seat.vignette for seat in seats}) == 1:
        return CASTINGS, lambda seat: seat.casting
    over = VIGNETTES if any(seat.vignette != seat.scenario for seat in seats) else SCENARIOS
    return over, lambda seat: seat.vignette


def seat_mean(seats: Sequence[SeatResult], metric: str, bounds: Bounds) -> Estimate:
    """Returns the mean of seats without repeats (:func:`averaged`)."""
    if any(seat.people for seat in seats):
        return among_people([(1.0, seats)], metric, bounds)
    over, unit = unit_of(seats)
    return estimate([seat.values[metric] for seat in seats], [unit(seat) for seat in seats], bounds, over)


def seat_difference(sides: Sequence[Side], metric: str, bounds: Bounds, unit: Unit, over: str) -> Estimate:
    """Returns a contrast within units; every unit has seats on all sides, and each unit the same weight."""
    means: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for index, (_, seats) in enumerate(sides):
        for seat in seats:
            means[unit(seat)][index].append(seat.values[metric])
    values = [
        math.fsum(weight * math.fsum(own[index]) / len(own[index]) for index, (weight, _) in enumerate(sides))
        for own in means.values()
    ]
    largest = math.fsum(abs(weight) for weight, _ in sides) / 2
    result = difference_estimate(values, list(means), (bounds[0] * largest, bounds[1] * largest), over)
    return replace(result, n=min(len(seats) for _, seats in sides))


def independent(sides: Sequence[Side], metric: str, bounds: Bounds, unit: Unit, over: str) -> Estimate:
    """Returns a contrast of sides that share no units, by Welch's test of the units' means."""
    parts = [
        (weight, [seat.values[metric] for seat in seats], [unit(seat) for seat in seats]) for weight, seats in sides
    ]
    return contrast_estimate(parts, bounds, over)


def among_people(sides: Sequence[Side], metric: str, bounds: Bounds) -> Estimate:
    """Returns a mean or a contrast where people play: over people and scenarios, or over the people of one vignette."""
    every = [seat for _, seats in sides for seat in seats]
    one, (_, unit) = len({seat.vignette for seat in every}) == 1, unit_of(every)
    groups = [
        (
            weight,
            [seat.values[metric] for seat in seats],
            # Within one vignette, the people are the only unit, and each has the same weight.
            [_own(seat)[0] if one else unit(seat) for seat in seats],
            [_own(seat) if one and not seat.people else seat.people for seat in seats],
        )
        for weight, seats in sides
    ]
    result = crossed_estimate(groups, bounds)
    return replace(result, over=PARTICIPANTS) if one else result


def _own(seat: SeatResult) -> tuple[str, ...]:
    """The person in the seat, else the people in the others; seats without people are one more unit."""
    return (seat.participant or "+".join(seat.people) or f"nobody in {seat.vignette}",)
