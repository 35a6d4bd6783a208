"""Means by the levels of a factor, and their differences: by tag, scenario, condition, participant and so on.

A difference is a *contrast*: weights of the levels that sum to 0. For two levels the weights are 1 and -1. In an
experiment with factors of two levels each (``status=boss, tone=warm`` and so on), the main effect of a factor is the
mean at one level minus the mean at the other, over all values of the other factors, and the interaction of two factors
is the difference of differences.

The unit follows from the level at which the factor varies (:mod:`sotopia_env.reports.seats.units`). If scenarios (or
vignettes) occur at all levels, the contrast is computed within each of them. If the factor varies between scenarios, as
tags do, the levels are independent groups of scenarios and the test is Welch's, with a variance that is at least the
pooled one (:func:`~sotopia_env.reports.intervals.contrast_estimate`). Within a single vignette, the same holds for its
castings. Where people play, people and scenarios are both units. With fewer than four units at a level there is no test
but the reason. Seats count only if their partner occurs, under the same rules, in all levels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.reports.intervals import CASTINGS, PARTICIPANTS, Bounds, Estimate, adjusted
from sotopia_env.reports.seat_results import FACTORS, SeatResult
from sotopia_env.reports.seats.units import (
    Side,
    Unit,
    among_people,
    averaged,
    independent,
    seat_difference,
    seat_mean,
    unit_of,
)

CONDITION, TAG = "condition", "tag"
_NOT_SHARED = "no seat, partner and rules in common; play all levels with the same partners and rules"
_OWN_SEATS = "no seat has had both; a difference would be one of seats"
MOST_PAIRS = 6
"""The maximum number of levels whose pairs are all compared; with more levels, and for tags, each level is compared
with all others together."""
OTHERS = "all others"
FEWEST = 4
"""The least number of units at each level of a contrast."""
NOTHING, PARTICIPANT, SCENARIO = "nothing", "participant", "scenario"
_ONE_BY_ONE = (
    "scenarios are not tested against one another, because a test is over scenarios and each level is one; to find out "
    "what makes them differ, give scenarios tags and use the factor tag"
)

_Groups = Mapping[str, Sequence[SeatResult]]


@dataclass(frozen=True, slots=True)
class LevelMean:
    """The mean of the metric for a policy at one level."""

    level: str
    policy: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference between levels, for one policy.

    Attributes:
        name: the levels or the effect that is compared.
        policy: the policy in the scored seat.
        paired_by: the kind of unit within which levels are compared; ``nothing`` for independent groups.
        estimate: the difference; ``None`` if it cannot be computed.
        missing: why it cannot be computed, and what would make it possible.
        left_out: the number of units (such as castings) with seats at one of the levels that are not in the difference:
            those without all levels if levels are compared within units, those with several levels if not, and those
            without the partner and rules of all levels.
        q: the Benjamini-Hochberg adjusted p-value over all contrasts of the comparison.
    """

    name: str
    policy: str
    paired_by: str
    estimate: Estimate | None
    missing: str = ""
    left_out: int = 0
    q: float | None = None


@dataclass(frozen=True, slots=True)
class ByLevel:
    """A metric by the levels of a factor.

    Attributes:
        factor: one of :data:`~sotopia_env.reports.seat_results.FACTORS`.
        metric: the metric of the means.
        left_out: the number of seats that do not belong to any level.
        means: the mean of each policy at each level.
        contrasts: the differences between levels, for each policy.
        note: why no differences are computed at all; empty if there are.
    """

    factor: str
    metric: str
    left_out: int
    means: tuple[LevelMean, ...]
    contrasts: tuple[Contrast, ...]
    note: str = ""


def by_level(rows: Sequence[SeatResult], factor: str, metric: str, bounds: Bounds) -> ByLevel:
    """Returns the means and contrasts of each policy.

    Raises:
        UnknownNameError: ``factor`` is unknown, or no seat belongs to one of its levels.
    """
    if factor not in FACTORS:
        raise UnknownNameError(field="by", got=factor, valid=FACTORS)
    valued = [row for row in rows if metric in row.values]
    design = {level: row.conditions for row in valued for level in row.levels[factor]}
    if not design:
        held = [name for name in FACTORS if any(row.levels.get(name) for row in valued)]
        hint = f"these episodes have {conjunction(held)}"
        hint += "; a condition is a tag NAME=VALUE of a scenario" if factor == CONDITION else ""
        raise UnknownNameError(field="by", expected=f"episodes whose tasks have a {factor}", hint=hint)
    means, contrasts = [], []
    for policy in sorted({row.policy for row in valued if row.levels[factor]}):
        own = averaged((row for row in valued if row.policy == policy), metric)
        # A person is a level of its own there, so the claim is about these people, over scenarios.
        people = factor != PARTICIPANT and any(seat.people for seat in own)
        groups: _Groups = {level: [seat for seat in own if level in seat.levels[factor]] for level in sorted(design)}
        means += [
            LevelMean(name, policy, _mean(group, metric, bounds, people)) for name, group in groups.items() if group
        ]
        weighted = _in_design(design, groups) if factor == CONDITION else _pairs(factor, groups, own)
        contrasts += [_contrast(name, policy, weights, of, metric, bounds, people) for name, weights, of in weighted]
    left_out = sum(not row.levels[factor] for row in valued)
    if factor == SCENARIO and len({row.vignette for row in valued}) > 1:
        # A level would have one unit, however many episodes are played.
        return ByLevel(factor, metric, left_out, tuple(means), (), _ONE_BY_ONE)
    q_values = adjusted([None if c.estimate is None else c.estimate.p for c in contrasts])
    tested = (replace(c, q=q) for c, q in zip(contrasts, q_values, strict=True))
    return ByLevel(factor, metric, left_out, tuple(means), tuple(tested))


