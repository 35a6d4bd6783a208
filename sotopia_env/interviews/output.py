"""The report on interviews: tables, sheets, and charts like AgentSense's figures 5 to 8."""

from __future__ import annotations

from dataclasses import astuple, fields, replace
from typing import TYPE_CHECKING

from sotopia_env.foundation.quoting import escape_line
from sotopia_env.interviews.report import PARTS, InterviewReport
from sotopia_env.interviews.sensitivity import Variation
from sotopia_env.reports.charts import Panel, forest_chart, heat_chart, new_figure, paper_style
from sotopia_env.reports.sheet import ESTIMATE, Report, Sheet, show_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNIT = "share (scale 0 to 1)"
_NOTE = (
    "(percent; mean [95 % interval] n; every template weighs the same, intervals are over templates; a goal without "
    "answers is left out; information: right answers per question asked, a missing answer is not right; "
    "information_answered: right answers per answer; information_coverage: answers per question asked)"
)
_MOST_TESTS = 12
_ESTIMATE_IN_PERCENT = {ESTIMATE: show_percent}


def interviews_report(report: InterviewReport) -> Report:
    """Returns the report that ``sotopia interview-report`` prints and writes."""
    sheets = _sheets(report)
    completion, groups, tests, roles, planes, accuracy, responses = sheets
    # On the page, measures are in their own order, the main one first; in the files, rows are in the report's order.
    order = [[policy, measure] for policy in report.policies for measure in report.measures]
    rows = sorted(completion.rows, key=lambda row: order.index([str(row[0]), str(row[1])]))
    parts: list[str | Sheet] = [_summary(report), replace(completion, rows=rows, hidden=("between_templates",)), _NOTE]
    parts += [responses, accuracy, *_group_parts(report, groups), *_role_parts(report, roles), planes]
    parts += _test_parts(report, tests)
    return Report("interviews", parts, sheets, report, lambda: _charts(report))


def _sheets(report: InterviewReport) -> tuple[Sheet, ...]:
    tests = sorted(report.tests, key=lambda item: item.test.p)
    return (
        Sheet(
            "completion",
            ("policy", "measure", ESTIMATE, "psi", "results", "between_templates"),
            [(c.policy, c.measure, c.estimate, c.psi, c.results, c.between) for c in report.completion],
            labels={ESTIMATE: "completion or accuracy", "psi": "PSI", "results": "results an instance"},
            notes=_psi_notes(report),
            formats={ESTIMATE: show_percent, "psi": show_percent},
        ),
        Sheet(
            "groups",
            ("grouping", "group", "policy", "measure", ESTIMATE),
            [(c.grouping, c.group, c.policy, c.measure, c.estimate) for c in report.groups],
            formats=_ESTIMATE_IN_PERCENT,
        ),
        Sheet(
            "sensitivity",
            ("policy", "measure", *(field.name for field in fields(Variation))),
            [(item.policy, item.measure, *astuple(item.test)) for item in tests],
            labels={"ratio": "F within", "bonferroni": "Bonferroni", "more": "varies more"},
            formats={"mean": show_percent, "variance": "{:.4f}".format},
        ),
        Sheet(
            "roles",
            ("part", "sender", "receiver", ESTIMATE),
            [(c.part, c.sender, c.receiver, c.estimate) for c in report.roles],
            formats=_ESTIMATE_IN_PERCENT,
        ),
        Sheet(
            "plane",
            ("policy", "attack", "defence"),
            [(c.policy, c.attack, c.defence) for c in report.planes],
            labels={"policy": "private information"},
            formats={"attack": show_percent, "defence": show_percent},
        ),
        Sheet(
            "accuracy",
            ("respondent", "kappa", ESTIMATE),
            [(c.respondent, c.kappa, c.accuracy) for c in report.accuracies],
            labels={"respondent": "against the exact outcome", ESTIMATE: "accuracy"},
            formats=_ESTIMATE_IN_PERCENT,
        ),
        Sheet(
            "responses",
            ("view", "policy", "asked", "answered"),
            [(c.view, c.policy, c.asked, c.answered) for c in report.responses],
            labels={"view": "questions by view"},
        ),
    )


def _summary(report: InterviewReport) -> str:
    counts = f"{report.episodes} episodes of {report.templates} templates, {len(report.policies)} policies"
    return f"{counts}\nanswers by: {escape_line(report.evaluator)}\nmain measure: {report.measure}"


def _psi_notes(report: InterviewReport) -> tuple[str, ...]:
    numbers: dict[str, set[float]] = {}
    for cell in report.completion:
        numbers.setdefault(cell.measure, set()).add(round(cell.results, 6))
    unlike = [measure for measure, own in numbers.items() if len(own) > 1]
    note = "(PSI contains chance, the more the fewer results an instance has: compare it only where these are equal"
    return (f"{note}; policies differ in {escape_line(', '.join(unlike))})" if unlike else f"{note})",)


