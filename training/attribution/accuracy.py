"""Accuracy of attribution: the rewards that each method gives to forced actions, against what these are worth.

Three figures for each method, in each family of tasks and as the mean over the families:

* **correlation**: Pearson's r of reward and advantage, over all actions;
* **sign**: how often the reward lies on the same side of the method's mean in the family as the advantage of 0; the
  mean is what a learner without a model of states can take for its baseline;
* **ranking**: how often the better one of two actions in one state has the higher reward: what a reward model is asked.

An equal reward counts as half right, so that chance is 0.5 for the latter two; only what the measurement decides (two
standard errors) counts in them. Intervals are 95 % percentiles of a bootstrap over tasks, each with all its episodes,
states and actions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sotopia_env.reports import Estimate, Panel, Report, Sheet, forest_chart
from training.attribution.probes import Truth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = ("correlation", "sign", "ranking")
ALL = "mean of families"
_SAME = 1e-9
_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observation:
    """The reward of one forced action by one method.

    Attributes:
        family: of the task.
        task: its id.
        situation: of the state.
        truth: what the action is worth.
        reward: what the method gave.
    """

    family: str
    task: str
    situation: str
    truth: Truth
    reward: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A row of the report.

    Attributes:
        family: of the tasks, or :data:`ALL`.
        attributor: who attributed.
        method: what was made of it.
        actions: number of them.
        pairs: pairs of actions in one state that the measurement tells apart.
        correlation: of reward and advantage, in [-1, 1]; like the others ``None`` where nothing decides it.
        sign: share of advantages with the right sign.
        ranking: share of pairs in the right order.
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
    observations: Mapping[tuple[str, str], Sequence[Observation]], resamples: int, seed: int
) -> list[Accuracy]:
    """Returns the rows: for each attributor and method one for each family, and one for their mean.

    Args:
        observations: by attributor and method.
        resamples: of the bootstrap.
        seed: of its draws.
    """
    rows = []
    for (attributor, method), items in observations.items():
        by_family: dict[str, list[Observation]] = defaultdict(list)
        for item in items:
            by_family[item.family].append(item)
        counts: list[tuple[int, int]] = []
        draws: list[_Array] = []
        tasks: list[int] = []
        for family, members in sorted(by_family.items()):
            sums = _sums(members)
            generator = np.random.default_rng([seed, len(draws)])  # the same draws for every method
            draws.append(_draws(sums, resamples, generator))
            counts.append((len(members), int(sums[:, -1].sum())))
            tasks.append(len(sums))
            rows.append(
                Accuracy(family, attributor, method, *counts[-1], *_estimates(draws[-1], counts[-1], tasks[-1]))
            )
        if len(draws) > 1:
            actions, pairs = (sum(column) for column in zip(*counts, strict=True))
            whole = _estimates(np.mean(draws, axis=0), (actions, pairs), sum(tasks))
            rows.append(Accuracy(ALL, attributor, method, actions, pairs, *whole))
    return rows


def _sums(items: Sequence[Observation]) -> _Array:
    """What the figures are made of, per task: n, Σx, Σy, Σxx, Σyy, Σxy, right and all signs, right and all pairs."""
    tasks = {task: row for row, task in enumerate(dict.fromkeys(item.task for item in items))}
    mean = float(np.mean([item.reward for item in items]))
    sums = np.zeros((len(tasks), 10))  # (tasks, sums)
    by_situation: dict[str, list[Observation]] = defaultdict(list)
    for item in items:
        x, y, sign = item.reward - mean, item.truth.advantage, item.truth.sign
        sums[tasks[item.task], :8] += (1, x, y, x * x, y * y, x * y, _right(x, sign), abs(sign))
        by_situation[item.situation].append(item)
    for members in by_situation.values():
        for one, two in itertools.combinations(members, 2):
            sign = one.truth.less(two.truth).sign
            sums[tasks[one.task], 8:] += (_right(one.reward - two.reward, sign), abs(sign))
    return sums


def _right(difference: float, sign: int) -> float:
    """1 if a difference of rewards has the sign of the truth, 0.5 if there is none; 0 if the truth is not decided."""
    if not sign or difference * sign < -_SAME:
        return 0.0
    return 1.0 if difference * sign > _SAME else 0.5


def _draws(sums: _Array, resamples: int, generator: np.random.Generator) -> _Array:
    """The three figures of the sample and of every resample: (1 + resamples, 3)."""
    tasks = len(sums)
    weights = generator.multinomial(tasks, [1 / tasks] * tasks, size=resamples)
    totals = np.vstack([np.ones((1, tasks)), weights]) @ sums
    n, x, y, xx, yy, xy, right, decided, ranked, pairs = totals.T
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt((n * xx - x * x).clip(0) * (n * yy - y * y).clip(0))
        correlation = np.where(spread > _SAME, (n * xy - x * y) / spread, np.nan)
        return np.column_stack([correlation, right / decided, ranked / pairs])


def _estimates(draws: _Array, counts: tuple[int, int], tasks: int) -> list[Estimate | None]:
    """The three figures with their intervals; ranking is over pairs, the others over actions."""
    actions, pairs = counts
    return [_estimate(column, n, tasks) for column, n in zip(draws.T, (actions, actions, pairs), strict=True)]


def _estimate(column: _Array, n: int, tasks: int) -> Estimate | None:
    if np.isnan(column[0]):
        return None
    low, high = np.nanpercentile(column, [2.5, 97.5])
    return Estimate(n, tasks, float(column[0]), float(low), float(high), None, "tasks")


def nearest(rows: Sequence[Accuracy], methods: Sequence[str]) -> list[Accuracy]:
    """Returns the rows of :data:`ALL` (or of the only family) by some methods, best ranking first."""
    families = {row.family for row in rows}
    family = ALL if ALL in families else next(iter(families), ALL)
    chosen = [row for row in rows if row.family == family and row.method in methods]
    return sorted(chosen, key=lambda row: -row.ranking.mean if row.ranking else 1.0)


def accuracy_report(rows: Sequence[Accuracy], notes: Sequence[str]) -> Report:
    """Returns a table for each family, best ranking first, with a chart of all.

    Args:
        rows: of all families.
        notes: paragraphs at the beginning.
    """
    columns = ("family", "attributor", "method", "actions", "pairs", *FIGURES)
    ordered = sorted(rows, key=lambda row: -(row.ranking.mean if row.ranking else 0.0))
    tables = Sheet.of("accuracy", ordered, columns).split("family")
    families = list(dict.fromkeys(row.family for row in rows))
    return Report(
        name="report",
        title="Accuracy of attribution",
        parts=[*notes, *sorted(tables, key=lambda table: families.index(table.title))],
        sheets=[Sheet.of("accuracy", rows, columns)],
        charts=lambda: {"accuracy": _accuracy_chart(rows)},
    )


def _accuracy_chart(rows: Sequence[Accuracy]) -> Figure:
    """A panel for each figure and family, with a line for each method; chance is marked."""
    panels = []
    for family, name in itertools.product(dict.fromkeys(row.family for row in rows), FIGURES):
        own = [(f"{row.attributor}, {row.method}", getattr(row, name)) for row in rows if row.family == family]
        lines = [(label, item) for label, item in own if item is not None]
        chance = 0.0 if name == "correlation" else 0.5
        panels += [Panel(f"{name} (chance: {chance:g})", lines, family.replace("_", " "), chance)] if lines else []
    return forest_chart(
        panels, "Accuracy of attribution methods", counted="actions, for ranking pairs of them", beside=len(FIGURES)
    )
