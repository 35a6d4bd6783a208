"""Paired differences between policies, over all partners or to a baseline with each partner, and the ranking by them.

Two policies are compared over seats that differ by the policy and by luck alone. A partner that only one of them met
would be counted as that policy's merit, so seats without the same partner are paired only where there are no others.
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
    """Mean of ``first`` minus ``second`` over matched seats.

    Attributes:
        paired_by: what matched seats have in common. Over all partners the match is taken that covers most seats, among
            equals the closest (order and seed are luck: more pairs are worth more than close ones); to a baseline the
            closest of which there are any.
        matched: how many seats of both policies it covers, of ``seats`` that have a value; the rest is left out.
        same_partner: whether matched seats had the same partner. If not, the difference is also one of partners.
        q: Benjamini-Hochberg adjusted p-value over all differences that are compared at once.
        evaluator: whose scores these are.
        partner: of the seats; empty for all.
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
    """What seats have in common for their results to differ by the policy and by luck alone."""
    return (row.task, row.seat, row.partner)


CLOSEST = "task, seat, partner, order, seed"
_SAME_PARTNER: Mapping[str, _Match] = {
    CLOSEST: lambda r: (*shared_seat(r), r.first, r.seed),
    "task, seat, partner": shared_seat,
}
_OTHER_PARTNERS: Mapping[str, _Match] = {"task, seat": lambda r: (r.task, r.seat), "task": lambda r: (r.task,)}
_Sides = tuple[Sequence[SeatResult], Sequence[SeatResult]]


def differences(
    rows: Sequence[SeatResult], policies: Sequence[str], limits: Mapping[str, Bounds]
) -> tuple[Difference, ...]:
    """Returns the differences of every two policies in every metric, over all partners."""
    found = []
    for (first, second), metric in itertools.product(itertools.combinations(policies, 2), limits):
        sides = _sides(rows, first, second, metric)
        same_partner = _match_count(sides, shared_seat) > 0
        matches = _SAME_PARTNER if same_partner else _OTHER_PARTNERS
        paired_by = max(matches, key=lambda name: _match_count(sides, matches[name]))
        if _match_count(sides, matches[paired_by]):
            found.append(_difference(first, second, metric, sides, paired_by, limits[metric]))
    return tuple(found)


def baseline_differences(
    rows: Sequence[SeatResult], policies: Sequence[str], baseline: str, limits: Mapping[str, Bounds]
) -> tuple[Difference, ...]:
    """Returns the differences of every policy to ``baseline`` in every metric, with each partner that both met.

    Where no policy met a partner of the baseline in the same seat of a task, they are over all partners.
    """
    others, found = [name for name in policies if name != baseline], []
    for policy, metric in itertools.product(others, limits):
        sides = _sides(rows, policy, baseline, metric)
        for partner in sorted({row.partner for row in sides[0]}):
            own = _sides([row for side in sides for row in side if row.partner == partner], policy, baseline, metric)
            paired_by = next((name for name, match in _SAME_PARTNER.items() if _match_count(own, match)), None)
            if paired_by is not None:
                difference = _difference(policy, baseline, metric, own, paired_by, limits[metric])
                found.append(replace(difference, partner=partner))
    return tuple(found) or tuple(d for policy in others for d in differences(rows, (policy, baseline), limits))


def with_q(groups: Sequence[Sequence[Difference]]) -> list[tuple[Difference, ...]]:
    """Returns the same groups with p-values adjusted over all of them together."""
    q_values = iter(adjusted([difference.estimate.p for group in groups for difference in group]))
    return [tuple(replace(difference, q=next(q_values)) for difference in group) for group in groups]


def _sides(rows: Sequence[SeatResult], first: str, second: str, metric: str) -> _Sides:
    valued = [row for row in rows if metric in row.values]
    return [row for row in valued if row.policy == first], [row for row in valued if row.policy == second]


def _difference(first: str, second: str, metric: str, sides: _Sides, paired_by: str, bounds: Bounds) -> Difference:
    match = (_SAME_PARTNER | _OTHER_PARTNERS)[paired_by]  # type: ignore[operator]
    left, right = (_group_means(side, match, metric) for side in sides)
    common = sorted(left.keys() & right.keys(), key=repr)
    of = {match(row): row for row in sides[0]}
    (clusters,), over = clusters_of([of[key] for key in common])
    mean = difference_estimate([left[key] - right[key] for key in common], clusters, bounds, over)
    matched, seats = _match_count(sides, match), sum(map(len, sides))
    return Difference(first, second, metric, paired_by, matched, seats, paired_by in _SAME_PARTNER, mean, None)


def _match_count(sides: _Sides, match: _Match) -> int:
    """How many seats of both policies have a counterpart."""
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
    """The seats over which means are comparable: those that a group of policies had alike (task, seat and partner).

    A policy that also played with a partner, or a task, that others did not have would otherwise be credited with an
    easy partner. The group is the one whose common seats hold most results; ``()`` when no two policies share a seat.

    Attributes:
        policies: the group; its means are over the common seats alone.
        partners: the partners in these seats.
        kept: number of the group's seats among them, of ``seats`` that the group had.
        others: the policies outside, with their partners; each mean of theirs is over all seats of its own.
    """

    policies: tuple[str, ...]
    partners: tuple[str, ...]
    kept: int
    seats: int
    others: tuple[tuple[str, tuple[str, ...]], ...]


def common_seats(rows: Sequence[SeatResult], policies: Sequence[str]) -> tuple[CommonSeats, list[SeatResult]]:
    """Returns the common seats, and the rows that the means are over."""
    seats = {policy: {shared_seat(row) for row in rows if row.policy == policy} for policy in policies}
    sets = list(seats.values())
    # Not every intersection of several policies' seats, of which there are too many: of two, and what they grow to.
    candidates = [first & second for first, second in itertools.combinations(sets, 2)] + [set.intersection(*sets)]
    counts = Counter((row.policy, shared_seat(row)) for row in rows)

    def group_of(common: set[tuple[object, ...]]) -> tuple[str, ...]:
        return tuple(policy for policy in policies if common and common <= seats[policy])

    def size(common: set[tuple[object, ...]]) -> int:
        return sum(counts[policy, seat] for policy in group_of(common) for seat in common)

    for pair in list(candidates):
        grown = pair
        while size(wider := max((grown & other for other in sets), key=size)) > size(grown):
            grown = wider
        candidates.append(grown)
    common = max(candidates, key=size)
    group = group_of(common)
    own = [row for row in rows if row.policy in group]
    kept = [row for row in rows if row.policy not in group or shared_seat(row) in common]
    others = [(p, tuple(sorted({row.partner for row in rows if row.policy == p}))) for p in policies if p not in group]
    partners = tuple(sorted({row.partner for row in own if shared_seat(row) in common}))
    dropped = len(rows) - len(kept)
    return CommonSeats(group, partners, len(own) - dropped, len(own), tuple(others)), kept


# --- ranking ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of a policy.

    Attributes:
        policy: its label.
        best: 1 and the number of policies that are better by the interval of the paired difference.
        worst: the number of policies less those that are worse.
        estimate: of the metric.
        ties: policies whose difference from this one has an interval that includes 0, or no interval.
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
    """Returns the policies, the best mean first.

    Args:
        estimates: of the metric, of policies whose means are comparable.
        gaps: paired differences, the first policy minus the second.
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
    """1 where the interval lies above 0, -1 where it lies below."""
    if gap is None or gap.low is None or gap.high is None:
        return 0
    return 1 if gap.low > 0 else -1 if gap.high < 0 else 0
