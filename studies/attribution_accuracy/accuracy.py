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
that the measurement decides (by two standard errors). Intervals are over tasks, each with all its episodes, states and
actions (:mod:`studies.attribution_accuracy.intervals`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.sheet import Report, Sheet
from studies.attribution_accuracy.intervals import FIGURES, Sums, TaskEstimate, figure_estimate
from studies.attribution_accuracy.probes import Truth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "mean of families"
# Rewards are floats: smaller differences are rounding errors and count as ties.
_SAME = 1e-9


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
    correlation: TaskEstimate | None
    sign: TaskEstimate | None
    ranking: TaskEstimate | None

    def figures(self) -> dict[str, Any]:
        """The row as JSON."""
        return asdict(self)


def accuracies(observations: Mapping[tuple[str, str], Sequence[RewardedAction]]) -> list[MethodAccuracy]:
    """Returns the rows: for each attributor and method one per family, and one for the mean over the families.

    Args:
        observations: the rewarded actions, by attributor and method.
    """
    rows = []
    for (attributor, method), items in observations.items():
        by_family: dict[str, list[RewardedAction]] = defaultdict(list)
        for item in items:
            by_family[item.family].append(item)
        sums = {family: _sums(members) for family, members in sorted(by_family.items())}
        # The mean is over families, so that families with many actions do not dominate.
        parts = {family: {family: part} for family, part in sums.items()} | ({ALL: sums} if len(sums) > 1 else {})
        for family, part in parts.items():
            actions, pairs = (int(sum(tasks[:, column].sum() for tasks in part.values())) for column in (0, -1))
            estimates = [figure_estimate(figure, part) for figure in FIGURES.values()]
            rows.append(MethodAccuracy(family, attributor, method, actions, pairs, *estimates))
    return rows


def _sums(items: Sequence[RewardedAction]) -> Sums:
    """Returns the sums per task from which the figures follow, also those without one of the tasks."""
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
