"""A report on interviews as text for the screen, as JSON, as CSV, and as charts like AgentSense's figures 5 to 8."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.files import csv_text, write_texts
from sotopia_env.quoting import disarm_line
from sotopia_env.reports.charts import Panel, check_formats, forest_chart, new_figure, save_figure
from sotopia_env.reports.intervals import Estimate
from sotopia_env.reports.interviews.report import PARTS, GroupCell, InterviewReport
from sotopia_env.reports.interviews.sensitivity import Variation
from sotopia_env.reports.tables import show_p, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNIT = "share (scale 0 to 1)"
_NOTE = (
    "(percent; mean [95 % interval] n; every template weighs the same, intervals are over templates; a goal that "
    "nobody answered for is left out; information: right of all questions asked, an unanswered one is not right; "
    "information_answered: of the answers alone; information_coverage: answers of all questions asked)"
)
_MOST_TESTS = 12


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{round(100 * value, 1) + 0.0:.1f}"


def _show(estimate: Estimate | None) -> str:
    if estimate is None:
        return "n/a"
    interval = "n/a" if estimate.low is None else f"[{_percent(estimate.low)}, {_percent(estimate.high)}]"
    return f"{_percent(estimate.mean)} {interval} {estimate.n}"


def to_text(report: InterviewReport) -> str:
    """Returns the tables that ``sotopia interview-report`` prints."""
    parts = [_summary(report), _completion_table(report), _NOTE, _responses_table(report), _accuracy_table(report)]
    parts += [_group_table(report, grouping) for grouping in dict.fromkeys(cell.grouping for cell in report.groups)]
    parts += [_role_table(report), _plane_table(report), _test_table(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(report: InterviewReport) -> str:
    counts = f"{report.episodes} episodes of {report.templates} templates, {len(report.policies)} policies"
    return f"{counts}\nanswers by: {disarm_line(report.evaluator)}\nmain measure: {report.measure}"


def _completion_table(report: InterviewReport) -> str:
    cells = {(cell.policy, cell.measure): cell for cell in report.completion}
    rows = [
        (policy, name, _show(cell.estimate), "n/a" if cell.psi is None else _show(cell.psi))
        for policy in report.policies
        for name in report.measures
        if (cell := cells.get((policy, name)))
    ]
    return table(("policy", "measure", "completion or accuracy", "PSI"), rows)


def _responses_table(report: InterviewReport) -> str:
    rows = [(item.view, item.policy or "-", str(item.asked), str(item.answered)) for item in report.responses]
    return table(("questions by view", "policy", "asked", "answered"), rows)


def _accuracy_table(report: InterviewReport) -> str:
    rows = [
        (item.respondent, _show(item.accuracy), "n/a" if item.kappa is None else f"{item.kappa:.2f}")
        for item in report.accuracies
    ]
    return table(("against the exact outcome", "accuracy", "kappa"), rows) if rows else ""


def _main(report: InterviewReport, grouping: str) -> list[GroupCell]:
    return [cell for cell in report.groups if (cell.grouping, cell.measure) == (grouping, report.measure)]


def _group_table(report: InterviewReport, grouping: str) -> str:
    cells = {(cell.group, cell.policy): cell.estimate for cell in _main(report, grouping)}
    groups = dict.fromkeys(group for group, _ in cells)
    rows = [(group, *(_show(cells.get((group, policy))) for policy in report.policies)) for group in groups]
    return table((f"{report.measure} by {grouping}", *report.policies), rows) if rows else ""


def _matrix(report: InterviewReport, part: str) -> tuple[list[str], list[str], Mapping[tuple[str, str], Estimate]]:
    """Senders, receivers and the cells between them."""
    cells = {(cell.sender, cell.receiver): cell.estimate for cell in report.roles if cell.part == part}
    senders, receivers = (list(dict.fromkeys(sorted(key[side] for key in cells))) for side in (0, 1))
    return senders, receivers, cells


def _role_table(report: InterviewReport) -> str:
    if len({(cell.sender, cell.receiver) for cell in report.roles}) < 2:
        return ""
    parts = []
    for part in PARTS:
        senders, receivers, cells = _matrix(report, part)
        rows = [(sender, *(_show(cells.get((sender, receiver))) for receiver in receivers)) for sender in senders]
        parts.append(table((f"{report.measure} of {part}: sender \\ receiver", *receivers), rows))
    note = f"({report.mixed} episodes have several policies in one role and are in none of these)"
    return "\n\n".join([*parts, *([note] if report.mixed else [])])


def _plane_table(report: InterviewReport) -> str:
    rows = [(plane.policy, _show(plane.attack), _show(plane.defence)) for plane in report.planes]
    return table(("private information", "attack", "defence"), rows) if rows else ""


def _test_table(report: InterviewReport) -> str:
    if not report.tests:
        return ""
    tests = sorted(report.tests, key=lambda item: item.test.p)
    rows = [
        (
            item.test.template,
            item.policy,
            str(item.test.n),
            _percent(item.test.variance**0.5),
            f"{item.test.chi2:.2f}",
            *map(show_p, (item.test.p, item.test.bonferroni, item.test.q)),
            "more" if item.test.more else "less",
            "n/a" if item.test.ratio is None else f"{item.test.ratio:.2f}",
            *("n/a" if p is None else show_p(p) for p in (item.test.ratio_p, item.test.ratio_q)),
        )
        for item in tests[:_MOST_TESTS]
    ]
    paper = ("sensitivity to profiles", "policy", "n", "std", "chi2", "p", "Bonferroni", "q (BH)", "varies")
    header = (*paper, "F within", "p", "q (BH)")
    more = f"\n… and {len(tests) - len(rows)} more tests, in the CSV and JSON" if len(tests) > len(rows) else ""
    by_test = (("chi2", report.abnormal), ("F within", report.abnormal_within))
    abnormal = "; ".join(f"by {test}: {', '.join(templates) or 'none'}" for test, templates in by_test)
    return (
        f"{table(header, rows)}{more}\nabnormal (vary more, p < 0.05, for most policies) {disarm_line(abnormal)}\n"
        f"{_test_note(report)}"
    )


def _test_note(report: InterviewReport) -> str:
    """How far the χ² test can be trusted here."""
    cells = [cell for cell in report.completion if cell.measure == report.measure and cell.between is not None]
    shares = ", ".join(f"{disarm_line(cell.policy)} {_percent(cell.between)}" for cell in cells)
    return (
        f"(chi2 compares a template with all instances together, F with the other templates within themselves. The "
        f"more of the variance of all lies between templates, the less chi2 finds; here, percent: {shares})"
    )


def to_json(report: InterviewReport) -> str:
    """Returns everything in the report as JSON; what does not exist is ``null``."""
    return json.dumps(asdict(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


_ESTIMATE = ("n", "templates", "mean", "low", "high", "p")


def _numbers(e: Estimate | None) -> tuple[object, ...]:
    return (None,) * len(_ESTIMATE) if e is None else (e.n, e.clusters, e.mean, e.low, e.high, e.p)


def _prefixed(*prefixes: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{name}" for prefix in prefixes for name in _ESTIMATE)


def to_csv(report: InterviewReport) -> dict[str, str]:
    """Returns the CSV texts of the report by name; an empty field means that there is nothing."""
    tests = [(item.policy, item.measure, *asdict(item.test).values()) for item in report.tests]
    columns = tuple(field.name for field in fields(Variation))
    sheets: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "completion": (
            ("policy", "measure", *_ESTIMATE, *_prefixed("psi"), "between_templates"),
            [(c.policy, c.measure, *_numbers(c.estimate), *_numbers(c.psi), c.between) for c in report.completion],
        ),
        "groups": (
            ("grouping", "group", "policy", "measure", *_ESTIMATE),
            [(c.grouping, c.group, c.policy, c.measure, *_numbers(c.estimate)) for c in report.groups],
        ),
        "sensitivity": (("policy", "measure", *columns), tests),
        "roles": (
            ("part", "sender", "receiver", *_ESTIMATE),
            [(c.part, c.sender, c.receiver, *_numbers(c.estimate)) for c in report.roles],
        ),
        "plane": (
            ("policy", *_prefixed("attack", "defence")),
            [(c.policy, *_numbers(c.attack), *_numbers(c.defence)) for c in report.planes],
        ),
        "accuracy": (
            ("respondent", "kappa", *_ESTIMATE),
            [(c.respondent, c.kappa, *_numbers(c.accuracy)) for c in report.accuracies],
        ),
        "responses": (
            ("view", "policy", "asked", "answered"),
            [(c.view, c.policy, c.asked, c.answered) for c in report.responses],
        ),
    }
    return {name: csv_text(header, rows) for name, (header, rows) in sheets.items()}


def write_report(report: InterviewReport, folder: str | Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Writes text, JSON, CSV and charts into ``folder``, each file at once, and returns their paths.

    Args:
        report: what is written.
        folder: made where it does not exist.
        formats: of the charts, of :data:`~sotopia_env.reports.charts.FORMATS`.

    Raises:
        UnknownNameError: there is no such format.
        InvalidValueError: nothing can be written there.
    """
    check_formats(formats)
    folder = Path(folder)
    texts = {"interviews.txt": to_text(report), "interviews.json": to_json(report)}
    paths = write_texts(folder, texts | {f"{name}.csv": text for name, text in to_csv(report).items()})
    charts = {"completion": _completion_chart(report), "goal_types": _group_chart(report, "goal type")}
    charts |= {"roles": _role_chart(report)} if report.roles else {}
    charts |= {"plane": _plane_chart(report)} if report.planes else {}
    drawn = {name: figure for name, figure in charts.items() if figure is not None}
    return paths + [path for name, figure in drawn.items() for path in save_figure(figure, folder / name, formats)]


