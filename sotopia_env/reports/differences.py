"""Paired differences between policies, over all partners or to a baseline with each partner, and the ranking by them.

Two policies are compared over seats that differ only by the policy and by chance. A partner that only one of them met
would be counted as that policy's merit, so seats with different partners are paired only if no seats share a partner.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sotopia_env.reports.intervals import Bounds, Estimate, adjusted, difference_estimate
from sotopia_env.reports.seat_results import SeatResult, clusters_of


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of ``first`` minus ``second`` over matched seats.

    Attributes:
        paired_by: the properties that matched seats have in common. Over all partners, this is the rule that matches
            most seats, in a tie the strictest (order and seed are chance, so more pairs are better than closer ones).
            To a baseline, it is the strictest rule that matches any seats.
        matched: the number of seats of both policies that have a match; the others are left out.
        seats: the number of seats of both policies that have a value.
        same_partner: whether matched seats have the same partner. If not, the difference is also one of partners.
        q: the Benjamini-Hochberg adjusted p-value over all differences that are compared at once.
        evaluator: the evaluator of the scores.
        partner: the partner in the seats; empty for all partners.
    """

    first: str
    second: str
    metric: str
    paired_by: str
    matched: int
    seats: int
    same_partner: bool
    estimate: Estimate
    q: float | None
    evaluator: str | None = None
    partner: str = ""


_Match = Callable[[SeatResult], tuple[object, ...]]


def shared_seat(row: SeatResult) -> tuple[object, ...]:
    """The properties that two seats must share for their results to differ only by the policy and by chance."""
    return (row.task, row.seat, row.partner)


CLOSEST = "task, seat, partner, order, seed"
# From the strictest rule to the loosest: ``max`` and ``next`` below take the first of equally good ones.
_SAME_PARTNER: Mapping[str, _Match] = {
    CLOSEST: lambda r: (*shared_seat(r), r.first, r.seed),
    "task, seat, partner": shared_seat,
}
_OTHER_PARTNERS: Mapping[str, _Match] = {"task, seat": lambda r: (r.task, r.seat), "task": lambda r: (r.task,)}
_Sides = tuple[Sequence[SeatResult], Sequence[SeatResult]]


def differences(
    rows: Sequence[SeatResult], policies: Sequence[str], limits: Mapping[str, Bounds]
) -> tuple[Difference, ...]:
    """Returns the differences between every two policies in every metric, over all partners."""
    results = []
    for (first, second), metric in itertools.product(itertools.combinations(policies, 2), limits):
        sides = _sides(rows, first, second, metric)
        same_partner = _match_count(sides, shared_seat) > 0
        matches = _SAME_PARTNER if same_partner else _OTHER_PARTNERS
        paired_by = max(matches, key=lambda name: _match_count(sides, matches[name]))
        if _match_count(sides, matches[paired_by]):
            results.append(_difference(first, second, metric, sides, paired_by, limits[metric]))
    return tuple(results)


def baseline_differences(
    rows: Sequence[SeatResult], policies: Sequence[str], baseline: str, limits: Mapping[str, Bounds]
) -> tuple[Difference, ...]:
    """Returns the differences of every policy to ``baseline`` in every metric, with each partner that both met.

    If no policy met a partner of the baseline in the same seat of a task, the differences are over all partners.
    """
    others, results = [name for name in policies if name != baseline], []
    for policy, metric in itertools.product(others, limits):
        sides = _sides(rows, policy, baseline, metric)
        for partner in sorted({row.partner for row in sides[0]}):
            own = _sides([row for side in sides for row in side if row.partner == partner], policy, baseline, metric)
            paired_by = next((name for name, match in _SAME_PARTNER.items() if _match_count(own, match)), None)
            if paired_by is not None:
                difference = _difference(policy, baseline, metric, own, paired_by, limits[metric])
                results.append(replace(difference, partner=partner))
    return tuple(results) or tuple(d for policy in others for d in differences(rows, (policy, baseline), limits))


def with_q(groups: Sequence[Sequence[Difference]]) -> list[tuple[Difference, ...]]:
    """Returns the same groups with p-values adjusted over all of them together."""
    q_values = iter(adjusted([difference.estimate.p for group in groups for difference in group]))
    return [tuple(replace(difference, q=next(q_values)) for difference in group) for group in groups]


def _sides(rows: Sequence[SeatResult], first: str, second: str, metric: str) -> _Sides:
    valued = [row for row in rows if metric in row.values]
    return [row for row in valued if row.policy == first], [row for row in valued if row.policy == second]


def _difference(first: str, second: str, metric: str, sides: _Sides, paired_by: str, bounds: Bounds) -> Difference:
    match = (_SAME_PARTNER | _OTHER_PARTNERS)[paired_by]  # type: ignore[operator]
    # Seats that the rule cannot tell apart, such as repeats, are averaged first, so that each key is one pair.
    left, right = (_group_means(side, match, metric) for side in sides)
    # Sorted, so that sums of floats do not depend on the order of the rows; ``repr``, because keys mix types.
    common = sorted(left.keys() & right.keys(), key=repr)
    of = {match(row): row for row in sides[0]}
    (clusters,), over = clusters_of([of[key] for key in common])
    mean = difference_estimate([left[key] - right[key] for key in common], clusters, bounds, over)
    matched, seats = _match_count(sides, match), sum(map(len, sides))
    return Difference(first, second, metric, paired_by, matched, seats, paired_by in _SAME_PARTNER, mean, None)


