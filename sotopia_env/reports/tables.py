"""A comparison as text for the screen, as JSON, as CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from sotopia_env.quoting import disarm_line
from sotopia_env.reports.compare import Cell, Comparison, Imbalance
from sotopia_env.reports.intervals import CASTINGS, METHOD, PARTICIPANTS, Estimate
from sotopia_env.reports.named_table import (
    MARKS,
    Missing,
    NamedTable,
    Value,
    show_estimate,
    show_number,
    show_p,
    table,
)
from sotopia_env.reports.seat_results import EFFICIENCY, SHARE, SUCCESS, WORDS
from sotopia_env.reports.turn_counts import TurnCounts

__all__ = [
    "NOT_COMMON",
    "WEIGHTS",
    "common_note",
    "partner_columns",
    "policy_label",
    "reason_lines",
    "show_estimate",
    "show_number",
    "show_p",
    "table",
    "to_csv",
    "to_json",
    "to_text",
]

_COLUMNS_ON_SCREEN = 4
NOT_COMMON = "[*]"
"""Marks a policy whose means are over other tasks, seats or partners than the others' are."""
WEIGHTS = (
    "(in every table each scenario weighs the same, with its versions if it is one of a vignette, however many seats, "
    "partners and repeats it has; n counts seats)\n"
    f"{METHOD}"
)
"""The note on weights and intervals under the tables."""
_MARK_NOTES = {
    CASTINGS: "of one scenario or vignette: the interval is over its castings, and says nothing of other scenarios",
    PARTICIPANTS: "of people: each participant weighs the same, and the interval is over them",
}


def to_text(comparison: Comparison) -> str:
    """Returns the tables that ``sotopia compare`` prints."""
    parts = [_summary(comparison), _ranking_text(comparison), common_note(comparison), *_level_texts(comparison)]
    parts += [*_policy_tables(comparison), _turn_table(comparison).text(), _family_table(comparison)]
    parts += [_matrix_table(comparison), _difference_text(comparison), _imbalance_note(comparison)]
    text = "\n\n".join(part for part in parts if part)
    notes = [f"{MARKS[over]}: {note}" for over, note in _MARK_NOTES.items() if f"]{MARKS[over]}" in text]
    return "\n\n".join([text, "\n".join(notes)] if notes else [text]) + "\n"


def _summary(comparison: Comparison) -> str:
    lines = [f"{comparison.episodes} episodes, {len(comparison.policies)} policies, {comparison.unscored} unscored"]
    lines.append(f"scores by: {disarm_line(comparison.evaluator or 'nobody; the episodes have not been evaluated')}")
    if comparison.outcomes_by:
        lines.append(f"verified outcomes by: {disarm_line(', '.join(comparison.outcomes_by))}")
    return "\n".join([*lines, *reason_lines(comparison.reasons)])


def _ranking_table(comparison: Comparison) -> NamedTable:
    columns = ("rank", "policy", comparison.main, "not told apart from")
    rows = [(rank.places, rank.policy, rank.estimate, ", ".join(rank.ties) or "-") for rank in comparison.ranking]
    return NamedTable("ranking", columns, rows)


def _ranking_text(comparison: Comparison) -> str:
    """The ranking, where there is somebody to be ranked among."""
    if len(comparison.ranking) < 2:
        return ""
    left_out = [policy for policy, _ in comparison.common.others if comparison.common.policies]
    note = "(ranks by the intervals of the paired differences below: a range where they include 0"
    note += f"; not ranked: {_names(left_out)})" if left_out else ")"
    return f"{_ranking_table(comparison).text()}\n{note}"


def _level_tables(comparison: Comparison) -> list[NamedTable]:
    by = comparison.by
    if by is None:
        return []
    means = [(mean.level, mean.policy, mean.estimate) for mean in by.means]
    contrasts = [
        (
            item.name,
            item.policy,
            item.estimate or Missing(item.missing),
            *_test(item.estimate, item.q),
            item.paired_by,
            item.estimate.over if item.estimate else Missing("no difference"),
        )
        for item in by.contrasts
    ]
    return [
        NamedTable(f"by_{by.factor}", (by.factor, "policy", by.metric), means, ("policy",)),
        NamedTable(
            f"by_{by.factor}_differences",
            (f"difference by {by.factor}", "policy", by.metric, "p", "q", "paired by", "over"),
            contrasts,
            ("policy", "paired by", "over"),
        ),
    ]


def _level_texts(comparison: Comparison) -> list[str]:
    texts = [item.text() for item in _level_tables(comparison)]
    if comparison.by is not None and comparison.by.left_out:
        texts.append(f"({comparison.by.left_out} seats have no {comparison.by.factor} and are left out of these two)")
    return texts


