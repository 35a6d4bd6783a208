"""The report on the agreement of judges with human annotators; matplotlib is imported on first use."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.quoting import escape, escape_line
from sotopia_env.people.against_judges import HumanAgreement, JudgeOnDimension, JudgeOverall
from sotopia_env.people.between_annotators import MEAN, Statistic
from sotopia_env.people.between_judges import JudgeAgreement
from sotopia_env.reports.charts import PAGE_WIDTH, new_figure, paper_style
from sotopia_env.reports.comparison_tables import reason_lines
from sotopia_env.reports.intervals import adjusted, show_number
from sotopia_env.reports.sheet import Format, Missing, Report, Sheet, Value, show_p, show_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS_IN_A_ROW = 4
_BINS_ON_SCREEN = (2, 3, 4, 5, 11)
_SHARES = ("within_sd", "inside", "above", "below")
_DIFFERENCES = ("mean_difference", "sd_difference", "sd_human")
_WITH_ENDS = ("mean_difference", *_SHARES)
_Q = "q: Benjamini-Hochberg over all judges and dimensions, for r and for rho separately."
_LABELS = {
    "pearson": "r",
    "pearson_q": "q",
    "spearman": "rho",
    "spearman_q": "q",
    "mean_difference": "judge - human",
    "sd_difference": "sd",
    "within_sd": "within 1 sd %",
    "inside": "in range %",
    "above": "above %",
    "below": "below %",
}


def agreement_report(result: HumanAgreement) -> Report:
    """Returns the report of ``sotopia judge-agreement``; missing statistics have a reason."""
    judges = _judges(result)
    parts: list[str | Sheet] = [_summary(result)]
    for overall in result.overall:
        sheet = judges.where(judge=overall.judge)
        head = f"{result.labels[overall.judge]} and people; {overall.unscored} annotated seats unscored"
        title = "\n".join(map(escape_line, [head, *reason_lines(overall.reasons)]))
        parts.append(replace(sheet, title=title, rows=[*sheet.rows, _all(overall)]))
        parts += [_correlations_on_screen(result, overall.judge), _shares_on_screen(result, overall.judge)]
    parts += [] if result.overall else ["(the annotated episodes are not evaluated)"]
    return Report(
        name="human_agreement",
        parts=[
            *parts,
            _reliability_on_screen(result),
            _annotators_on_screen(result),
            *_between_judges_on_screen(result),
        ],
        sheets=[judges, *_details(result), _between_judges(result)],
        content=_content(result),
        charts=lambda: _charts(result),
    )


def _summary(result: HumanAgreement) -> str:
    answers, screening = result.annotations, result.screening
    names = {annotation.annotator for annotation in answers.annotations}
    lines = [
        f"{len({r.episode for r in answers.key.requests})} episodes, {len(answers.key.requests)} rows handed out, "
        f"{len(answers.annotations)} filled in by {len(names)} annotators, {answers.blank} left empty, "
        f"{len(screening.accepted)} used"
    ]
    lines += [f"  removed: {count} × {reason.value}" for reason, count in screening.counts.items()]
    if answers.missing:
        counts = ", ".join(f"{name} {count}" for name, count in answers.missing.items())
        lines.append(f"  filled in without a score: {counts}")
    if screening.to_repeat:
        lines.append(f"  {len(screening.to_repeat)} episodes have fewer annotations left than planned")
    return escape("\n".join(lines))


def _cell(statistic: Statistic) -> Value:
    return Missing(statistic.reason or "") if statistic.value is None else statistic.value


def _shown(statistic: Statistic, show: Format = show_number) -> Value:
    """The cell of a statistic with its interval."""
    if statistic.value is None:
        return Missing(statistic.reason or "")
    interval = ", ".join(show(end) for end in (statistic.low, statistic.high) if end is not None) or "n/a"
    return f"{show(statistic.value)} [{interval}]"


_AFTER_AND_BEFORE = (
    "Brackets: 95 % intervals over scenarios, for these annotators; they do not extend to others.",
    "The quality rules remove disagreement,",
    "so that agreement after them is higher than before them even for random scores.",
)


def _correlations_on_screen(result: HumanAgreement, judge: str) -> Sheet:
    """The correlations of one judge with people, after and before the quality rules."""
    correlations = [row for row in result.by_dimension if row.judge == judge]
    rows: list[tuple[Value, ...]] = [
        (row.dimension, *map(_shown, (row.pearson, row.all_pearson, row.spearman, row.all_spearman)))
        for row in correlations
    ]
    notes = _no_intervals({row.dimension: (row.pearson, row.all_pearson) for row in correlations})
    columns = ("correlation", "r after rules", "r before", "rho after rules", "rho before")
    return Sheet("", columns, rows, notes=notes, footnotes=True)


def _shares_on_screen(result: HumanAgreement, judge: str) -> Sheet:
    """The mean difference and the shares of one judge, with intervals."""
    own = [row for row in result.by_dimension if row.judge == judge]
    names = _WITH_ENDS[:3]  # a screen has no room for more; the files have all
    measures = {row.dimension: [getattr(row, name) for name in names] for row in own}
    rows: list[tuple[Value, ...]] = [
        (dimension, _shown(first), *(_shown(share, show_percent) for share in shares))
        for dimension, (first, *shares) in measures.items()
    ]
    columns = ("mean over seats", *(_LABELS[name] for name in names))
    notes = (*_no_intervals(measures), "Shares within 1 sd: for the standard deviation of these human scores.", _Q)
    return Sheet("", columns, rows, notes=notes, footnotes=True)


def _no_intervals(statistics: Mapping[str, Sequence[Statistic]]) -> tuple[str, ...]:
    """Returns a line for each reason why an interval is missing, with the dimensions."""
    where: dict[str, dict[str, None]] = {}
    for dimension, items in statistics.items():
        for reason in (item.no_interval for item in items if item.no_interval):
            where.setdefault(reason, {})[dimension] = None
    return tuple(f"no interval in {', '.join(names)}: {reason}" for reason, names in where.items())


def _reliability_on_screen(result: HumanAgreement) -> Sheet:
    """Kappa and alpha of the annotators, after and before the quality rules."""
    missing: dict[str, Sequence[Statistic]] = {}
    rows: list[tuple[Value, ...]] = []
    for after, before in zip(result.annotators, result.all_annotators, strict=True):
        kappas, alphas = [row.at(result.bins).kappa for row in (after, before)], [after.alpha, before.alpha]
        # Means over dimensions have no interval.
        show = _cell if after.dimension == MEAN else _shown
        rows.append((after.dimension, before.seats, *map(show, [*alphas, *kappas])))
        missing[after.dimension] = [*alphas, *kappas]
    kappa = f"kappa {result.bins}"
    columns = ("annotators", "seats before", "alpha after rules", "alpha before")
    return Sheet(
        "",
        (*columns, f"{kappa} after rules", f"{kappa} before"),
        rows,
        notes=(*_no_intervals(missing), *_AFTER_AND_BEFORE),
        footnotes=True,
    )


def _judges(result: HumanAgreement) -> Sheet:
    correlations = ("pearson", "pearson_q", "spearman", "spearman_q")
    hidden = tuple(f"{name}{part}" for name in ("pearson", "spearman") for part in ("_p", "_low", "_high"))
    hidden += ("all_pearson", "all_spearman")
    ends = tuple(f"{name}{part}" for name in _WITH_ENDS for part in ("_low", "_high"))
    q_values = zip(*(adjusted([item.p for item in column]) for column in _tested(result)), strict=True)
    return Sheet(
        "judges",
        (
            "judge",
            "dimension",
            "n",
            "unscored",
            *correlations,
            *hidden,
            *_DIFFERENCES,
            "n_range",
            *_SHARES,
            *ends,
            "reason",
        ),
        [_judge_row(row, q) for row, q in zip(result.by_dimension, q_values, strict=True)],
        labels=_LABELS,
        formats=dict.fromkeys(_SHARES, show_percent) | dict.fromkeys(("pearson_q", "spearman_q"), show_p),
        hidden=("unscored", *hidden, "sd_human", "n_range", *ends, "reason"),
        footnotes=True,
    )


def _tested(result: HumanAgreement) -> tuple[list[Statistic], list[Statistic]]:
    return [row.pearson for row in result.by_dimension], [row.spearman for row in result.by_dimension]


def _judge_row(row: JudgeOnDimension, q_values: Sequence[float | None]) -> tuple[Value, ...]:
    differences, shares = ([getattr(row, name) for name in names] for names in (_DIFFERENCES, _SHARES))
    tested = (row.pearson, row.spearman)
    correlations = [part for item, q in zip(tested, q_values, strict=True) for part in (_cell(item), q)]
    correlations += [end for item in tested for end in (item.p, item.low, item.high)]
    correlations += [_cell(row.all_pearson), _cell(row.all_spearman)]
    reasons = dict.fromkeys(item.reason for item in (row.pearson, row.spearman, *differences, *shares) if item.reason)
    counts = (row.judge, row.dimension, row.n, row.unscored)
    return (
        *counts,
        *correlations,
        *map(_cell, differences),
        row.n_range,
        *map(_cell, shares),
        *_ends(row),
        "; ".join(reasons),
    )


def _ends(row: JudgeOnDimension) -> list[Value]:
    return [end for name in _WITH_ENDS for end in (getattr(row, name).low, getattr(row, name).high)]


def _all(overall: JudgeOverall) -> tuple[Value, ...]:
    """The last row of a judge's sheet, which has neither correlations nor differences."""
    shares = [_cell(getattr(overall, name)) for name in _SHARES]
    gap = [""] * (12 + len(_DIFFERENCES))
    return ("all", overall.n, overall.unscored, *gap, overall.n_range, *shares, *[""] * (2 * len(_WITH_ENDS) + 1))