def _match_count(sides: _Sides, match: _Match) -> int:
    """The number of seats of both policies that have a match."""
    first, second = ([match(row) for row in side] for side in sides)
    common = set(first) & set(second)
    return sum(key in common for key in (*first, *second))


def _group_means(rows: Sequence[SeatResult], match: _Match, metric: str) -> dict[tuple[object, ...], float]:
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in rows:
        groups[match(row)].append(row.values[metric])
    return {key: math.fsum(values) / len(values) for key, values in groups.items()}


# --- comparable means ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommonSeats:
    """The seats over which means are comparable: those (task, seat and partner) that a group of policies all played.

    Otherwise a policy that also played with a partner, or a task, that others did not have could owe its mean to an
    easy partner. The group is the one whose common seats have most results.

    Attributes:
        policies: the group, whose means are over the common seats only; empty if no two policies share a seat.
        partners: the partners in the common seats.
        kept: the number of the group's results in common seats.
        seats: the number of all results of the group.
        others: the other policies with their partners; the mean of each is over all its own seats.
    """

    policies: tuple[str, ...]
    partners: tuple[str, ...]
    kept: int
    seats: int
    others: tuple[tuple[str, tuple[str, ...]], ...]


def common_seats(rows: Sequence[SeatResult], policies: Sequence[str]) -> tuple[CommonSeats, list[SeatResult]]:
    """Returns the common seats, and the rows that means are computed from."""
    seats = {policy: {shared_seat(row) for row in rows if row.policy == policy} for policy in policies}
    sets = list(seats.values())
    # A greedy search: the intersections of all subsets of policies are too many (2^n). It begins with the seats that
    # every two policies share, and with those that all share.
    candidates = [first & second for first, second in itertools.combinations(sets, 2)] + [set.intersection(*sets)]
    counts = Counter((row.policy, shared_seat(row)) for row in rows)

    def group_of(common: set[tuple[object, ...]]) -> tuple[str, ...]:
        return tuple(policy for policy in policies if common and common <= seats[policy])

    def size(common: set[tuple[object, ...]]) -> int:
        return sum(counts[policy, seat] for policy in group_of(common) for seat in common)

    # Fewer common seats may hold more results, because more policies then belong to the group.
    for pair in list(candidates):
        best = pair
        while size(smaller := max((best & other for other in sets), key=size)) > size(best):
            best = smaller
        candidates.append(best)
    common = max(candidates, key=size)
    group = group_of(common)
    own = [row for row in rows if row.policy in group]
    compared = [row for row in rows if row.policy not in group or shared_seat(row) in common]
    others = [(p, tuple(sorted({row.partner for row in rows if row.policy == p}))) for p in policies if p not in group]
    partners = tuple(sorted({row.partner for row in own if shared_seat(row) in common}))
    dropped = len(rows) - len(compared)
    return CommonSeats(group, partners, len(own) - dropped, len(own), tuple(others)), compared


# --- ranking ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank of a policy, as far as the intervals of the paired differences determine it.

    Attributes:
        policy: the policy's label.
        best: the best possible rank: 1 plus the number of policies that are better.
        worst: the worst possible rank: the number of policies minus those that are worse.
        estimate: the estimate of the metric.
        ties: the policies whose difference to this one has an interval that includes 0, or no interval.
    """

    policy: str
    best: int
    worst: int
    estimate: Estimate
    ties: tuple[str, ...]

    @property
    def places(self) -> str:
        """The rank, or the range of ranks that the intervals leave open."""
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"


def ranking(estimates: Mapping[str, Estimate], gaps: Mapping[tuple[str, str], Estimate]) -> tuple[Rank, ...]:
    """Returns the policies with their ranks, the best mean first.

    Args:
        estimates: the estimates of the metric, for the policies whose means are comparable.
        gaps: the paired differences by pairs of policies, the first policy minus the second.
    """
    sides = {**gaps, **{(second, first): _negative(gap) for (first, second), gap in gaps.items()}}

    def rank(policy: str) -> Rank:
        others = [name for name in order if name != policy]
        signs = {name: _sign(sides.get((policy, name))) for name in others}
        better, worse = (sum(sign == side for sign in signs.values()) for side in (-1, 1))
        ties = tuple(name for name in others if signs[name] == 0)
        return Rank(policy, 1 + better, len(order) - worse, estimates[policy], ties)

    order = sorted(estimates, key=lambda name: (-estimates[name].mean, name))
    return tuple(map(rank, order))


def _negative(gap: Estimate) -> Estimate:
    low, high = (None if end is None else -end for end in (gap.high, gap.low))
    return Estimate(gap.n, gap.clusters, -gap.mean, low, high, gap.p, gap.over)


def _sign(gap: Estimate | None) -> int:
    """1 if the interval lies above 0, -1 if it lies below, else 0."""
    if gap is None or gap.low is None or gap.high is None:
        return 0
    return 1 if gap.low > 0 else -1 if gap.high < 0 else 0
