"""A comparison as text for the screen, as JSON, as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sotopia_env.files import csv_text
from sotopia_env.quoting import disarm_line
from sotopia_env.reports.compare import Cell, Comparison, Imbalance
from sotopia_env.reports.intervals import METHOD, Estimate
from sotopia_env.reports.seat_results import EFFICIENCY, SHARE, SUCCESS

_COLUMNS_ON_SCREEN = 4
NOT_COMMON = "[*]"
"""Marks a policy whose means are over other tasks, seats or partners than the others' are."""
WEIGHTS = (
    "(in every table each scenario weighs the same, however many seats, partners and repeats it has; n counts seats)\n"
    f"{METHOD}"
)
"""The note on weights and intervals under the tables."""


def show_number(value: float | None) -> str:
    """Returns a number with two decimals, ``n/a`` for none."""
    return "n/a" if value is None else f"{round(value, 2) + 0.0:.2f}"  # adding 0 turns -0.0 into 0.0


def show_estimate(estimate: Estimate) -> str:
    """Returns ``mean [low, high] n``; an interval that does not exist is ``n/a``."""
    interval = "n/a" if estimate.low is None else f"[{show_number(estimate.low)}, {show_number(estimate.high)}]"
    return f"{show_number(estimate.mean)} {interval} {estimate.n}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns aligned columns: the first to the left, the others to the right."""
    lines = [[disarm_line(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_aligned_row(line, widths) for line in lines)


def _aligned_row(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0]), *(c.rjust(width) for c, width in zip(line[1:], widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def to_text(comparison: Comparison) -> str:
    """Returns the tables that ``sotopia compare`` prints."""
    parts = [_summary(comparison), common_note(comparison), *_policy_tables(comparison), _family_table(comparison)]
    parts += [_matrix_table(comparison), _difference_table(comparison), _imbalance_note(comparison)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(comparison: Comparison) -> str:
    lines = [f"{comparison.episodes} episodes, {len(comparison.policies)} policies, {comparison.unscored} unscored"]
    lines.append(f"scores by: {disarm_line(comparison.evaluator or 'nobody; the episodes have not been evaluated')}")
    if comparison.outcomes_by:
        lines.append(f"verified outcomes by: {disarm_line(', '.join(comparison.outcomes_by))}")
    return "\n".join([*lines, *reason_lines(comparison.reasons)])


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
    tables = []
    for start in range(0, len(comparison.policies), _COLUMNS_ON_SCREEN):
        policies = comparison.policies[start : start + _COLUMNS_ON_SCREEN]
        rows = [(metric, *(_show_cell(comparison.cell(p, metric)) for p in policies)) for metric in comparison.metrics]
        tables.append(table(("mean [95 % interval] n", *(policy_label(comparison, p) for p in policies)), rows))
    return [*tables, WEIGHTS]


def policy_label(comparison: Comparison, policy: str) -> str:
    """Returns the policy's name, with a mark where its mean is not comparable with the others'."""
    marked = bool(comparison.common.policies) and policy not in comparison.common.policies
    return f"{policy} {NOT_COMMON}" if marked else policy


def _show_cell(cell: Cell | None) -> str:
    return "n/a" if cell is None else show_estimate(cell.estimate)


def _family_table(comparison: Comparison) -> str:
    cells = {(cell.group, cell.policy, cell.metric): cell for cell in comparison.families}
    rows = []
    for group, policy in dict.fromkeys((cell.group, cell.policy) for cell in comparison.families):
        rows.append((group, policy, *(_show_cell(cells.get((group, policy, m))) for m in (SUCCESS, SHARE, EFFICIENCY))))
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
    rows = [(p, *(show_number(means.get((p, partner))) for partner in partners)) for p in comparison.policies]
    mixed = len({partner for _, partner in means} - set(partners))
    note = f"\n({mixed} mixed sets of partners, in tables of three and more, are in the CSV and JSON only)"
    return table((f"{comparison.main}: policy \\ partner", *partners), rows) + (note if mixed else "")


def _difference_table(comparison: Comparison) -> str:
    rows = [
        (
            f"{d.first} - {d.second}",
            d.metric,
            show_estimate(d.estimate),
            show_p(d.estimate.p),
            show_p(d.q),
            d.paired_by if d.same_partner else f"{d.paired_by}; PARTNERS DIFFER",
            f"{d.matched}/{d.seats}",
        )
        for d in comparison.differences
        if d.metric in (comparison.headlines or comparison.metrics)
    ]
    header = ("paired difference", "metric", "mean [95 % interval] n", "p", "q (BH)", "paired by", "seats paired")
    if not rows:
        return ""
    note = "" if all(d.same_partner for d in comparison.differences) else f"\n{_PARTNERS_DIFFER}"
    return table(header, rows) + note


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


def show_p(value: float | None) -> str:
    """Returns a p-value with three decimals, ``n/a`` for none."""
    return "n/a" if value is None else ("<0.001" if value < 0.001 else f"{value:.3f}")


def to_json(comparison: Comparison) -> str:
    """Returns everything in the comparison as JSON; what does not exist is ``null``."""
    return json.dumps(asdict(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


_ESTIMATE = ("n", "scenarios", "mean", "low", "high", "p")


def _numbers(e: Estimate) -> tuple[object, ...]:
    return (e.n, e.clusters, e.mean, e.low, e.high, e.p)


def to_csv(comparison: Comparison) -> dict[str, str]:
    """Returns three CSV texts by name: ``policies``, ``differences``, ``matrix``; an empty field means n/a."""
    policies = [
        (c.group, c.policy, c.metric, c.policy in comparison.common.policies, c.unscored, *_numbers(c.estimate))
        for c in (*comparison.cells, *comparison.families)
    ]
    differences = [
        (d.first, d.second, d.metric, d.paired_by, d.same_partner, d.matched, d.seats, *_numbers(d.estimate), d.q)
        for d in comparison.differences
    ]
    matrix = [(m.policy, m.partner, m.metric, *_numbers(m.estimate)) for m in comparison.matrix]
    return {
        "policies": csv_text(("group", "policy", "metric", "common_seats", "unscored", *_ESTIMATE), policies),
        "differences": csv_text(
            ("first", "second", "metric", "paired_by", "same_partner", "matched", "seats", *_ESTIMATE, "q"), differences
        ),
        "matrix": csv_text(("policy", "partner", "metric", *_ESTIMATE), matrix),
    }