def _annotators_on_screen(result: HumanAgreement) -> Sheet:
    """The sheet of the annotators' agreement, with kappa for several numbers of bins."""
    bins, same = dict.fromkeys((result.bins, *_BINS_ON_SCREEN)), f"same of {result.bins} bins %"
    rows: list[tuple[Value, ...]] = []
    for row in result.annotators:
        statistics = [row.same, row.at(result.bins).agreement, *(row.at(count).kappa for count in bins)]
        rows.append((row.dimension, row.seats, row.pairs, *map(_cell, statistics)))
    columns = ("annotators", "seats", "pairs", "same score %", same, *(f"kappa {count}" for count in bins))
    return Sheet("", columns, rows, formats=dict.fromkeys(("same score %", same), show_percent), footnotes=True)


_MUTUAL = ("pearson", "spearman", "mean_difference")


def _between_judges(result: HumanAgreement) -> Sheet:
    columns = ("first", "second", "dimension", "n", "missing")
    measures = tuple(f"{name}{part}" for name in _MUTUAL for part in ("", "_low", "_high"))
    rows = [
        (row.first, row.second, str(row.dimension), row.n, row.missing, *_flat(_mutual(row)))
        for row in result.between_judges
    ]
    return Sheet("between_judges", (*columns, *measures), rows)


