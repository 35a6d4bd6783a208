"""The claims of the study, and their tests on the episodes of several training seeds.

Intervals of single stages are 95 % percentile intervals of a bootstrap over both sources of variation, crossed as in
the experiment: every draw takes training seeds with replacement and tasks with replacement, both seats of a task
together, and the same drawn tasks for every drawn seed, because all seeds are tested on the same tasks. Differences are
paired: the same tasks, seats, partners and seeds.

With a handful of seeds such an interval is too narrow, because the seeds that were drawn vary less than seeds do.
Verdicts therefore use the t-interval of the seeds' means (Colas et al. 2018, arXiv 1806.08295); the bootstrap interval
is reported beside it.

Where nothing varies, both are the exact ends of :func:`~sotopia_env.reports.intervals.exact_ends`: equal seeds are not
certainty about others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from sotopia_env.reports.intervals import UNBOUNDED, Bounds, adjusted, exact_ends

STAGES = {
    "untrained": "base model, aimless talk only",
    "bc": "behaviour cloning",
    "sr": "+ self-reinforcement",
    "single_turn": "single-turn GRPO, reward model of uniform attribution",
    "multi_turn": "multi-turn GRPO, verified GOAL and FIN",
}
ARMS = {
    "measured": "single-turn GRPO, reward model of measured moves",
    "direct": "single-turn GRPO, reward model of direct attribution (acts)",
    "goal_alone": "multi-turn GRPO, verified GOAL alone",
    "turn_credit": "multi-turn GRPO, measured turn rewards",
    "best_of_8": "cloning, best of 8 answers by the reward model",
}
"""Further stages; the recipe names those that run."""
TITLES = STAGES | ARMS
_DRAWS = 2000
_LEVEL = 0.05
_SAME = 1e-9  # smaller differences are rounding errors
Results = Mapping[str, Sequence[Mapping[str, Any]]]
"""Figures of every test episode by policy."""
RANGES: Mapping[str, Bounds] = {"goal": (0.0, 10.0)}
"""The ranges of figures that are not shares, which lie between 0 and 1."""
Part = tuple[()] | tuple[str, str]
"""A family and a seat, or all of them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An expectation that the papers support.

    Attributes:
        text: the claim in words.
        better: the stage that should score higher.
        worse: the stage that should score lower.
        side: ``unseen`` or ``seen`` partners, or ``all``.
        required: whether the study requires it; other claims are reported, whatever their result.
        margin: the points of GOAL by which ``better`` may be worse; 0 if it must be better.
    """

    text: str
    better: str
    worse: str
    side: str = "all"
    required: bool = False
    margin: float = 0.0


MARGIN = 0.25
"""The points of GOAL that a stage may lose if a claim only says that it is not worse."""
CLAIMS = (
    Claim("BC > untrained", "bc", "untrained", required=True),
    Claim("BC > untrained, unseen partners", "bc", "untrained", "unseen", required=True),
    Claim(f"SR ≥ BC - {MARGIN}", "sr", "bc", required=True, margin=MARGIN),
    Claim(f"SR ≥ BC - {MARGIN}, unseen partners", "sr", "bc", "unseen", required=True, margin=MARGIN),
    Claim("single-turn GRPO > BC", "single_turn", "bc", required=True),
    Claim("single-turn GRPO > BC, unseen partners", "single_turn", "bc", "unseen", required=True),
    Claim("multi-turn GRPO > BC", "multi_turn", "bc", required=True),
    Claim("multi-turn GRPO > BC, unseen partners", "multi_turn", "bc", "unseen", required=True),
    Claim("SR > BC", "sr", "bc"),
    Claim("multi-turn > single-turn GRPO", "multi_turn", "single_turn"),
    Claim("multi-turn GRPO > SR", "multi_turn", "sr"),
    Claim("measured > uniform credit", "measured", "single_turn"),
    Claim("measured > direct credit", "measured", "direct"),
    Claim("direct > uniform credit", "direct", "single_turn"),
    Claim("GOAL and FIN > GOAL alone", "multi_turn", "goal_alone"),
    Claim("credit of every turn > of the episode", "turn_credit", "multi_turn"),
    Claim("credit of every turn > of the episode, GOAL alone", "turn_credit", "goal_alone"),
    Claim("single-turn GRPO > best of 8", "single_turn", "best_of_8"),
)
"""All claims; those about stages that did not run are left out of the report."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """As ``1.23 [1.00, 1.46]``."""
        return f"{self.mean:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def range_of(metric: str) -> Bounds:
    """Returns the lowest and the highest value of a figure of an episode."""
    return RANGES.get(metric, (0.0, 1.0))


def gain_range(metric: str) -> Bounds:
    """Returns the lowest and the highest difference of a figure between two episodes."""
    low, high = range_of(metric)
    return low - high, high - low


def interval(seeds: Sequence[Mapping[str, Sequence[float]]], bounds: Bounds, seed: int = 0) -> Interval:
    """Returns the mean and its interval.

    Args:
        seeds: for each training seed, the values of each task; the same tasks for all.
        bounds: the range of a value.
        seed: the seed of the bootstrap.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    tasks = sorted(seeds[0])
    # Shape (seeds, tasks).
    means = np.array([[fmean(by_task[task]) for task in tasks] for by_task in seeds])
    if np.ptp(means) < _SAME:
        # The smaller number of units, as where people and scenarios are crossed; one seed is taken as it is.
        units = min(len(seeds), len(tasks)) if len(seeds) > 1 else len(tasks)
        return _without_variation(float(means.mean()), units, bounds)
    rows, columns = np.empty((_DRAWS, len(seeds)), int), np.empty((_DRAWS, len(tasks)), int)
    for draw in range(_DRAWS):
        rows[draw] = rng.integers(len(seeds), size=len(seeds))
        columns[draw] = rng.integers(len(tasks), size=len(tasks))
    # (draws, seeds, 1) and (draws, 1, tasks): within a draw, every seed is tested on the same drawn tasks.
    resampled = means[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2))
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(float(means.mean()), float(low), float(high))