def _test(estimate: Estimate | None, q: float | None) -> tuple[Value, Value]:
    """Both p-values, plain and adjusted, or the reason why there are none."""
    gap = Missing("no difference" if estimate is None else estimate.missing)
    p = None if estimate is None else estimate.p
    return gap if p is None else p, gap if q is None else q


def _turn_table(comparison: Comparison) -> NamedTable:
    columns = ("turns of", "turns", "illegal", "illegal %", "invalid", "invalid %")
    told = ("re-asks", "tokens", "cost $", "seconds a turn")
    rows = [(policy, *_turn_cells(counts)) for policy, counts in comparison.turns]
    return NamedTable("turns", (*columns, *told), rows, (*columns[2:], *told))


def _turn_cells(counts: TurnCounts) -> tuple[Value, ...]:
    """Counts over all seats of a policy; what no record tells is missing, and not 0."""

    def known(value: float | None, otherwise: str) -> Value:
        return Missing(otherwise if counts.texts else "no texts") if value is None else value

    illegal = 100 * counts.illegal / counts.turns if counts.turns else None
    invalid = None if counts.invalid is None else 100 * counts.invalid / counts.texts
    return (
        counts.turns,
        counts.illegal,
        known(illegal, "no turns"),
        known(counts.invalid, "unknown"),
        known(invalid, "unknown"),
        known(counts.reasks, "unknown"),
        known(counts.tokens, "not reported"),
        known(counts.cost, "price unknown"),
        known(counts.seconds_per_turn, "not measured"),
    )


def common_note(comparison: Comparison) -> str:
    """Returns which seats the means are over, and whose means are not comparable; empty where all are."""
    common, lines = comparison.common, []
    if len(comparison.policies) > 1 and not common.policies:
        first, second = map(disarm_line, comparison.policies[:2])
        lines.append(
            "no two policies have a task, a seat and a partner in common, so the means differ by these too; let them "
            f"meet the same partner, such as rollout --matchup '{first} vs P' --matchup '{second} vs P'"
        )
    elif common.others or common.kept < common.seats:
        lines.append(
            f"means of {_names(common.policies)} are over the seats they have in common (task, seat, partner): "
            f"{common.kept} of {common.seats}, beside {_names(common.partners)}"
        )
    lines += [
        f"{NOT_COMMON} {disarm_line(policy)}: its mean is over seats of its own, beside {_names(partners)}; "
        "compare it by the paired differences"
        for policy, partners in (common.others if common.policies else ())
    ]
    return "\n".join(lines)