def _between_judges_on_screen(result: HumanAgreement) -> list[Sheet]:
    """A sheet for each two judges."""
    sheets = []
    for first, second in dict.fromkeys((row.first, row.second) for row in result.between_judges):
        own = [row for row in result.between_judges if (row.first, row.second) == (first, second)]
        rows: list[tuple[Value, ...]] = [
            (str(row.dimension), row.n, row.missing, *map(_shown, _mutual(row))) for row in own
        ]
        title = escape_line(f"judges {result.labels[first]} and {result.labels[second]}, on annotated episodes")
        columns = ("dimension", "n", "missing", "r", "rho", "|difference|")
        notes = _no_intervals({str(row.dimension): _mutual(row) for row in own})
        sheets.append(Sheet("", columns, rows, title=title, notes=notes, footnotes=True))
    return sheets


def _mutual(row: JudgeAgreement) -> list[Statistic]:
    return [row.pearson, row.spearman, row.mean_difference]


def _flat(statistics: Sequence[Statistic]) -> list[Value]:
    return [part for item in statistics for part in _with_ends(item)]


def _details(result: HumanAgreement) -> list[Sheet]:
    groups = (("used", result.annotators), ("all", result.all_annotators))
    annotators = [
        (name, r.dimension, r.seats, r.pairs, _cell(r.same), b.bins, _cell(b.agreement), *_with_ends(b.kappa))
        for name, rows in groups
        for r in rows
        for b in r.by_bins
    ]
    alphas = [(name, r.dimension, r.seats, r.pairs, *_with_ends(r.alpha)) for name, rows in groups for r in rows]
    start = ("annotations", "dimension", "seats", "pairs")
    removed = [
        (r.annotation.request.annotation_id, r.annotation.annotator, *r.annotation.seat, r.reason.value, r.detail)
        for r in result.screening.removals
    ]
    return [
        Sheet("annotators", (*start, "same", "bins", "agreement", "kappa", "kappa_low", "kappa_high"), annotators),
        Sheet("alpha", (*start, "alpha", "alpha_low", "alpha_high"), alphas),
        Sheet.of("ranges", result.ranges, ("judge", "dimension", "n", "low", "high", "judge_mean")),
        Sheet.of("differences", result.differences, ("judge", "dimension", "low", "high", "n")),
        Sheet("removed", ("annotation_id", "annotator", "episode", "agent", "reason", "detail"), removed),
    ]


def _with_ends(statistic: Statistic) -> tuple[Value, Value, Value]:
    return _cell(statistic), statistic.low, statistic.high


def _content(result: HumanAgreement) -> dict[str, Any]:
    answers, screening = result.annotations, result.screening
    content: dict[str, Any] = {
        "annotations": {
            "handed_out": len(answers.key.requests),
            "filled_in": len(answers.annotations),
            "left_empty": answers.blank,
            "used": len(screening.accepted),
            "without_score": dict(answers.missing),
            "removed": {reason.name.lower(): count for reason, count in screening.counts.items()},
            "to_repeat": screening.to_repeat,
        },
        "bins": result.bins,
        "dimensions": result.dimensions,
        "judges": result.judges,
        "labels": dict(result.labels),
    }
    for name in ("by_dimension", "overall", "annotators", "all_annotators", "ranges", "differences", "between_judges"):
        content[name] = [asdict(row) for row in getattr(result, name)]
    return content


