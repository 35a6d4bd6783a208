"""Paired differences between policies, over all partners or to a baseline with each partner, and the ranking by them.

Two policies are compared over the seats that the two share, which differ only by the policy and by chance. Other
policies, and what these lack, therefore change no difference and no order of two. A partner that only one of them met
would be counted as that policy's merit, so seats with different partners are paired only if no seats share a partner.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from sotopia_env.reports.intervals import Bounds, Estimate, adjusted, holm
from sotopia_env.reports.seat_results import SeatResult, lacks, shared_seat
from sotopia_env.reports.seats.common import CommonSeats, Key, common_seats
from sotopia_env.reports.seats.units import among_people, averaged, seat_difference, unit_of

Played = Mapping[Key, Mapping[tuple[str, ...], Sequence[float | None]]]
"""The values of a policy's results by seat and people; ``None`` for a missing one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of ``first`` minus ``second`` over matched seats, each with the mean of its repeats.

    Attributes:
        paired_by: the properties that all matched seats have in common.
        matched: the number of results of both policies in seats that have a match; the others are left out.
        seats: the number of results of both policies that have a value.
        same_partner: whether matched seats have the same partner. If not, the difference is also one of partners.
        q: the Benjamini-Hochberg adjusted p-value over all differences in this metric.
        evaluator: the evaluator of the scores.
        partner: the partner in the seats; empty for all partners.
        missing: the number of results of both policies, in seats that both played, without a score or of episodes that
            failed; every repeat and every person counts.
        worst: the difference if ``first`` had the lowest value in its missing results and ``second`` the highest;
            ``None`` if nothing is missing or the metric has no closed range.
        best: the difference if it were the other way round.
        against: the estimate of ``worst`` if ``first`` is better, else that of ``best``.
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
    missing: int = 0
    worst: float | None = None
    best: float | None = None
    against: Estimate | None = None

    @property
    def for_ranks(self) -> Estimate:
        """The estimate that tells the two policies apart; no interval and p = 1 if nothing may.

        A rank is claimed only if the difference also holds with missing results at the end of the range that speaks
        against it, and not where policies met different partners.
        """
        against = self.against
        if not self.same_partner or (against is not None and against.mean * self.estimate.mean <= 0):
            return replace(self.estimate, low=None, high=None, p=1.0)
        if against is None:
            return self.estimate
        # Of the two, the one with the larger p-value; without a p-value nothing is told apart.
        return max(self.estimate, against, key=lambda item: 1.0 if item.p is None else item.p)


_Match = Callable[[SeatResult], Key]
CLOSEST = "task, rules, seat, partner, order, seed"
_SHARED = "task, rules, seat, partner"
_OTHER_PARTNERS: Mapping[str, _Match] = {
    "task, rules, seat": lambda r: (r.content, r.rules, r.seat),
    "task, rules": lambda r: (r.content, r.rules),
}