def _group_parts(report: InterviewReport, groups: Sheet) -> list[Sheet]:
    return [
        sheet.crossed(("group",), "policy", corner=f"{report.measure} by {sheet.title}")
        for sheet in groups.where(measure=report.measure).split("grouping")
    ]


def _role_parts(report: InterviewReport, roles: Sheet) -> list[str | Sheet]:
    # A matrix of one cell would repeat the completion.
    if len({(cell.sender, cell.receiver) for cell in report.roles}) < 2:
        return []
    note = f"({report.mixed} episodes have several policies in one role and are left out)"
    tables = [
        sheet.crossed(("sender",), "receiver", corner=f"{report.measure} of {sheet.title}: sender \\ receiver")
        for sheet in roles.split("part")
    ]
    return [*tables, note if report.mixed else ""]


def _test_parts(report: InterviewReport, tests: Sheet) -> list[str | Sheet]:
    if not tests.rows:
        return []
    more = len(tests.rows) - _MOST_TESTS
    by_test = (("chi2", report.abnormal), ("F within", report.abnormal_within))
    abnormal = "; ".join(f"by {test}: {', '.join(templates) or 'none'}" for test, templates in by_test)
    cells = [cell for cell in report.completion if cell.measure == report.measure and cell.between is not None]
    shares = ", ".join(f"{escape_line(cell.policy)} {show_percent(cell.between or 0.0)}" for cell in cells)
    notes = [f"… and {more} more tests, in the CSV and JSON"] if more > 0 else []
    notes += [
        f"abnormal (vary more, p < 0.05, for most policies) {escape_line(abnormal)}",
        # The reader needs these shares to judge how far the χ² test can be trusted.
        "(sensitivity to profiles: chi2 compares a template with all instances together, F with the other templates "
        "within themselves. The larger the share of the variance between templates, the less chi2 detects; here, in "
        f"percent: {shares})",
    ]
    return [replace(tests, rows=tests.rows[:_MOST_TESTS], notes=tuple(notes), hidden=("measure",))]


def _charts(report: InterviewReport) -> dict[str, Figure]:
    """The charts: goals by view with accuracy on private information, goals by type (figure 6), roles, plane."""
    completion = [(cell.measure.replace("_", " "), cell.policy, cell.estimate) for cell in report.completion]
    cells = [cell for cell in report.groups if (cell.grouping, cell.measure) == ("goal type", report.measure)]
    groups = [(cell.policy, cell.group, cell.estimate) for cell in cells]
    charts: dict[str, Figure] = {}
    for name, rows, heading in (
        ("completion", completion, "Goals completed by view, and accuracy on private information"),
        ("goal_types", groups, f"Goals completed ({report.measure}) by goal type"),
    ):
        titles = list(dict.fromkeys(title for title, _, _ in rows))
        panels = [Panel(_UNIT, [(name, item) for own, name, item in rows if own == title], title) for title in titles]
        charts |= {name: forest_chart(panels, heading)} if panels else {}
    charts |= {"roles": _role_chart(report)} if report.roles else {}
    return charts | ({"plane": _plane_chart(report)} if report.planes else {})


def _role_chart(report: InterviewReport) -> Figure:
    """Completion by sender and receiver: of all (figure 5a), of the senders (figure 7), of the receivers (figure 8)."""
    panels = {
        f"{report.measure} of {part}": {(c.sender, c.receiver): c.estimate for c in report.roles if c.part == part}
        for part in PARTS
    }
    senders, receivers = (sorted({getattr(cell, role) for cell in report.roles}) for role in ("sender", "receiver"))
    return heat_chart(panels, senders, receivers, axes_labels=("senders", "receivers"), unit=_UNIT, limits=(0, 1))


def _plane_chart(report: InterviewReport) -> Figure:
    """Attack and defence with their intervals, as in figure 5b."""
    figure = new_figure(3.4, 3.4)
    with paper_style():
        axes = figure.add_subplot()
    for plane in report.planes:
        # A policy that was never an attacker, or never a defender, has no point.
        if plane.attack is None or plane.defence is None:
            continue
        x, y = plane.attack, plane.defence
        (line,) = axes.plot([x.mean], [y.mean], "o", label=plane.policy)
        if x.low is not None and x.high is not None:
            axes.hlines(y.mean, x.low, x.high, color=line.get_color())
        if y.low is not None and y.high is not None:
            axes.vlines(x.mean, y.low, y.high, color=line.get_color())
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("attack: share of right inferences")
    axes.set_ylabel("defence: 1 - share of others' right ones")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize=7, loc="outside upper center", ncols=2)
    return figure