def _mean(seats: Sequence[SeatResult], metric: str, bounds: Bounds, people: bool) -> Estimate:
    return seat_mean(seats if people else [replace(seat, people=()) for seat in seats], metric, bounds)


_Weighted = tuple[str, Mapping[str, float], _Groups]


def _pairs(factor: str, groups: _Groups, rows: Sequence[SeatResult]) -> Iterator[_Weighted]:
    """Yields name, weights and groups of the difference of every two levels, or of each level to all others."""
    # A seat may have several tags, so two tags may be the same seats; a tag and its complement never are.
    if factor != TAG and len(groups) <= MOST_PAIRS:
        for first, second in itertools.combinations(groups, 2):
            yield f"{first} - {second}", {first: 1.0, second: -1.0}, groups
        return
    for level, group in groups.items():
        others = [row for row in rows if row.levels[factor] and level not in row.levels[factor]]
        yield f"{level} - {OTHERS}", {level: 1.0, OTHERS: -1.0}, {level: group, OTHERS: others}


_Design = Mapping[str, Mapping[str, str]]
"""The values of each condition, by factor."""


def _in_design(values: _Design, groups: _Groups) -> Iterator[_Weighted]:
    """Yields main effects, interactions, and the differences of conditions that differ in exactly one factor."""
    for effect, weights in _effects(values):
        yield effect, weights, groups
    for first, second in itertools.combinations(groups, 2):
        (one, other), names = (values[first], values[second]), sorted({*values[first], *values[second]})
        unlike = [name for name in names if one.get(name) != other.get(name)]
        if len(unlike) == 1:
            rest = "".join(f", {name}={one[name]}" for name in names if name not in unlike)
            name = f"{unlike[0]}: {one.get(unlike[0])} - {other.get(unlike[0])}{rest}"
            yield name, {first: 1.0, second: -1.0}, groups


def _effects(values: _Design) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yields main effects and interactions of the factors with two values, if all combinations of values occur."""
    names = sorted({name for item in values.values() for name in item})
    spans = {name: sorted({item.get(name, "") for item in values.values()}) for name in names}
    if len(names) < 2 or math.prod(map(len, spans.values())) != len(values):
        return
    signs = {
        name: {level: 1.0 if item[name] == span[0] else -1.0 for level, item in values.items()}
        for name, span in spans.items()
        if len(span) == 2
    }
    share = 2 / len(values)
    for name, sign in signs.items():
        yield f"{name}: {' - '.join(spans[name])}", {level: sign[level] * share for level in values}
    for one, other in itertools.combinations(signs, 2):
        yield f"{one} × {other}", {level: signs[one][level] * signs[other][level] * 2 * share for level in values}


def _contrast(
    name: str, policy: str, weights: Mapping[str, float], groups: _Groups, metric: str, bounds: Bounds, people: bool
) -> Contrast:
    empty = [level for level in weights if not groups[level]]
    if empty:
        return Contrast(name, policy, NOTHING, None, f"no seats of {empty[0]}; play tasks that have it")
    every_unit = unit_of(list(itertools.chain.from_iterable(groups[level] for level in weights)))[1]
    played = {every_unit(seat) for level in weights for seat in groups[level]}
    seats = set.intersection(*({seat.seat for seat in groups[level]} for level in weights))
    groups = _with_common_seats({level: groups[level] for level in weights})
    every = list(itertools.chain.from_iterable(groups.values()))
    if not every:
        return Contrast(name, policy, NOTHING, None, _NOT_SHARED if seats else _OWN_SEATS, len(played))
    over, unit = unit_of(every)
    units = {level: {unit(seat) for seat in seats} for level, seats in groups.items()}
    common = set.intersection(*units.values())
    # A factor varies within units if most of those with the rarest level have all levels; the other units, or those
    # with several levels, cannot be in the same test.
    within = 2 * len(common) >= min(map(len, units.values())) and bool(common)
    sides = [
        (weight, [seat for seat in groups[level] if (unit(seat) in common) is within])
        for level, weight in weights.items()
    ]
    paired_by = over.removesuffix("s") if within else NOTHING
    left_out = len(played - {every_unit(seat) for _, seats in sides for seat in seats})
    few = _too_few(weights, sides, over, unit, people)
    if few:
        return Contrast(name, policy, paired_by, None, few, left_out)
    if people:
        return Contrast(name, policy, paired_by, among_people(sides, metric, bounds), left_out=left_out)
    test = seat_difference if within else independent
    return Contrast(name, policy, paired_by, test(sides, metric, bounds, unit, over), left_out=left_out)


def _too_few(levels: Iterable[str], sides: Sequence[Side], over: str, unit: Unit, people: bool) -> str:
    """Why there are too few units for a test; empty if there are enough."""
    counts: list[tuple[str, Callable[[SeatResult], Sequence[str]]]] = [(over, lambda seat: (unit(seat),))]
    if people:
        counts = [(PARTICIPANTS, lambda seat: seat.people), *(counts if over != CASTINGS else ())]
    for kind, labels in counts:
        for level, (_, seats) in zip(levels, sides, strict=True):
            count = len({label for seat in seats for label in labels(seat)})
            if count < FEWEST:
                return f"{count} {kind} at {level}; a test needs {FEWEST} at each level"
    return ""


def _with_common_seats(groups: _Groups) -> dict[str, list[SeatResult]]:
    common = set.intersection(*({_place(row) for row in rows} for rows in groups.values()))
    return {level: [row for row in rows if _place(row) in common] for level, rows in groups.items()}


def _place(seat: SeatResult) -> tuple[object, ...]:
    return seat.seat, seat.partner, seat.rules