def _completion_chart(report: InterviewReport) -> Figure | None:
    """Goals by view and accuracy on private information: a panel for each measure."""
    cells: dict[str, list[tuple[str, Estimate]]] = {}
    for cell in report.completion:
        cells.setdefault(cell.measure, []).append((cell.policy, cell.estimate))
    panels = [Panel(_UNIT, lines, measure.replace("_", " ")) for measure, lines in cells.items()]
    return forest_chart(panels, "Goals completed by view, and accuracy on private information") if panels else None


def _group_chart(report: InterviewReport, grouping: str) -> Figure | None:
    """Completion by type of goal, as in figure 6: a panel for each policy."""
    cells: dict[str, list[tuple[str, Estimate]]] = {}
    for cell in _main(report, grouping):
        cells.setdefault(cell.policy, []).append((cell.group, cell.estimate))
    panels = [Panel(_UNIT, lines, policy) for policy, lines in cells.items()]
    return forest_chart(panels, f"Goals completed ({report.measure}) by {grouping}") if panels else None


def _role_chart(report: InterviewReport) -> Figure:
    """Sender × receiver, of all (figure 5a), of the senders (figure 7) and of the receivers (figure 8)."""
    senders, receivers, _ = _matrix(report, "all")
    figure = new_figure(7.0, 1.6 + 0.4 * len(senders))
    gap = float("nan")  # matplotlib leaves such cells white
    for number, part in enumerate(PARTS, start=1):
        _, _, cells = _matrix(report, part)
        means = [[cells[s, r].mean if (s, r) in cells else gap for r in receivers] for s in senders]
        axes = figure.add_subplot(1, len(PARTS), number)
        image = axes.imshow(means, aspect="auto", vmin=0, vmax=1)
        for (row, sender), (column, receiver) in ((s, r) for s in enumerate(senders) for r in enumerate(receivers)):
            cell = cells.get((sender, receiver))
            text = "n/a" if cell is None else f"{cell.mean:.2f}"
            box = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 1.0}
            axes.text(column, row, text, ha="center", va="center", size=7, bbox=box)
        axes.set_xticks(range(len(receivers)), receivers, rotation=30, ha="right", fontsize=7)
        axes.set_yticks(range(len(senders)), senders if number == 1 else [""] * len(senders), fontsize=7)
        axes.set_xlabel("receivers", fontsize=8)
        axes.set_title(f"{report.measure} of {part}", fontsize=8)
    figure.axes[0].set_ylabel("senders", fontsize=8)
    bar = figure.colorbar(image, ax=figure.axes)
    bar.set_label(_UNIT, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def _plane_chart(report: InterviewReport) -> Figure:
    """Attack and defence with their intervals, as in figure 5b."""
    figure = new_figure(3.4, 3.4)
    axes = figure.add_subplot()
    for plane in report.planes:
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
    axes.tick_params(labelsize=7)
    axes.set_xlabel("attack: share of right inferences", fontsize=8)
    axes.set_ylabel("defence: 1 - share of others' right ones", fontsize=8)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize=7, loc="outside upper center", ncols=2)
    return figure