def _without_variation(mean: float, units: int, bounds: Bounds) -> Interval:
    """The interval if all units are alike: exact in a closed range, and everything in an open one."""
    return Interval(mean, *(bounds if bounds == UNBOUNDED else exact_ends(mean, units, bounds)))


def over_seeds(means: Sequence[float], bounds: Bounds) -> Interval:
    """Returns the mean of the seeds' means with its t-interval, conditional on the tasks.

    Args:
        means: the mean of each seed.
        bounds: the range of a mean.
    """
    from scipy import stats

    mean, count = fmean(means), len(means)
    # One seed says nothing about the variation between seeds.
    if count < 2:
        return Interval(mean, float("-inf"), float("inf"))
    if max(means) - min(means) < _SAME:
        return _without_variation(mean, count, bounds)
    reach = float(stats.t.ppf(0.975, count - 1)) * stdev(means) / count**0.5
    return Interval(mean, mean - reach, mean + reach)


def by_task(
    rows: Sequence[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float], side: str, part: Part = ()
) -> dict[str, list[float]]:
    """Returns the values of the rows of one side, and of one family and seat if they are named, by task."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if (side == "all" or row["seen"] == (side == "seen")) and part in ((), part_of(row)):
            values.setdefault(row["task"], []).append(value(row))
    return values


def stages_of(runs: Sequence[Results]) -> list[str]:
    """The stages that ran, in the report's order."""
    return [name for name in TITLES if name in runs[0]]


def claims_of(runs: Sequence[Results]) -> list[Claim]:
    """The claims about stages that ran."""
    ran = set(stages_of(runs))
    return [claim for claim in CLAIMS if {claim.better, claim.worse} <= ran]


def part_of(row: Mapping[str, Any]) -> Part:
    """The family and the seat of an episode."""
    return row["family"], row["seat"]


def measured(runs: Sequence[Results], stage: str, metric: str, side: str, part: Part = ()) -> Interval:
    """Returns a stage's mean over seeds and tasks."""
    return interval([by_task(run[stage], lambda row: float(row[metric]), side, part) for run in runs], range_of(metric))


def difference(runs: Sequence[Results], claim: Claim, metric: str = "goal", part: Part = ()) -> Interval:
    """Returns the paired difference between the first and the second stage of a claim, optionally in one part only."""
    return interval([_gains_by_task(run, claim, metric, part) for run in runs], gain_range(metric))


def by_seed(runs: Sequence[Results], claim: Claim, metric: str = "goal") -> list[float]:
    """Returns the mean difference of every seed."""
    return [fmean(map(fmean, _gains_by_task(run, claim, metric, ()).values())) for run in runs]


def _gains_by_task(run: Results, claim: Claim, metric: str, part: Part) -> dict[str, list[float]]:
    return by_task(_gains(run, claim, metric), lambda row: float(row["gain"]), claim.side, part)


def _gains(run: Results, claim: Claim, metric: str) -> list[dict[str, Any]]:
    """The better stage's rows, each with its gain over the worse stage's row of the same task, seat and partner."""
    other = {_key(row): float(row[metric]) for row in run[claim.worse]}
    return [{**row, "gain": float(row[metric]) - other[_key(row)]} for row in run[claim.better]]


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["task"], row["seat"], row["partner"]


def verdict(gain: Interval, margin: float = 0.0, p: float = 0.0) -> str:
    """Returns the verdict on a difference from its interval and adjusted p, tested against ``-margin``."""
    if gain.low <= -margin <= gain.high:
        return f"open: the interval holds {-margin or 0.0:g}"
    if p >= _LEVEL:
        return f"open: p is not below {_LEVEL}"
    return "holds" if gain.low > -margin else "fails: the opposite holds"


def p_values(means: Sequence[Sequence[float]], margins: Sequence[float]) -> list[float]:
    """Returns each claim's two-sided p of a t-test over seeds, adjusted for all of them (Benjamini and Hochberg)."""
    import numpy as np
    from scipy import stats

    # Seeds with equal means have no t-statistic, which scipy calls infinite; they count as no evidence.
    tested = [
        1.0 if np.ptp(seeds) < _SAME else float(stats.ttest_1samp(seeds, -margin).pvalue)
        for seeds, margin in zip(means, margins, strict=True)
    ]
    return [float(q) for q in adjusted(tested) if q is not None]


def required_failures(runs: Sequence[Results]) -> list[str]:
    """Returns the required claims that do not hold."""
    gains = {claim: over_seeds(by_seed(runs, claim), gain_range("goal")) for claim in claims_of(runs) if claim.required}
    return [claim.text for claim, gain in gains.items() if gain.low <= -claim.margin]
