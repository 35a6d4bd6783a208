"""The charts of a comparison: means, paired differences, means by partner, and means by the levels of a factor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sotopia_env.reports.charts import Panel, forest_chart, heat_chart, unbroken
from sotopia_env.reports.compare import Comparison
from sotopia_env.reports.intervals import Estimate
from sotopia_env.reports.seat_results import EFFICIENCY, OVERALL, SHARE, SUCCESS, WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More differences do not fit into a readable chart: six policies have 15.
_MOST_DIFFERENCES = 15
NOT_COMMON = "[*]"
"""Marks a policy whose means are over other tasks, seats or partners than those of the other policies."""
_LABELS: Mapping[str, str] = {
    OVERALL: "mean of the seven dimensions",
    SUCCESS: "agreement rate",
    SHARE: "share of the surplus (0: no deal, 1: best deal)",
    EFFICIENCY: "joint efficiency",
    WORDS: "words per turn",
}


def policy_label(comparison: Comparison, policy: str) -> str:
    """Returns the policy's name, with a mark if its mean is not comparable with the others."""
    marked = bool(comparison.common.policies) and policy not in comparison.common.policies
    return f"{policy} {NOT_COMMON}" if marked else policy


def metric_label(comparison: Comparison, metric: str) -> str:
    """Returns the name of a metric for readers, with its range if both ends are closed."""
    low, high = comparison.ranges.get(metric, (None, None))
    label = _LABELS.get(metric, metric.replace("_", " "))
    if low is None or high is None:
        return label
    return f"{label} {unbroken(f'(scale {round(low, 2):g} to {round(high, 2):g})')}"


def comparison_charts(comparisons: Sequence[Comparison]) -> dict[str, Figure]:
    """Returns the charts of a comparison by one or several evaluators, as a mapping from file names to figures."""
    first, several = comparisons[0], len(comparisons)
    charts = {"means": _mean_chart(comparisons)}
    if panels := _difference_panels(comparisons):
        heading = f"Paired differences{f' to {first.baseline}' if first.baseline else ''}"
        charts["differences"] = forest_chart(panels, f"{heading}{_by(comparisons)}", beside=several)
    # A heat map has no room for intervals, or for several evaluators; without a baseline it shows all pairs at once.
    if first.baseline or several > 1:
        charts |= {f"{metric}_by_partner": _partner_chart(comparisons, metric) for metric in first.headlines}
    else:
        charts["heat_map"] = heat_map(first)
    return charts | _level_charts(first)


def _by(comparisons: Sequence[Comparison]) -> str:
    evaluator = comparisons[0].evaluator
    return f", scores by {evaluator}" if evaluator and len(comparisons) == 1 else ""


def _beside(comparisons: Sequence[Comparison], comparison: Comparison, *others: str) -> str:
    """The title of a panel, which names the evaluator if there are several."""
    return "\n".join(filter(None, [*others, f"by {comparison.evaluator}" if len(comparisons) > 1 else ""]))


def _mean_chart(comparisons: Sequence[Comparison]) -> Figure:
    """The policies' means in the order of the ranking, with a panel for each headline metric and evaluator."""
    first = comparisons[0]
    # Panels can share their labels only if policies have the same order in all of them.
    order = list(dict.fromkeys([*(rank.policy for rank in first.ranking), *first.policies]))
    panels = []
    for metric, item in itertools.product(first.headlines, comparisons):
        cells = [cell for policy in order if (cell := item.cell(policy, metric)) is not None]
        lines = [(policy_label(item, cell.policy), cell.estimate) for cell in cells]
        panels += [Panel(metric_label(item, metric), lines, _beside(comparisons, item))] if lines else []
    note = f"\n{NOT_COMMON} over other seats or partners: not comparable" if first.common.others else ""
    return forest_chart(panels, f"Means of policies{_by(comparisons)}{note}", beside=len(comparisons))


def _difference_panels(comparisons: Sequence[Comparison]) -> list[Panel]:
    """The panels of paired differences: of every headline to a baseline, else of the main metric.

    If there are too many pairs of policies, only the pairs with the best policy are drawn.
    """
    panels = []
    for metric, item in itertools.product(comparisons[0].headlines, comparisons):
        own = [d for d in item.differences if d.metric == metric]
        if item.baseline is None and metric != item.main:
            continue
        if item.baseline is None and len(own) > _MOST_DIFFERENCES and item.ranking:
            own = [d for d in own if item.ranking[0].policy in (d.first, d.second)]
        lines = [
            (
                (f"{d.first}, with {d.partner}" if d.partner else f"{d.first} - {d.second}")
                + ("" if d.same_partner else " [partners differ]"),
                d.estimate,
            )
            for d in own
        ]
        unit = f"difference in {metric_label(item, metric)}"
        panels += [Panel(unit, lines, _beside(comparisons, item), reference=0)] if lines else []
    return panels


def _partner_chart(comparisons: Sequence[Comparison], metric: str) -> Figure:
    """The policies' means with each partner, a panel for each partner and evaluator."""
    panels = []
    for partner, item in itertools.product(comparisons[0].partners, comparisons):
        cells = [cell for cell in item.matrix if (cell.partner, cell.metric) == (partner, metric)]
        lines = [(cell.policy, cell.estimate) for cell in cells]
        title = _beside(comparisons, item, f"with {partner}")
        panels += [Panel(metric_label(item, metric), lines, title)] if lines else []
    return forest_chart(panels, f"Means with each partner{_by(comparisons)}", beside=len(comparisons))


def _level_charts(comparison: Comparison) -> dict[str, Figure]:
    """The charts of means and differences by the levels of the comparison's factor, with a panel for each policy."""
    by = comparison.by
    if by is None:
        return {}
    label = metric_label(comparison, by.metric)
    means = [(mean.policy, mean.level, mean.estimate) for mean in by.means]
    contrasts = [(item.policy, item.name, item.estimate) for item in by.contrasts if item.estimate is not None]
    charts = {f"by_{by.factor}": _by_policy(means, label, f"Means by {by.factor}", None)}
    if contrasts:
        heading = f"Differences by {by.factor}"
        charts[f"by_{by.factor}_differences"] = _by_policy(contrasts, f"difference in {label}", heading, 0)
    return charts


def _by_policy(items: Sequence[tuple[str, str, Estimate]], label: str, heading: str, reference: float | None) -> Figure:
    policies = list(dict.fromkeys(policy for policy, _, _ in items))
    panels = [
        Panel(label, [(name, item) for other, name, item in items if other == policy], policy, reference)
        for policy in policies
    ]
    return forest_chart(panels, heading)


def heat_map(comparison: Comparison) -> Figure:
    """Draws a grid of policies × partners: the mean of the comparison's main metric for the row's policy, and its n."""
    cells = {(c.policy, c.partner): c.estimate for c in comparison.matrix if c.metric == comparison.main}
    unit = metric_label(comparison, comparison.main)
    axes = ("policy", "partner")
    return heat_chart({"": cells}, comparison.policies, comparison.partners, axes_labels=axes, unit=unit)
