"""The report of a comparison by one or several evaluators: tables, sheets and charts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, replace

from sotopia_env.foundation.quoting import escape_line
from sotopia_env.reports.compare import Cell, Comparison, Imbalance
from sotopia_env.reports.comparison_charts import NOT_COMMON, comparison_charts, policy_label
from sotopia_env.reports.differences import Difference
from sotopia_env.reports.intervals import METHOD, Estimate, show_number
from sotopia_env.reports.seat_results import EFFICIENCY, SHARE, SUCCESS, WORDS
from sotopia_env.reports.sheet import ESTIMATE, Missing, Report, Sheet, Value
from sotopia_env.reports.turn_counts import TurnCounts
from sotopia_env.reports.views.headline import headline

# A terminal has no room for more estimates with intervals beside the labels.
_COLUMNS_ON_SCREEN = 4
WEIGHTS = (
    "(in every table each scenario weighs the same, or each vignette with all its versions, however many seats, "
    f"partners and repeats it has; n counts seats)\n{METHOD}"
)
"""The note on weights and intervals below the tables."""


def comparison_report(*comparisons: Comparison, title: str = "Comparison", notes: Sequence[str] = ()) -> Report:
    """Returns the report of a comparison.

    Args:
        comparisons: comparisons of the same seats, each by another evaluator.
        title: the title of the Markdown page.
        notes: paragraphs at the beginning of the report.
    """
    first = comparisons[0]
    sentences = "\n".join(_by(item, comparisons) + headline(item) for item in comparisons)
    parts: list[str | Sheet] = [*notes, _summary(comparisons), sentences]
    for item in comparisons:
        parts += [
            _by(item, comparisons).removesuffix(": "),
            *_ranking_parts(item),
            common_note(item) if item is first else "",
            *_level_parts(item),
        ]
        parts += [*_policy_parts(item), *_family_parts(item)]
    parts += [
        WEIGHTS + _open_ranges(first),
        _turn_sheet(first),
        *_partner_parts(comparisons),
        *_difference_parts(comparisons),
        _imbalances(first),
    ]
    return Report(
        name="comparison",
        parts=parts,
        sheets=_sheets(comparisons),
        content=asdict(first) if len(comparisons) == 1 else [asdict(item) for item in comparisons],
        charts=lambda: comparison_charts(comparisons),
        title=title,
        headline=sentences,
    )


def _by(comparison: Comparison, comparisons: Sequence[Comparison]) -> str:
    """The evaluator, where there are several."""
    name = escape_line(comparison.scored_by or str(comparison.evaluator))
    return f"Scores by {name}: " if len(comparisons) > 1 else ""


def _summary(comparisons: Sequence[Comparison]) -> str:
    first = comparisons[0]
    lines = [
        unit_line(first),
        f"{_count(first.episodes, 'episode', 'episodes')}, {_count(len(first.policies), 'policy', 'policies')}",
    ]
    for item in comparisons:
        by = escape_line(item.scored_by or item.evaluator or "no evaluator; the episodes have not been evaluated")
        lines += [f"scores by: {by}; {item.unscored} episodes unscored", *reason_lines(item.reasons)]
    if first.outcomes_by:
        lines.append(f"verified outcomes by: {escape_line(', '.join(first.outcomes_by))}")
    return "\n".join([*lines, *map(escape_line, first.unlike)])


def unit_line(comparison: Comparison) -> str:
    """Returns the unit of inference of the main metric and its number: what an interval generalises to."""
    estimates = [cell.estimate for cell in comparison.cells if cell.metric == comparison.main]
    units: dict[str, set[int]] = {item.over: set() for item in sorted(estimates, key=lambda item: item.over)}
    for item in estimates:
        units[item.over].add(item.clusters)
    parts = [_number_of(over, counts) for over, counts in units.items()]
    text = (
        ", ".join(parts)
        or "no scenarios, because no seat has a value; score the episodes with `sotopia evaluate RUN --evaluator NAME`"
    )
    return f"unit of inference ({comparison.main}): {text}"


def _number_of(over: str, counts: Collection[int]) -> str:
    """The unit with its number, or the range of its numbers over policies: ``4 to 20 scenarios``."""
    least, most = min(counts), max(counts)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} {over.removesuffix('s') if most == 1 else over}"


def _open_ranges(comparison: Comparison) -> str:
    """Returns a note on the metrics without a lowest value, whose means and intervals may be below 0."""
    names = [name for name, (low, _) in comparison.ranges.items() if low is None]
    return f"\n(below 0 where agreements are worth less than none: {', '.join(names)})" if names else ""


def reason_lines(reasons: Sequence[tuple[str, int]], most: int = 5) -> list[str]:
    """Returns a line for each of the first ``most`` reasons why seats are unscored, with its count."""
    lines = [f"  unscored, left out of the scores: {count} × {escape_line(reason)}" for reason, count in reasons[:most]]
    return [*lines, f"  … and {len(reasons) - most} more reasons"] if len(reasons) > most else lines


# --- sheets -------------------------------------------------------------------------------------------------------


def _joined(
    name: str,
    columns: Sequence[str],
    comparisons: Sequence[Comparison],
    rows: Callable[[Comparison], Iterable[tuple[Value, ...]]],
) -> Sheet:
    """A sheet with the rows of all evaluators."""
    cells = [(item.evaluator or "", *row) for item in comparisons for row in rows(item)]
    # The files always have the column, so that scripts need not know how many evaluators there were.
    return Sheet(name, ("evaluator", *columns), cells, hidden=("evaluator",) if len(comparisons) == 1 else ())


def _sheets(comparisons: Sequence[Comparison]) -> list[Sheet]:
    policies = _joined(
        "policies",
        ("group", "policy", "metric", "common_seats", "unscored", ESTIMATE),
        comparisons,
        lambda item: (
            (c.group, c.policy, c.metric, c.policy in item.common.policies, c.unscored, c.estimate)
            for c in (*item.cells, *item.families)
        ),
    )
    sheets = [policies, _differences(comparisons), _matrix(comparisons), _ranking(comparisons)]
    return [*sheets, _turn_sheet(comparisons[0]), *(_levels(comparisons) if comparisons[0].by else ())]


def _ranking(comparisons: Sequence[Comparison]) -> Sheet:
    sheet = _joined(
        "ranking",
        ("rank", "policy", ESTIMATE, "unscored", "ties"),
        comparisons,
        _ranks,
    )
    labels = {ESTIMATE: comparisons[0].main, "unscored": "unscored seats", "ties": "not told apart from"}
    return replace(sheet, labels=labels)


def _ranks(comparison: Comparison) -> Iterable[tuple[Value, ...]]:
    """The ranked policies, then those that were not scored in the same seats."""
    cells = {cell.policy: cell for cell in comparison.cells if cell.metric == comparison.main}
    for rank in comparison.ranking:
        yield rank.places, rank.policy, rank.estimate, cells[rank.policy].unscored, ", ".join(rank.ties)
    reasons = {policy: f"{count} seats {reason}" for policy, reason, count in comparison.common.left_out}
    ranked = {rank.policy for rank in comparison.ranking}
    for policy in (p for p, _ in comparison.common.others if comparison.ranking and p not in ranked):
        cell, why = cells.get(policy), Missing(reasons.get(policy, "no seats in common"))
        estimate = Missing("not scored") if cell is None else cell.estimate
        yield why, policy, estimate, Missing("not scored") if cell is None else cell.unscored, ""


def _matrix(comparisons: Sequence[Comparison]) -> Sheet:
    return _joined(
        "matrix",
        ("policy", "partner", "metric", "unscored", ESTIMATE),
        comparisons,
        lambda item: ((m.policy, m.partner, m.metric, m.unscored, m.estimate) for m in item.matrix),
    )


def _levels(comparisons: Sequence[Comparison]) -> tuple[Sheet, Sheet]:
    """The means by level, and the differences between levels."""
    # All comparisons have the same factor and metric, but one without a value has no levels.
    (factor, metric) = next((item.by.factor, item.by.metric) for item in comparisons if item.by is not None)
    means = _joined(
        f"by_{factor}",
        ("level", "policy", ESTIMATE),
        comparisons,
        lambda item: ((m.level, m.policy, m.estimate) for m in (item.by.means if item.by else ())),
    )
    contrasts = _joined(
        f"by_{factor}_differences",
        ("difference", "policy", ESTIMATE, "p", "q", "left_out", "paired_by"),
        comparisons,
        lambda item: (
            (c.name, c.policy, c.estimate or Missing(c.missing), *_test(c.estimate, c.q), c.left_out, c.paired_by)
            for c in (item.by.contrasts if item.by else ())
        ),
    )
    labels = {ESTIMATE: metric, "level": factor, "difference": f"difference by {factor}"}
    labels |= {"paired_by": "paired by", "left_out": "units left out"}
    folding = ("policy", "left_out", "paired_by")
    return replace(means, labels=labels, folding=folding), replace(contrasts, labels=labels, folding=folding)


def _test(estimate: Estimate | None, q: float | None) -> tuple[Value, Value]:
    """The p-value and the adjusted p-value, or the reason why they are missing."""
    gap = Missing("no difference" if estimate is None else estimate.missing)
    p = None if estimate is None else estimate.p
    return gap if p is None else p, gap if q is None else q


def _differences(comparisons: Sequence[Comparison]) -> Sheet:
    compared = ("first", "second", "partner", "metric", ESTIMATE, "p", "q", "missing", "worst", "best")
    pairing = ("paired_by", "same_partner", "matched", "seats")
    sheet = _joined(
        "differences",
        (*compared, *pairing),
        comparisons,
        lambda item: (
            (
                d.first,
                d.second,
                d.partner,
                d.metric,
                d.estimate,
                *_test(d.estimate, d.q),
                *_bounds(item, d),
                *_pairing(d),
            )
            for d in item.differences
        ),
    )
    labels = {ESTIMATE: "paired difference [95 % interval] n", "second": "less", "first": "policy"}
    labels |= {
        "missing": "results missing",
        "worst": "if worst",
        "best": "if best",
        "paired_by": "paired by",
        "same_partner": "same partner",
        "matched": "seats paired",
        "seats": "of",
    }
    return replace(sheet, labels=labels, folding=("second", "partner", "missing", "worst", "best", *pairing))


def _bounds(comparison: Comparison, difference: Difference) -> tuple[Value, ...]:
    """The number of missing results, and the difference if these were as bad, or as good, as they can be."""
    gap = Missing("the metric has no closed range" if difference.missing else "none missing")
    ends = (gap if end is None else end for end in (difference.worst, difference.best))
    return difference.missing, *ends


def _pairing(difference: Difference) -> tuple[Value, ...]:
    return difference.paired_by, difference.same_partner, difference.matched, difference.seats


def _turn_sheet(comparison: Comparison) -> Sheet:
    columns = ("policy", "turns", "illegal", "illegal_percent", "invalid", "invalid_percent")
    usage = ("reasks", "tokens", "cost", "seconds_per_turn")
    labels = {"policy": "turns of", "illegal_percent": "illegal %", "invalid_percent": "invalid %", "reasks": "re-asks"}
    labels |= {"cost": "cost $", "seconds_per_turn": "seconds a turn"}
    rows = [(policy, *_turn_cells(counts)) for policy, counts in comparison.turns]
    # Columns that are equal for all policies, such as a cost of 0, become a line below the table.
    folding = (*columns[2:], *usage)
    return Sheet("turns", (*columns, *usage), rows, labels=labels, formats={"cost": "{:.4f}".format}, folding=folding)


def _turn_cells(counts: TurnCounts) -> tuple[Value, ...]:
    """The counts over all seats of a policy; a quantity that was not recorded is missing, not 0."""

    def value_or_missing(value: float | None, reason: str) -> Value:
        return Missing(reason if counts.texts else "no texts") if value is None else value

    illegal = 100 * counts.illegal / counts.turns if counts.turns else None
    invalid = None if counts.invalid is None else 100 * counts.invalid / counts.texts
    return (
        counts.turns,
        counts.illegal,
        value_or_missing(illegal, "no turns"),
        value_or_missing(counts.invalid, "unknown"),
        value_or_missing(invalid, "unknown"),
        value_or_missing(counts.reasks, "unknown"),
        value_or_missing(counts.tokens, "not reported"),
        value_or_missing(counts.cost, "price unknown"),
        value_or_missing(counts.seconds_per_turn, "not measured"),
    )


# --- parts of the page --------------------------------------------------------------------------------------------


def _ranking_parts(comparison: Comparison) -> list[str | Sheet]:
    """The ranking, if at least two policies have comparable means."""
    if len(comparison.ranking) < 2:
        return []
    left_out = [policy for policy, _ in comparison.common.others if comparison.common.policies]
    note = "(ranks by the paired differences over all partners, adjusted by Holm: a range where they leave it open"
    note += f"; not ranked: {_some(left_out)})" if left_out else ")"
    return [replace(_ranking([comparison]).where(evaluator=comparison.evaluator or ""), notes=(note,))]


def _level_parts(comparison: Comparison) -> list[str | Sheet]:
    if comparison.by is None:
        return []
    left_out = comparison.by.left_out
    note = f"({left_out} seats have no {comparison.by.factor} and are left out of these two)" if left_out else ""
    notes = [note, f"({comparison.by.note})" if comparison.by.note else ""]
    return [*(sheet.where(evaluator=comparison.evaluator or "") for sheet in _levels([comparison])), *notes]


def common_note(comparison: Comparison) -> str:
    """Returns a note on the seats that the means are over and on means that are not comparable; empty if all are."""
    common, lines = comparison.common, []
    if len(comparison.policies) > 1 and not common.policies:
        first, second = map(escape_line, comparison.policies[:2])
        lines.append(
            "no two policies have a task, a seat and a partner in common, so the means differ by these too; let them "
            f"play with the same partner, for example rollout --matchup '{first} vs P' --matchup '{second} vs P'"
        )
    elif common.policies and (common.others or common.matched < common.seats):
        lines.append(
            f"means of {_some(common.policies)} are over the seats in which all have a score (task, rules, seat, "
            f"partner; repeats are averaged): {common.matched} of {common.seats}, with {_some(common.partners)}"
        )
        lines += [f"  left out: {escape_line(policy)}: {count} seats {why}" for policy, why, count in common.left_out]
    lines += [
        f"{NOT_COMMON} {escape_line(policy)}: its mean is over its own seats, with {_some(partners)}; "
        "compare it by the paired differences"
        for policy, partners in (common.others if common.policies else ())
    ]
    return "\n".join(lines)


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _some(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return escape_line(", ".join(names[:most])) + more


def _policy_parts(comparison: Comparison) -> list[str | Sheet]:
    # Constant metrics (such as an agreement rate of 1) would fill the table with equal cells; they become a line below.
    constant = dict(comparison.constant)
    # The primary metric was named before the results were seen, so it comes first.
    metrics = dict.fromkeys([*(name for name in [comparison.main] if name in comparison.metrics), *comparison.metrics])
    varied = [metric for metric in metrics if metric not in constant]
    rows = [
        (metric, policy_label(comparison, policy), _cell(comparison.cell(policy, metric), metric))
        for metric, policy in itertools.product(varied, comparison.policies)
    ]
    sheet = Sheet("policies", ("metric", "policy", ESTIMATE), rows)
    pages = sheet.crossed(("metric",), "policy", corner="mean [95 % interval] n").pages(1, _COLUMNS_ON_SCREEN)
    values = ", ".join(f"{metric} {show_number(value)}" for metric, value in constant.items())
    folded = [f"(the same in every seat, so not in the table: {escape_line(values)})"] if constant else []
    return [*pages, *folded]


def _cell(cell: Cell | None, metric: str) -> Value:
    if cell is not None:
        return cell.estimate
    verified = metric in (SUCCESS, SHARE, EFFICIENCY)
    return Missing("no verified outcome" if verified else "no turns" if metric == WORDS else "not scored")


def _family_parts(comparison: Comparison) -> list[str | Sheet]:
    cells = {(cell.group, cell.policy, cell.metric): cell for cell in comparison.families}
    pairs, metrics = dict.fromkeys(key[:2] for key in cells), (SUCCESS, SHARE, EFFICIENCY)
    rows = [(*pair, *(_cell(cells.get((*pair, metric)), metric) for metric in metrics)) for pair in pairs]
    return [Sheet("families", ("verified family", "policy", *metrics), rows)]


def _partner_parts(comparisons: Sequence[Comparison]) -> list[str | Sheet]:
    """The headlines by partner, with intervals if only few policies are compared."""
    first = comparisons[0]
    listed = _matrix(comparisons).among("partner", first.partners)
    few = len(first.policies) <= _COLUMNS_ON_SCREEN
    parts: list[str | Sheet] = []
    for metric in first.headlines if first.baseline or len(comparisons) > 1 else first.headlines[:1]:
        rows = listed.where(metric=metric)
        corner = f"{metric}: partner \\ policy"
        parts.append(rows.crossed(("evaluator", "partner"), "policy", corner=corner, missing="not met", means=not few))
    mixed = len({cell.partner for cell in first.matrix} - set(first.partners))
    note = f"({mixed} mixed sets of partners, in tasks with three or more seats, are in the CSV and JSON only)"
    return [*parts, note if mixed else ""]


def _difference_parts(comparisons: Sequence[Comparison]) -> list[str | Sheet]:
    first = comparisons[0]
    constant = dict(first.constant)
    metrics = [m for m in (first.headlines if first.main in first.metrics else first.metrics) if m not in constant]
    sheet = _differences(comparisons).among("metric", metrics)
    notes = ["(q: Benjamini-Hochberg over all differences in the same metric)"]
    if not all(sheet.column("same_partner")):
        notes.append(
            "(not the same partner: the two policies never met the same partner in the same seat of a task, so the "
            "difference may be due to the policies or to their partners, which the matrix lists)"
        )
    title = f"Paired differences to {escape_line(first.baseline)}" if first.baseline else ""
    return [replace(sheet, title=title, notes=tuple(notes)), *_consistency(comparisons)]


def _consistency(comparisons: Sequence[Comparison]) -> list[str | Sheet]:
    """The number of partners and evaluators with which each difference to the baseline holds."""
    groups: dict[tuple[str, str], list[Estimate]] = {}
    for item in (d for comparison in comparisons if comparison.baseline for d in comparison.differences):
        groups.setdefault((item.first, item.metric), []).append(item.estimate)
    rows = [
        (
            *key,
            len(estimates),
            sum(item.low is not None and item.low > 0 for item in estimates),
            sum(item.high is not None and item.high < 0 for item in estimates),
            min(item.mean for item in estimates),
        )
        for key, estimates in groups.items()
    ]
    columns = ("policy", "metric", "partners × evaluators", "interval above 0", "below 0", "smallest difference")
    return [Sheet("consistency", columns, rows, "Consistency of the differences over partners and evaluators")]


_MOST_IMBALANCES = 8


def _imbalances(comparison: Comparison) -> str:
    lines = [_imbalance(item) for item in comparison.imbalances[:_MOST_IMBALANCES]]
    more = len(comparison.imbalances) - len(lines)
    head = "not balanced, so means also depend on the seats and the order of a policy:"
    return "\n  ".join([head, *lines, *([f"… and {more} more"] if more else [])]) if lines else ""


def _imbalance(item: Imbalance) -> str:
    counts = ", ".join(f"seat {seat}: {count}" for seat, count in enumerate(item.by_seat))
    order = f"; began {item.first} of {item.in_order}" if item.first * item.seats != item.in_order else ""
    return f"{escape_line(item.policy)} in tasks of {item.seats} seats ({counts}{order})"
