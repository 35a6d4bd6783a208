"""One sentence on a comparison: who is ahead, by how much, or that the policies cannot be told apart.

It claims what the ranks claim and nothing beyond: a policy is ahead of another only where their ranks exclude the
opposite, which also holds for missing results and for all pairs at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sotopia_env.foundation.quoting import escape_line
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.reports.compare import Comparison
from sotopia_env.reports.intervals import Estimate, show_number

_LEVEL = 0.05
_MOST_NAMES = 4


def headline(comparison: Comparison) -> str:
    """Returns the sentence on the ranking, and one on the levels of a factor if one was requested."""
    parts = [_of_ranks(comparison), _of_levels(comparison)]
    return escape_line(" ".join(part for part in parts if part))


def _of_ranks(comparison: Comparison) -> str:
    ranking, metric = comparison.ranking, _words(comparison.main)
    if len(ranking) < 2:
        if not ranking:
            return "Nobody is ranked: no seat has a score."
        if len(comparison.policies) > 1:
            return "Nobody is ahead: no two policies were scored in the same seats."
        return f"{ranking[0].policy} has a mean {metric} of {_interval(ranking[0].estimate)}."
    leader = next((rank for rank in ranking if rank.best == 1), ranking[0])
    behind = [rank.policy for rank in ranking if rank is not leader and rank.policy not in leader.ties]
    unranked = [policy for policy in comparison.policies if policy not in {rank.policy for rank in ranking}]
    end = f" ({_named(unranked)} {'is' if len(unranked) == 1 else 'are'} not ranked)." if unranked else "."
    # Where nobody is best for certain, differences over different seats go round in a circle.
    if leader.best > 1 or not behind:
        return f"{_named([rank.policy for rank in ranking])} cannot be told apart in {metric}{_widest(comparison)}{end}"
    by = _gap(comparison, leader.policy, behind[0])
    distance = "" if by is None else f", by {_interval(by)}" + (" of the nearest" if len(behind) > 1 else "")
    apart = f"; it cannot be told apart from {_named(leader.ties)}" if leader.ties else ""
    return f"{leader.policy} is ahead of {_named(behind)} in {metric}{distance}{apart}{end}"


def _of_levels(comparison: Comparison) -> str:
    by = comparison.by
    if by is None or not by.contrasts:
        return ""
    effects = [item for item in by.contrasts if item.q is not None and item.q < _LEVEL and item.estimate is not None]
    if not effects:
        return f"No difference by {by.factor} can be told from chance."
    first = max(effects, key=lambda item: abs(item.estimate.mean) if item.estimate else 0.0)
    assert first.estimate is not None
    rest = len(effects) - 1
    more = f", and {rest} more of {len(by.contrasts)} differences are told from chance" if rest else ""
    of = f" for {first.policy}" if len(comparison.policies) > 1 else ""
    return f"By {by.factor}, {first.name} makes a difference of {_interval(first.estimate)}{of}{more}."


def _widest(comparison: Comparison) -> str:
    """The interval of the largest difference: what the data leave open."""
    ranked = {rank.policy for rank in comparison.ranking}
    own = [gap for gap in comparison.differences if gap.metric == comparison.main and {gap.first, gap.second} <= ranked]
    if not own:
        return ""
    gap = max(own, key=lambda item: abs(item.estimate.mean))
    what = "their difference" if len(ranked) == 2 else f"the largest difference, {gap.first} less {gap.second},"
    return f": {what} is {_interval(gap.estimate)}"


def _gap(comparison: Comparison, first: str, second: str) -> Estimate | None:
    """The paired difference of two policies; with a baseline, only differences to it are in the comparison."""
    for gap in comparison.differences:
        if gap.metric == comparison.main and not gap.partner:
            if (gap.first, gap.second) == (first, second):
                return gap.estimate
            if (gap.second, gap.first) == (first, second):
                return _reversed(gap.estimate)
    return None


def _reversed(estimate: Estimate) -> Estimate:
    low, high = (None if end is None else -end for end in (estimate.high, estimate.low))
    return replace(estimate, mean=-estimate.mean, low=low, high=high)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{show_number(estimate.mean)} (without an interval: {estimate.missing})"
    low, high = show_number(estimate.low), show_number(estimate.high)
    return f"{show_number(estimate.mean)} (95 % interval {low} to {high})"


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return conjunction(names if rest <= 1 else [*names[:_MOST_NAMES], f"{rest} others"])