@dataclass(frozen=True, slots=True)
class ComparedSeats:
    """The seats of a comparison in one metric.

    Attributes:
        metric: the metric.
        bounds: its range.
        rows: all seats by policy, with repeats and without values.
        scored: the seats with a value by policy, without repeats.
        description: how the common seats were chosen.
        common: the keys of the common seats.
    """

    metric: str
    bounds: Bounds
    rows: Mapping[str, Sequence[SeatResult]]
    scored: Mapping[str, Sequence[SeatResult]]
    description: CommonSeats
    common: Set[Key] = field(repr=False)

    @classmethod
    def of(cls, rows: Sequence[SeatResult], policies: Sequence[str], metric: str, bounds: Bounds) -> ComparedSeats:
        """Returns the seats of these policies."""
        own = {policy: [row for row in rows if row.policy == policy] for policy in policies}
        scored = {policy: averaged(group, metric) for policy, group in own.items()}
        return cls(metric, bounds, own, scored, *common_seats(rows, policies, metric))

    def with_partner(self, partner: str) -> ComparedSeats:
        """Returns the seats with this partner."""
        rows, scored = (
            {policy: [row for row in group if row.partner == partner] for policy, group in groups.items()}
            for groups in (self.rows, self.scored)
        )
        return replace(self, rows=rows, scored=scored)

    def compared(self, policy: str) -> list[SeatResult]:
        """Returns the seats that the policy's mean is over: the common ones, or all of a policy outside of them."""
        seats = self.scored[policy]
        if policy not in self.description.policies:
            return list(seats)
        return [seat for seat in seats if shared_seat(seat) in self.common]

    def shared(self, first: str, second: str) -> Set[Key]:
        """Returns the keys of the seats over which two policies are compared, whoever else is."""
        return {shared_seat(seat) for seat in self.scored[first]} & {shared_seat(seat) for seat in self.scored[second]}

    def difference(self, first: str, second: str) -> Difference | None:
        """Returns the difference of two policies; ``None`` if no seats match."""
        if keys := self.shared(first, second):
            by = CLOSEST if self._chances(first, keys) == self._chances(second, keys) else _SHARED
            return self._bounded(self._paired(first, second, by, shared_seat, keys))
        for by, match in _OTHER_PARTNERS.items():
            keys = set(map(match, self.scored[first])) & set(map(match, self.scored[second]))
            if keys:
                return self._paired(first, second, by, match, keys)
        return None

    def _chances(self, policy: str, keys: Set[Key]) -> Counter[Key]:
        """The orders and seeds of all repeats."""
        valued = [row for row in self.rows[policy] if self.metric in row.values]
        return Counter((*shared_seat(row), row.first, row.seed) for row in valued if shared_seat(row) in keys)

    def _paired(self, first: str, second: str, by: str, match: _Match, keys: Set[Key]) -> Difference:
        one, other = ([seat for seat in self.scored[policy] if match(seat) in keys] for policy in (first, second))
        results = [row for policy in (first, second) for row in self.rows[policy] if self.metric in row.values]
        matched = sum(match(row) in keys for row in results)
        estimate = _contrast(one, other, self.metric, self.bounds, match)
        return Difference(first, second, self.metric, by, matched, len(results), match is shared_seat, estimate, None)

    def _bounded(self, difference: Difference) -> Difference:
        """The difference with its bounds, if results of the two policies are missing."""
        played = [self._played(policy) for policy in (difference.first, difference.second)]
        seats = {shared_seat(row): row for policy in (difference.first, difference.second) for row in self.rows[policy]}
        # Sorted, so that sums of floats do not depend on the order of the rows.
        shared = {key: seats[key] for key in sorted(seats, key=repr) if all(key in own for own in played)}
        results = [value for own in played for key in shared for values in own[key].values() for value in values]
        missing = sum(value is None for value in results)
        if not missing or not all(map(math.isfinite, self.bounds)):
            return replace(difference, missing=missing)
        worst, best = (self._filled(played, shared, fill) for fill in (self.bounds, self.bounds[::-1]))
        against = worst if difference.estimate.mean > 0 else best
        return replace(difference, missing=missing, worst=worst.mean, best=best.mean, against=against)

    def _filled(self, played: Sequence[Played], seats: Mapping[Key, SeatResult], fill: Bounds) -> Estimate:
        """The difference in which each policy's missing values are replaced by one of ``fill``."""
        first, second = (
            [
                replace(row, people=people, participant="", values={self.metric: _filled_mean(values, end)})
                for key, row in seats.items()
                for people, values in own[key].items()
            ]
            for own, end in zip(played, fill, strict=True)
        )
        return _contrast(first, second, self.metric, self.bounds, shared_seat)

    def _played(self, policy: str) -> Played:
        """The policy's results that have a value or lack one; an episode that failed does not name its people."""
        people = any(row.people for row in self.rows[policy])
        values: dict[Key, dict[tuple[str, ...], list[float | None]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows[policy]:
            if self.metric in row.values or lacks(row, self.metric):
                person = row.people or ((row.key,) if people else ())
                values[shared_seat(row)][person].append(row.values.get(self.metric))
        return values


def _filled_mean(values: Sequence[float | None], missing: float) -> float:
    """The mean of a seat's repeats, of the same people."""
    return math.fsum(missing if value is None else value for value in values) / len(values)


def _contrast(
    first: Sequence[SeatResult], second: Sequence[SeatResult], metric: str, bounds: Bounds, match: _Match
) -> Estimate:
    sides = [(1.0, first), (-1.0, second)]
    if any(seat.people for seat in (*first, *second)):
        return among_people(sides, metric, bounds)
    over, unit = unit_of([*first, *second])
    # Without a common partner a seat may have several results, which count as one pair.
    sides = [(weight, _once(seats, metric, match)) for weight, seats in sides]
    return seat_difference(sides, metric, bounds, unit, over)


def _once(seats: Sequence[SeatResult], metric: str, match: _Match) -> list[SeatResult]:
    groups: dict[Key, list[SeatResult]] = defaultdict(list)
    for seat in seats:
        groups[match(seat)].append(seat)
    return [
        replace(group[0], values={metric: math.fsum(seat.values[metric] for seat in group) / len(group)})
        for group in groups.values()
    ]


def differences(metrics: Iterable[ComparedSeats], policies: Sequence[str]) -> tuple[Difference, ...]:
    """Returns the differences between every two policies in every metric, over all partners."""
    pairs = itertools.product(itertools.combinations(policies, 2), list(metrics))
    results = (seats.difference(first, second) for (first, second), seats in pairs)
    return tuple(result for result in results if result is not None)


def baseline_differences(
    metrics: Sequence[ComparedSeats], policies: Sequence[str], baseline: str
) -> tuple[Difference, ...]:
    """Returns the differences of every policy to ``baseline`` in every metric, with each partner that both met.

    If no policy met a partner of the baseline in the same seat of a task, the differences are over all partners.
    """
    others, results = [name for name in policies if name != baseline], []
    for policy, seats in itertools.product(others, metrics):
        for partner in sorted({seat.partner for seat in seats.scored[policy]}):
            own = seats.with_partner(partner)
            if own.shared(policy, baseline) and (difference := own.difference(policy, baseline)) is not None:
                results.append(replace(difference, partner=partner))
    return tuple(results) or tuple(d for policy in others for d in differences(metrics, (policy, baseline)))


def with_q(groups: Sequence[Sequence[Difference]]) -> list[tuple[Difference, ...]]:
    """Returns the same groups with p-values adjusted over all of their differences in the same metric."""
    p_values: dict[str, list[float | None]] = defaultdict(list)
    for item in itertools.chain.from_iterable(groups):
        p_values[item.metric].append(item.estimate.p)
    q_values = {metric: iter(adjusted(own)) for metric, own in p_values.items()}
    return [tuple(replace(item, q=next(q_values[item.metric])) for item in group) for group in groups]


# --- ranking ------------------------------------------------------------------------------------------------------


_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank of a policy, as far as the intervals of the paired differences determine it.

    Attributes:
        policy: the policy's label.
        best: the best possible rank: 1 plus the number of policies that are better.
        worst: the worst possible rank: the number of policies minus those that are worse.
        estimate: the estimate of the metric.
        ties: the policies that this one is not told apart from.
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
    """Returns the policies with their ranks, in the order of their differences, else of their means.

    Means are over the seats that all have, and a difference over those that two have, so that they may disagree where
    seats are missing; the order of two policies then does not depend on the others.

    Args:
        estimates: the estimates of the metric, for the policies whose means are comparable.
        gaps: the paired differences by pairs of policies, the first policy minus the second. An interval that excludes
            0 tells the two apart.
    """
    signs = {pair: _sign(gap) for pair, gap in gaps.items()}
    signs |= {(second, first): -sign for (first, second), sign in signs.items()}

    def rank(policy: str) -> Rank:
        others = [name for name in order if name != policy]
        own = {name: signs.get((policy, name), 0) for name in others}
        better, worse = (sum(sign == side for sign in own.values()) for side in (-1, 1))
        ties = tuple(name for name in others if own[name] == 0)
        return Rank(policy, 1 + better, len(order) - worse, estimates[policy], ties)

    worse = {pair if gap.mean < 0 else pair[::-1] for pair, gap in gaps.items() if gap.mean}
    order: list[str] = []
    rest = sorted(estimates, key=lambda name: (-estimates[name].mean, name))
    while rest:
        best = [name for name in rest if not any((name, other) in worse for other in rest)]
        order.append((best or rest)[0])  # differences over different seats may go round in a circle
        rest.remove(order[-1])
    return tuple(map(rank, order))


def _sign(gap: Estimate) -> int:
    """1 if the interval lies above 0, -1 if it lies below, else 0."""
    if gap.low is None or gap.high is None:
        return 0
    return 1 if gap.low > 0 else -1 if gap.high < 0 else 0


def told_apart(gaps: Mapping[tuple[str, str], Estimate]) -> dict[tuple[str, str], Estimate]:
    """Returns the differences that hold together; the others have no interval.

    Ranks are a claim about all pairs at once: with Holm's adjustment (1979), the probability of any wrong rank is at
    most 5 %.
    """
    p_values = holm([gap.p for gap in gaps.values()])
    return {
        pair: gap if p is not None and p < _LEVEL else replace(gap, low=None, high=None)
        for (pair, gap), p in zip(gaps.items(), p_values, strict=True)
    }


def metric_ranking(estimates: Mapping[str, Estimate], gaps: Iterable[Difference], metric: str) -> tuple[Rank, ...]:
    """Returns the ranks by one metric of the policies with estimates, from the differences that hold together."""
    own = {(gap.first, gap.second): gap.for_ranks for gap in gaps if gap.metric == metric}
    return ranking(estimates, told_apart({pair: gap for pair, gap in own.items() if set(pair) <= set(estimates)}))
