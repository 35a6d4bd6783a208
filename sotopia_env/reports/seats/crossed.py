r"""Means and contrasts where people and scenarios are crossed: both are random.

The variance is that of two-way clusters (Cameron, Gelbach and Miller 2011), :math:`V_{people} + V_{scenarios} -
V_{both}` and at least the greater of the first two. A person affects the results of all in the episode, so that two
results are related by people if they have *any* person in common (Aronow, Samii and Assenova 2015). With the weight
:math:`w_i` of each result, which sum to 1, and the relation :math:`R` of results that have a unit in common,

.. math:: V = \sum_{(i, j) \in R} w_i w_j (y_i - \bar y) (y_j - \bar y) \Big/ \sum_{(i, j) \notin R} w_i w_j

The divisor is the share of pairs that have no unit in common. Deviations from a mean sum to 0, so the products of the
related pairs are those of the unrelated ones with the opposite sign, and too small by this share. For ``G`` equally
frequent units it is the usual :math:`(G - 1) / G`; with five people in each episode it is much less.

Student's t has one degree of freedom less than there are scenarios, or *groups of people* who are equally frequent and
never meet: with the share :math:`p_k` of results that person ``k`` takes part in, these are :math:`\sum p_k / \sum
p_k^2`, which is the number of people where each plays alone and as often. If nearly every two results have a person in
common, as where one person is always there, there is no interval. Measured coverage is .92 to .99, with two to five
people in each episode and with a person who is in up to 80 % of them (``benchmarks/coverage.py``).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sotopia_env.reports.intervals import (
    CROSSED,
    PARTICIPANTS,
    SCENARIOS,
    UNBOUNDED,
    Bounds,
    Estimate,
    contrast_ends,
    unit_means,
    weighted,
    widened,
    with_interval,
)

_LEAST = 0.1
"""The least share of pairs of results without a person in common; dividing by a smaller one multiplies chance."""
_Units = Mapping[tuple[str, ...], tuple[float, float]]
"""By units, such as people, and by sets of them: the sum of the weighted deviations, and of the weights."""


@dataclass(frozen=True, slots=True)
class _Side:
    mean: float
    scenarios: _Units
    people: _Units
    both: _Units


def crossed_estimate(
    groups: Sequence[tuple[float, Sequence[float], Sequence[str], Sequence[Sequence[str]]]],
    bounds: Bounds = UNBOUNDED,
) -> Estimate:
    """Returns the weighted sum of the groups' means where people and scenarios are crossed, with two-way clusters.

    Args:
        groups: the weight, the values, the scenarios of the values and the people of each value (none, one or several,
            sorted) of each group. In each group every scenario has the same weight. One group of weight 1 is a mean;
            groups may share people and scenarios.
        bounds: the range of a value.
    """
    weights = [weight for weight, *_ in groups]
    sides = [_side(values, scenarios, people) for _, values, scenarios, people in groups]
    crowds = [side.people for side in sides if side.people]
    fewest, mean = min(len(side.scenarios) for side in sides), weighted(weights, [side.mean for side in sides])
    people = min((len(_shares(crowd)) for crowd in crowds), default=fewest)
    n = sum(len(values) for _, values, *_ in groups)
    point = Estimate(n, min(fewest, people), mean, None, None, None, CROSSED)
    if any(_unrelated(crowd, crowd, 1) < _LEAST for crowd in crowds):
        return replace(point, clusters=1, over=PARTICIPANTS)
    if fewest < 2:
        return replace(point, over=SCENARIOS)
    by_scenario = _variance(weights, [side.scenarios for side in sides], 1)
    by_person = _variance(weights, [side.people for side in sides], 1)
    by_both = _variance(weights, [side.both for side in sides], 2)
    variance = max(by_scenario + by_person - by_both, by_scenario, by_person)
    freedom = max(1.0, min([fewest, *map(_separate_groups, crowds)]) - 1)
    if len(groups) == 1:
        interval = with_interval(point, math.sqrt(variance), freedom, bounds)
        return widened(interval, unit_means(*groups[0][1:3]), bounds)
    return with_interval(point, math.sqrt(variance), freedom, UNBOUNDED, contrast_ends(weights, bounds))


def _side(values: Sequence[float], scenarios: Sequence[str], people: Sequence[Sequence[str]]) -> _Side:
    means, sizes = unit_means(values, scenarios), Counter(scenarios)
    mean = math.fsum(means) / len(means)
    sums: tuple[dict[tuple[str, ...], list[tuple[float, float]]], ...] = (
        defaultdict(list),
        defaultdict(list),
        defaultdict(list),
    )
    for value, scenario, crowd in zip(values, scenarios, people, strict=True):
        weight = 1 / (len(means) * sizes[scenario])
        item = (weight * (value - mean), weight)
        sums[0][scenario,].append(item)
        for among in _subsets(crowd):  # a value without people varies with its scenario alone
            sums[1][among].append(item)
            sums[2][scenario, *among].append(item)
    units = ({label: _sum(items) for label, items in level.items()} for level in sums)
    return _Side(mean, *units)


def _sum(items: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return math.fsum(score for score, _ in items), math.fsum(weight for _, weight in items)


def _subsets(people: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(people, size + 1) for size in range(len(people)))


def _variance(weights: Sequence[float], sides: Sequence[_Units], single: int) -> float:
    """The variance of the contrast by one kind of unit; ``single`` is the length of the labels that name one unit."""
    terms = []
    for (weight, one), (other_weight, other) in itertools.product(zip(weights, sides, strict=True), repeat=2):
        products = math.fsum(_sign(label, single) * one[label][0] * other[label][0] for label in one.keys() & other)
        if products:
            terms.append(weight * other_weight * products / max(_unrelated(one, other, single), _LEAST))
    return math.fsum(terms)


def _unrelated(one: _Units, other: _Units, single: int) -> float:
    """The share of pairs of results of two groups that have no unit in common."""
    return 1 - math.fsum(_sign(label, single) * one[label][1] * other[label][1] for label in one.keys() & other)


def _sign(label: tuple[str, ...], single: int) -> int:
    """The sign by which sets count, so that a pair with several units in common counts once (inclusion, exclusion)."""
    return -1 if (len(label) - single) % 2 else 1


def _shares(people: _Units) -> list[float]:
    """The share of results that each person takes part in."""
    return [weight for label, (_, weight) in people.items() if len(label) == 1]


def _separate_groups(people: _Units) -> float:
    """The number of equally frequent groups of people who never meet that the people are worth."""
    shares = _shares(people)
    return math.fsum(shares) / math.fsum(share**2 for share in shares)
