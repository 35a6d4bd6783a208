"""Means by the levels of a factor, and their differences: by tag, scenario, condition, participant and so on.

A difference is a *contrast*: weights of the levels that sum to 0. For two levels the weights are 1 and -1. In an
experiment with factors of two levels each (``status=boss, tone=warm`` and so on), the main effect of a factor is the
mean at one level minus the mean at the other, over all values of the other factors, and the interaction of two factors
is the difference of differences.

If units of the levels can be paired, the contrast is computed within each unit, seat and partner. Units are
participants, else vignettes (a scenario with its versions), else castings. Otherwise the levels are independent groups
of participants, scenarios or castings (:func:`~sotopia_env.reports.intervals.contrast_estimate`). Seats count only if
their partner occurs in all levels.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.reports.intervals import (
    CASTINGS,
    PARTICIPANTS,
    VIGNETTES,
    Bounds,
    Estimate,
    contrast_estimate,
    difference_estimate,
    estimate,
)
from sotopia_env.reports.seat_results import FACTORS, SeatResult, clusters_of

CONDITION, TAG = "condition", "tag"
MOST_PAIRS = 6
"""The maximum number of levels whose pairs are all compared; with more levels, and for tags, each level is compared
with all others together."""
OTHERS = "all others"

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
        missing: why it cannot be computed.
        q: the Benjamini-Hochberg adjusted p-value over all contrasts of the comparison.
    """

    name: str
    policy: str
    paired_by: str
    estimate: Estimate | None
    missing: str = ""
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
    """

    factor: str
    metric: str
    left_out: int
    means: tuple[LevelMean, ...]
    contrasts: tuple[Contrast, ...]


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
        hint = "a condition is a tag NAME=VALUE of a scenario" if factor == CONDITION else ""
        raise UnknownNameError(field="by", expected=f"episodes whose tasks have a {factor}", hint=hint)
    means, contrasts = [], []
    for policy in sorted({row.policy for row in valued if row.levels[factor]}):
        own = [row for row in valued if row.policy == policy]
        groups: _Groups = {level: [row for row in own if level in row.levels[factor]] for level in sorted(design)}
        means += [LevelMean(level, policy, _mean(group, metric, bounds)) for level, group in groups.items() if group]
        weighted = _in_design(design, groups) if factor == CONDITION else _pairs(factor, groups, own)
        contrasts += [_contrast(name, policy, weights, members, metric, bounds) for name, weights, members in weighted]
    left_out = sum(not row.levels[factor] for row in valued)
    return ByLevel(factor, metric, left_out, tuple(means), tuple(contrasts))


def _mean(rows: Sequence[SeatResult], metric: str, bounds: Bounds) -> Estimate:
    (clusters,), over = clusters_of(rows)
    return estimate([row.values[metric] for row in rows], clusters, bounds, over)


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
    name: str, policy: str, weights: Mapping[str, float], groups: _Groups, metric: str, bounds: Bounds
) -> Contrast:
    empty = [level for level in weights if not groups[level]]
    if empty:
        return Contrast(name, policy, "nothing", None, f"no seats of {empty[0]}")
    groups = _with_common_seats({level: groups[level] for level in weights})
    if not all(groups.values()):
        return Contrast(name, policy, "nothing", None, "no seat and partner in common")
    for over, unit in _UNITS:
        paired = _paired(groups, weights, unit, metric)
        units = [key[0] for key in paired]
        # The unit is "" for a seat without a person, so seats are paired by participants only if all have one.
        if len(set(units)) > 1 and "" not in units:
            # A contrast is largest with all positive weights at one end of the range and all negative at the other.
            largest = sum(map(abs, weights.values())) / 2
            scaled = (bounds[0] * largest, bounds[1] * largest)
            difference = difference_estimate(list(paired.values()), units, scaled, over)
            return Contrast(name, policy, over.removesuffix("s"), difference)
    return Contrast(name, policy, "nothing", _unpaired(groups, weights, metric, bounds))


_Unit = Callable[[SeatResult], str]
_UNITS: tuple[tuple[str, _Unit], ...] = (
    (PARTICIPANTS, lambda row: row.participant),
    (VIGNETTES, lambda row: row.vignette),
    (CASTINGS, lambda row: row.casting),
)


def _with_common_seats(groups: _Groups) -> dict[str, list[SeatResult]]:
    common = set.intersection(*({(row.seat, row.partner) for row in rows} for rows in groups.values()))
    return {level: [row for row in rows if (row.seat, row.partner) in common] for level, rows in groups.items()}


def _paired(
    groups: _Groups, weights: Mapping[str, float], unit: _Unit, metric: str
) -> dict[tuple[str, int, str], float]:
    """The contrast within each unit, seat and partner that occurs at all levels."""
    means = {level: _means(rows, unit, metric) for level, rows in groups.items()}
    common = set.intersection(*(set(item) for item in means.values()))
    return {key: math.fsum(weights[level] * means[level][key] for level in weights) for key in sorted(common)}


def _means(rows: Sequence[SeatResult], unit: _Unit, metric: str) -> dict[tuple[str, int, str], float]:
    values: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for row in rows:
        values[unit(row), row.seat, row.partner].append(row.values[metric])
    return {key: math.fsum(group) / len(group) for key, group in values.items()}


def _unpaired(groups: _Groups, weights: Mapping[str, float], metric: str, bounds: Bounds) -> Estimate:
    labels, over = clusters_of(*groups.values())
    parts = [
        (weights[level], [row.values[metric] for row in rows], clusters)
        for (level, rows), clusters in zip(groups.items(), labels, strict=True)
    ]
    return contrast_estimate(parts, bounds, over)