def _charts(result: HumanAgreement) -> dict[str, Figure]:
    charts = {"annotators": _reliability_chart(result)}
    return charts | ({"differences": _difference_chart(result)} if result.judges else {})


def _reliability_chart(result: HumanAgreement) -> Figure:
    """Krippendorff's alpha of the annotators on every dimension, with its 95 % interval, after and before the rules."""
    rows = [row for row in result.annotators if row.dimension != MEAN]
    rows = [row for row in rows if row.seats] or rows  # those that were annotated, if any was
    before = {row.dimension: row for row in result.all_annotators}
    with paper_style():
        figure = new_figure(PAGE_WIDTH, 0.32 * len(rows) + 1.1)
        axes = figure.add_subplot()
        for shift, colour, label, group in (
            (-0.13, "C0", "after the quality rules", rows),
            (0.13, "0.6", "before", [before[row.dimension] for row in rows]),
        ):
            for position, alpha in enumerate(row.alpha for row in group):
                if alpha.value is not None:
                    axes.plot([alpha.value], [position + shift], "o", color=colour, label=label, markersize=4)
                if alpha.low is not None and alpha.high is not None:
                    axes.plot([alpha.low, alpha.high], [position + shift] * 2, color=colour, linewidth=1.2)
        missing = {row.dimension for row in rows if row.alpha.value is None}
        labels = [row.dimension.replace("_", " ") + " (n/a)" * (row.dimension in missing) for row in rows]
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.axvline(0, color="black", linewidth=0.6)
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -0.05), max(high, 1.0))
        axes.set_xlabel("Krippendorff's alpha (1: the same scores, 0: as by chance)")
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        if handles:
            figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return figure


def _difference_chart(result: HumanAgreement) -> Figure:
    """The distribution of the differences judge - human, with a panel per dimension (SOTOPIA, figure 2).

    The grey area is one standard deviation of the human scores on either side of 0. To the right of 0, the judge is
    more lenient.
    """
    scored = {row.dimension for row in result.differences}  # those that both scored, if any was
    dimensions = [name for name in result.dimensions if name in scored] or result.dimensions
    columns = min(_PANELS_IN_A_ROW, len(dimensions))
    lines = math.ceil(len(dimensions) / columns)
    with paper_style():
        figure = new_figure(PAGE_WIDTH, 1.7 * lines + 0.7)
        for number, dimension in enumerate(dimensions):
            axes = figure.add_subplot(lines, columns, number + 1)
            _panel(result, dimension, axes)
            axes.set_ylabel("" if number % columns else "share of seats")
        handles = {label: h for axes in figure.axes for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        if handles:
            figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(3, len(handles)))
        figure.suptitle("Judge's score less the mean human score, in points", x=0.01, ha="left", fontsize="medium")
    return figure


def _panel(result: HumanAgreement, dimension: str, axes: Axes) -> None:
    bins = [b for b in result.differences if b.dimension == dimension]
    title = textwrap.fill(dimension.replace("_", " "), 22)
    if not bins:
        axes.set_title(title)
        axes.text(0.5, 0.5, "n/a: no seat\nscored by both", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    own = [row for row in result.by_dimension if row.dimension == dimension]
    # Judges score different numbers of seats, so the human deviation differs between them: the widest one is drawn.
    spread, counts = max(row.sd_human.value or 0.0 for row in own), sorted({row.n for row in own})
    axes.set_title(f"{title}\n(n = {' or '.join(map(str, counts))})")
    axes.axvspan(-spread, spread, color="0.9")
    for index, judge in enumerate(result.judges):
        own_bins = [b for b in bins if b.judge == judge]
        total = sum(b.n for b in own_bins)
        centres, shares = [(b.low + b.high) / 2 for b in own_bins], [b.n / total for b in own_bins]
        axes.bar(centres, shares, width=0.5, alpha=0.6, color=f"C{index % 10}", label=_label(judge))
    axes.axvline(0, color="black", linewidth=0.6)
    reach = max(max(abs(b.low), abs(b.high)) for b in bins)
    axes.set_xlim(-max(reach, spread) - 0.5, max(reach, spread) + 0.5)


def _label(judge: str) -> str:
    """A judge's name for the legend."""
    # matplotlib hides labels that begin with "_" (hence the space) and parses "$" as mathematics.
    return f" {escape(judge)}".replace("$", r"\$")
