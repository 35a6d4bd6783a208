"""The order of policies by one metric, as far as paired differences tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sotopia_env.reports.intervals import Estimate


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
