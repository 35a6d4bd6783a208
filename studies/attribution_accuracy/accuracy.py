"""Accuracy of attribution: a comparison of the rewards that each method gives to forced actions with their true worth.

The figures of each method, per family of tasks and as the mean over the families:

* **correlation**: Pearson's r of reward and advantage, over all actions;
* **sign**: the share of actions whose reward minus the method's mean reward in the family has the sign of the
  advantage; the mean is the baseline that a learner without a model of states can use;
* **ranking**: the share of pairs in which the better action has the higher reward. The pairs are either *actions of one
  state*, which is the task of a reward model, or *turns of one seat in one episode*, which is the task of attribution.

Actions of one state come from different episodes, each with a return of its own. The return is an unbiased measurement
of the action's worth, so uniform credit ranks them as well as one draw of the truth does; its ranking measures the
noise of a return, not an attribution. Within an episode the return is the same for all turns: uniform credit is 0.5.

Equal rewards count as half right, so that chance is 0.5 for sign and ranking. These two only count actions and pairs
that the measurement decides (by two standard errors). Intervals are 95 % percentiles of a bootstrap over tasks, each
with all its episodes, states and actions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import Estimate
from sotopia_env.reports.sheet import Report, Sheet
from studies.attribution_accuracy.probes import Truth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = ("correlation", "sign", "ranking")
ALL = "mean of families"
# Rewards are floats: smaller differences are rounding errors and count as ties.
_SAME = 1e-9
_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RewardedAction:
    """The reward of one forced action by one method.

    Attributes:
        family: the family of the task.
        task: the id of the task.
        situation: the identity of the state, or of the episode and the seat if turns of one episode are compared.
        truth: the measured worth of the action.
        reward: the reward by the method.
    """

    family: str
    task: str
    situation: str
    truth: Truth
    reward: float


Observations = dict[tuple[str, str], list[RewardedAction]]
"""Rewarded actions by attributor and method."""


@dataclass(frozen=True, slots=True)
class MethodAccuracy:
    """The accuracy of one method with one attributor, a row of the report.

    Attributes:
        family: the family of the tasks, or :data:`ALL`.
        attributor: the name of the attributor.
        method: the method that was applied to its ratings.
        actions: the number of actions.
        pairs: the number of pairs of actions in one situation whose order the measurement decides.
        correlation: the correlation of reward and advantage, in [-1, 1]. This and the other figures are ``None`` if
            they are undefined, for example because all rewards are equal.
        sign: the share of rewards that have the sign of the advantage.
        ranking: the share of pairs in the right order.
    """

    family: str
    attributor: str
    method: str
    actions: int
    pairs: int
    correlation: Estimate | None
    sign: Estimate | None
    ranking: Estimate | None

    def figures(self) -> dict[str, Any]:
        """The row as JSON."""
        return asdict(self)


def accuracies(
    observations: Mapping[tuple[str, str], Sequence[RewardedAction]], resamples: int, seed: int
) -> list[MethodAccuracy]:
    """Returns the rows: for each attributor and method one per family, and one for the mean over the families.

    Args:
        observations: the rewarded actions, by attributor and method.
        resamples: the number of resamples of the bootstrap.
        seed: the seed of its draws.
    """
    rows = []
    for (attributor, method), items in observations.items():
        by_family: dict[str, list[RewardedAction]] = defaultdict(list)
        for item in items:
            by_family[item.family].append(item)
        counts: list[tuple[int, int]] = []
        draws: list[_Array] = []
        tasks: list[int] = []
        for family, members in sorted(by_family.items()):
            sums = _sums(members)
            # Seeded per family, not per method: all methods are compared on the same resamples.
            generator = np.random.default_rng([seed, len(draws)])
            draws.append(_draws(sums, resamples, generator))
            counts.append((len(members), int(sums[:, -1].sum())))
            tasks.append(len(sums))
            rows.append(
                MethodAccuracy(family, attributor, method, *counts[-1], *_estimates(draws[-1], counts[-1], tasks[-1]))
            )
        if len(draws) > 1:
            actions, pairs = (sum(column) for column in zip(*counts, strict=True))
            # A mean over families, so that families with many actions do not dominate.
            whole = _estimates(np.mean(draws, axis=0), (actions, pairs), sum(tasks))
            rows.append(MethodAccuracy(ALL, attributor, method, actions, pairs, *whole))
    return rows


def _sums(items: Sequence[RewardedAction]) -> _Array:
    """Returns sums per task: n, Σx, Σy, Σxx, Σyy, Σxy, right signs, all signs, right pairs, all pairs.

    The figures of a resample follow from sums over its tasks, so the bootstrap never visits single actions.
    """
    tasks = {task: row for row, task in enumerate(dict.fromkeys(item.task for item in items))}
    mean = float(np.mean([item.reward for item in items]))
    sums = np.zeros((len(tasks), 10))  # (tasks, sums)
    by_situation: dict[str, list[RewardedAction]] = defaultdict(list)
    for item in items:
        # Centred rewards: the sign is judged against the mean, and Pearson's r does not change.
        x, y, sign = item.reward - mean, item.truth.advantage, item.truth.sign
        sums[tasks[item.task], :8] += (1, x, y, x * x, y * y, x * y, _right(x, sign), abs(sign))
        by_situation[item.situation].append(item)
    for members in by_situation.values():
        for one, two in itertools.combinations(members, 2):
            sign = one.truth.less(two.truth).sign
            sums[tasks[one.task], 8:] += (_right(one.reward - two.reward, sign), abs(sign))
    return sums


def _right(difference: float, sign: int) -> float:
    """Returns 1 if a difference of rewards has the true sign, 0.5 for a tie, and 0 if the truth is undecided."""
    if not sign or difference * sign < -_SAME:
        return 0.0
    return 1.0 if difference * sign > _SAME else 0.5


def _draws(sums: _Array, resamples: int, generator: np.random.Generator) -> _Array:
    """Returns the figures of the sample (first row) and of every resample, of shape (1 + resamples, 3)."""
    tasks = len(sums)
    # A resample with replacement is a count of how often it contains each task.
    weights = generator.multinomial(tasks, [1 / tasks] * tasks, size=resamples)  # (resamples, tasks)
    totals = np.vstack([np.ones((1, tasks)), weights]) @ sums  # (1 + resamples, sums)
    n, x, y, xx, yy, xy, right, decided, ranked, pairs = totals.T
    with np.errstate(divide="ignore", invalid="ignore"):
        # Rounding can make a variance of 0 slightly negative.
        spread = np.sqrt((n * xx - x * x).clip(0) * (n * yy - y * y).clip(0))
        correlation = np.where(spread > _SAME, (n * xy - x * y) / spread, np.nan)
        return np.column_stack([correlation, right / decided, ranked / pairs])


def _estimates(draws: _Array, counts: tuple[int, int], tasks: int) -> list[Estimate | None]:
    """Returns the figures with their intervals; ranking counts pairs, the others count actions."""
    actions, pairs = counts
    return [_estimate(column, n, tasks) for column, n in zip(draws.T, (actions, actions, pairs), strict=True)]


def _estimate(column: _Array, n: int, tasks: int) -> Estimate | None:
    if np.isnan(column[0]):
        return None
    # Resamples in which a figure is undefined (for example without a decided pair) are left out.
    low, high = np.nanpercentile(column, [2.5, 97.5])
    return Estimate(n, tasks, float(column[0]), float(low), float(high), None, "tasks")


def nearest(rows: Sequence[MethodAccuracy], methods: Sequence[str]) -> list[MethodAccuracy]:
    """Returns the rows of :data:`ALL` (or of the only family) for the given methods, best ranking first."""
    families = {row.family for row in rows}
    family = ALL if ALL in families else next(iter(families), ALL)
    matches = [row for row in rows if row.family == family and row.method in methods]
    return sorted(matches, key=lambda row: -row.ranking.mean if row.ranking else 1.0)


def accuracy_report(
    rows: Sequence[MethodAccuracy],
    notes: Sequence[str],
    name: str = "report",
    title: str = "Accuracy of attribution",
) -> Report:
    """Returns a report with a table for each family, best ranking first, and a chart of all families.

    Args:
        rows: the rows of all families.
        notes: the paragraphs at the beginning.
        name: the name of the report; that of its sheet and chart, too, unless it is ``report``.
        title: the title.
    """
    columns = ("family", "attributor", "method", "actions", "pairs", *FIGURES)
    ordered = sorted(rows, key=lambda row: -(row.ranking.mean if row.ranking else 0.0))
    data = "accuracy" if name == "report" else name
    tables = Sheet.of(data, ordered, columns).split("family")
    families = list(dict.fromkeys(row.family for row in rows))
    return Report(
        name=name,
        title=title,
        parts=[*notes, *sorted(tables, key=lambda table: families.index(table.title))],
        sheets=[Sheet.of(data, rows, columns)],
        charts=lambda: {data: _accuracy_chart(rows, title)},
    )


def _accuracy_chart(rows: Sequence[MethodAccuracy], title: str) -> Figure:
    """A panel for each figure and family, with a line for each method; chance is marked."""
    panels = []
    for family, name in itertools.product(dict.fromkeys(row.family for row in rows), FIGURES):
        labelled = [(f"{row.attributor}, {row.method}", getattr(row, name)) for row in rows if row.family == family]
        lines = [(label, item) for label, item in labelled if item is not None]
        chance = 0.0 if name == "correlation" else 0.5
        panels += [Panel(f"{name} (chance: {chance:g})", lines, family.replace("_", " "), chance)] if lines else []
    return forest_chart(panels, title, counted="actions, for ranking pairs of them", beside=len(FIGURES))