def _names(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return disarm_line(", ".join(names[:most])) + more


def reason_lines(reasons: Sequence[tuple[str, int]], most: int = 5) -> list[str]:
    """Returns a line for each of the first reasons why seats are unscored, with its count."""
    lines = [f"  unscored, left out of the scores: {count} × {disarm_line(reason)}" for reason, count in reasons[:most]]
    return [*lines, f"  … and {len(reasons) - most} more reasons"] if len(reasons) > most else lines


def _policy_tables(comparison: Comparison) -> list[str]:
    tables: list[str] = []
    constant = dict(comparison.constant)
    for start in range(0, len(comparison.policies), _COLUMNS_ON_SCREEN):
        policies = comparison.policies[start : start + _COLUMNS_ON_SCREEN]
        rows = [
            (metric, *(_show_cell(comparison.cell(policy, metric), metric) for policy in policies))
            for metric in comparison.metrics
            if metric not in constant
        ]
        header = ("mean [95 % interval] n", *(policy_label(comparison, policy) for policy in policies))
        tables += [table(header, rows)] if rows else []
    values = ", ".join(f"{metric} {show_number(value)}" for metric, value in constant.items())
    folded = [f"(the same in every seat, so not in the table: {disarm_line(values)})"] if constant else []
    return [*tables, "\n".join([*folded, WEIGHTS])]


def policy_label(comparison: Comparison, policy: str) -> str:
    """Returns the policy's name, with a mark where its mean is not comparable with the others'."""
    marked = bool(comparison.common.policies) and policy not in comparison.common.policies
    return f"{policy} {NOT_COMMON}" if marked else policy


def _show_cell(cell: Cell | None, metric: str) -> str:
    if cell is not None:
        return show_estimate(cell.estimate)
    verified = metric in (SUCCESS, SHARE, EFFICIENCY)
    return f"n/a: {'no verified outcome' if verified else 'no turns' if metric == WORDS else 'not scored'}"


def _family_table(comparison: Comparison) -> str:
    cells = {(cell.group, cell.policy, cell.metric): cell for cell in comparison.families}
    rows = []
    for group, policy in dict.fromkeys((cell.group, cell.policy) for cell in comparison.families):
        rows.append(
            (group, policy, *(_show_cell(cells.get((group, policy, m)), m) for m in (SUCCESS, SHARE, EFFICIENCY)))
        )
    return table(("verified family", "policy", SUCCESS, SHARE, EFFICIENCY), rows) if rows else ""


def partner_columns(comparison: Comparison) -> list[str]:
    """The partners in tables and charts: single policies; mixed sets of partners only where there is nothing else."""
    partners = list(dict.fromkeys(cell.partner for cell in comparison.matrix))
    return [policy for policy in comparison.policies if policy in partners] or partners


def _matrix_table(comparison: Comparison) -> str:
    means = {(cell.policy, cell.partner): cell.estimate.mean for cell in comparison.matrix}
    partners = partner_columns(comparison)
    if not partners:
        return ""
    rows = [
        (p, *(show_number(means[p, partner]) if (p, partner) in means else "-" for partner in partners))
        for p in comparison.policies
    ]
    mixed = len({partner for _, partner in means} - set(partners))
    note = f"\n({mixed} mixed sets of partners, in tables of three and more, are in the CSV and JSON only)"
    gaps = "\n(-: the two did not meet, or were not scored)" if any("-" in row[1:] for row in rows) else ""
    return table((f"{comparison.main}: policy \\ partner", *partners), rows) + gaps + (note if mixed else "")


def _difference_text(comparison: Comparison) -> str:
    constant = dict(comparison.constant)
    shown = [
        d
        for d in comparison.differences
        if d.metric in (comparison.headlines or comparison.metrics) and d.metric not in constant
    ]
    rows: list[tuple[Value, ...]] = [
        (
            f"{d.first} - {d.second}",
            d.metric,
            d.estimate,
            *_test(d.estimate, d.q),
            d.paired_by if d.same_partner else f"{d.paired_by}; PARTNERS DIFFER",
            f"{d.matched}/{d.seats}",
        )
        for d in shown
    ]
    columns = ("paired difference", "metric", "mean [95 % interval] n", "p", "q", "paired by", "seats paired")
    text = NamedTable("", columns, rows, columns[5:]).text()
    note = "" if all(d.same_partner for d in shown) else f"\n{_PARTNERS_DIFFER}"
    return f"{text}\n(q: Benjamini-Hochberg over all differences){note}" if text else ""


_PARTNERS_DIFFER = (
    "(PARTNERS DIFFER: the two policies never met the same partner in the same seat of a task, so such a difference "
    "is one of policies and of partners; whose is whose, the matrix shows)"
)
_MOST_IMBALANCES = 8


def _imbalance_note(comparison: Comparison) -> str:
    lines = [_imbalance(item) for item in comparison.imbalances[:_MOST_IMBALANCES]]
    more = len(comparison.imbalances) - len(lines)
    head = "not balanced, so means also depend on the seats and the order of a policy:"
    return "\n  ".join([head, *lines, *([f"… and {more} more"] if more else [])]) if lines else ""


def _imbalance(item: Imbalance) -> str:
    counts = ", ".join(f"seat {seat}: {count}" for seat, count in enumerate(item.by_seat))
    order = f"; began {item.first} of {item.in_order}" if item.first * item.seats != item.in_order else ""
    return f"{disarm_line(item.policy)} in tasks of {item.seats} seats ({counts}{order})"


def to_json(comparison: Comparison) -> str:
    """Returns everything in the comparison as JSON; what does not exist is ``null``."""
    return json.dumps(asdict(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(comparison: Comparison) -> dict[str, str]:
    """Returns CSV texts by name: ``policies``, ``differences``, ``matrix``, ``ranking``, ``turns``, and by levels.

    An empty field means n/a.
    """
    common = comparison.common.policies
    policies = NamedTable(
        "policies",
        ("group", "policy", "metric", "common_seats", "unscored", "estimate"),
        [
            (c.group, c.policy, c.metric, c.policy in common, c.unscored, c.estimate)
            for c in (*comparison.cells, *comparison.families)
        ],
    )
    differences = NamedTable(
        "differences",
        ("first", "second", "metric", "paired_by", "same_partner", "matched", "seats", "estimate", "p", "q"),
        [
            (
                d.first,
                d.second,
                d.metric,
                d.paired_by,
                d.same_partner,
                d.matched,
                d.seats,
                d.estimate,
                *_test(d.estimate, d.q),
            )
            for d in comparison.differences
        ],
    )
    matrix = NamedTable(
        "matrix",
        ("policy", "partner", "metric", "estimate"),
        [(m.policy, m.partner, m.metric, m.estimate) for m in comparison.matrix],
    )
    tables = [policies, differences, matrix, _ranking_table(comparison), _turn_table(comparison)]
    return {item.name: item.csv() for item in (*tables, *_level_tables(comparison))}
