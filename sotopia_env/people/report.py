"""The agreement of judges and people as text, JSON, CSV and a chart; matplotlib is imported on first use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.files import csv_text, write_texts
from sotopia_env.people.against_judges import HumanAgreement, JudgeOnDimension, JudgeOverall
from sotopia_env.people.between_annotators import Statistic
from sotopia_env.quoting import disarm
from sotopia_env.reports.charts import check_formats, new_figure, save_figure
from sotopia_env.reports.tables import reason_lines, show_number, show_p, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS_IN_A_ROW = 4
_BINS_ON_SCREEN = (2, 3, 4, 5, 11)
_STATISTICS = ("pearson", "spearman", "mean_difference", "sd_difference", "sd_human", "within_sd")
_SHARES = ("inside", "above", "below")


def to_text(result: HumanAgreement) -> str:
    """Returns the tables that ``sotopia judge-agreement`` prints; the reasons for ``n/a`` are below the tables."""
    judges = [_judge(result, overall) for overall in result.overall] or ["(the annotated episodes are not evaluated)"]
    parts = [_summary(result), *judges, _annotators(result), _between_judges(result)]
    return disarm("\n\n".join(part for part in parts if part)) + "\n"


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
    return "\n".join(lines)


def _judge(result: HumanAgreement, overall: JudgeOverall) -> str:
    own = [row for row in result.by_dimension if row.judge == overall.judge]
    lines = [f"{overall.judge} and people; {overall.unscored} annotated seats unscored"]
    lines += reason_lines(overall.reasons)
    shares = (overall.within_sd, *(getattr(overall, name) for name in _SHARES))
    rows = [_judge_row(row) for row in own]
    reasons = [(row.dimension, getattr(row, name).reason) for row in own for name in (*_STATISTICS, "inside")]
    rows.append(("all", str(overall.n), "", "", "", *map(_percent, shares)))
    header = ("dimension", "n", "Pearson r (p)", "Spearman rho (p)", "judge - human (sd)", "within 1 sd")
    lines.append(table((*header, "in range", "above", "below"), rows))
    return "\n".join([*lines, *_notes(reasons)])


def _judge_row(row: JudgeOnDimension) -> tuple[str, ...]:
    shares = (row.within_sd, row.inside, row.above, row.below)
    difference = f"{show_number(row.mean_difference.value)} ({show_number(row.sd_difference.value)})"
    return (
        row.dimension,
        str(row.n),
        _correlation(row.pearson),
        _correlation(row.spearman),
        "n/a" if row.mean_difference.value is None else difference,
        *map(_percent, shares),
    )


def _correlation(statistic: Statistic) -> str:
    if statistic.value is None or statistic.p is None:
        return "n/a"
    return f"{show_number(statistic.value)} ({show_p(statistic.p)})"


def _percent(statistic: Statistic) -> str:
    return "n/a" if statistic.value is None else f"{100 * statistic.value:.0f} %"


def _notes(reasons: Iterable[tuple[str, str | None]]) -> list[str]:
    """One line per reason, with the dimensions that have no number for it."""
    where: dict[str, dict[str, None]] = {}
    for dimension, reason in reasons:
        if reason is not None:
            where.setdefault(reason, {})[dimension] = None
    return [f"  n/a in {', '.join(dimensions)}: {reason}" for reason, dimensions in where.items()]


def _annotators(result: HumanAgreement) -> str:
    columns = dict.fromkeys((result.bins, *_BINS_ON_SCREEN))
    header = ("annotators", "seats", "pairs", "same score", f"same of {result.bins} bins")
    rows = [
        (
            row.dimension,
            str(row.seats),
            str(row.pairs),
            _percent(row.same),
            _percent(row.at(result.bins).agreement),
            *(show_number(row.at(bins).kappa.value) for bins in columns),
        )
        for row in result.annotators
    ]
    text = table((*header, *(f"kappa {bins}" for bins in columns)), rows)
    reasons = [(row.dimension, row.at(bins).kappa.reason) for row in result.annotators for bins in columns]
    return "\n".join([text, *_notes(reasons)])


def _between_judges(result: HumanAgreement) -> str:
    if not result.between_judges:
        return ""
    rows = [
        (
            f"{row.first} - {row.second}",
            str(row.dimension),
            str(row.n),
            str(row.missing),
            show_number(row.pearson),
            show_number(row.spearman),
            show_number(row.mean_difference),
        )
        for row in result.between_judges
    ]
    header = ("judges, on annotated episodes", "dimension", "n", "missing", "Pearson r", "Spearman rho", "|difference|")
    return table(header, rows)


def to_json(result: HumanAgreement) -> str:
    """Returns everything as JSON; what does not exist is ``null`` with a ``reason`` beside it."""
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
    }
    for name in ("by_dimension", "overall", "annotators", "ranges", "differences", "between_judges"):
        content[name] = [asdict(row) for row in getattr(result, name)]
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(result: HumanAgreement) -> dict[str, str]:
    """Returns CSV texts by name: judges, annotators, ranges, differences, between_judges, removed.

    An empty field means n/a; ``reason`` explains it, for the judges.
    """
    correlations = ("pearson", "pearson_p", "spearman", "spearman_p")
    judges = (
        ("judge", "dimension", "n", "unscored", *correlations, *_STATISTICS[2:], "n_range", *_SHARES, "reason"),
        [_judge_cells(row) for row in result.by_dimension],
    )
    annotators = (
        ("dimension", "seats", "pairs", "same", "bins", "agreement", "kappa"),
        [
            (r.dimension, r.seats, r.pairs, r.same.value, b.bins, b.agreement.value, b.kappa.value)
            for r in result.annotators
            for b in r.by_bins
        ],
    )
    removals = (
        ("annotation_id", "annotator", "episode", "agent", "reason", "detail"),
        [
            (r.annotation.request.annotation_id, r.annotation.annotator, *r.annotation.seat, r.reason.value, r.detail)
            for r in result.screening.removals
        ],
    )
    return {
        "judges": csv_text(*judges),
        "annotators": csv_text(*annotators),
        "ranges": _records(result.ranges, ("judge", "dimension", "n", "low", "high", "judge_mean")),
        "differences": _records(result.differences, ("judge", "dimension", "low", "high", "n")),
        "between_judges": _records(
            result.between_judges,
            ("first", "second", "dimension", "n", "missing", "pearson", "spearman", "mean_difference"),
        ),
        "removed": csv_text(*removals),
    }


def _judge_cells(row: JudgeOnDimension) -> Sequence[object]:
    correlations = (row.pearson.value, row.pearson.p, row.spearman.value, row.spearman.p)
    others = [getattr(row, name).value for name in _STATISTICS[2:]]
    shares = [getattr(row, name).value for name in _SHARES]
    reasons = dict.fromkeys(getattr(row, name).reason for name in (*_STATISTICS, *_SHARES))
    reason = "; ".join(filter(None, reasons))
    return (row.judge, row.dimension, row.n, row.unscored, *correlations, *others, row.n_range, *shares, reason)


def _records(rows: Iterable[object], fields: Sequence[str]) -> str:
    return csv_text(fields, [[getattr(row, field) for field in fields] for row in rows])


def difference_chart(result: HumanAgreement) -> Figure:
    """Draws the distribution of judge - human, a panel per dimension (SOTOPIA, figure 2).

    Grey is one standard deviation of the human scores to either side of 0. Right of 0 the judge is more lenient.
    """
    columns = min(_PANELS_IN_A_ROW, len(result.dimensions))
    lines = math.ceil(len(result.dimensions) / columns)
    figure = new_figure(3.2 * columns, 2.6 * lines + 0.6)
    for number, dimension in enumerate(result.dimensions, start=1):
        axes = figure.add_subplot(lines, columns, number)
        _panel(result, dimension, axes)
    handles = {label: h for axes in figure.axes for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(3, len(handles)))
    figure.suptitle("judge's score less mean human score: share of seats")
    return figure


def _panel(result: HumanAgreement, dimension: str, axes: Axes) -> None:
    bins = [b for b in result.differences if b.dimension == dimension]
    axes.set_title(dimension, fontsize="small")
    if not bins:
        axes.text(0.5, 0.5, "n/a: no seat\nscored by both", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    spread = max((r.sd_human.value or 0.0) for r in result.by_dimension if r.dimension == dimension)
    axes.axvspan(-spread, spread, color="0.9")
    for index, judge in enumerate(result.judges):
        own = [b for b in bins if b.judge == judge]
        total = sum(b.n for b in own)
        centres, shares = [(b.low + b.high) / 2 for b in own], [b.n / total for b in own]
        axes.bar(centres, shares, width=0.5, alpha=0.6, color=f"C{index % 10}", label=_label(judge))
    axes.axvline(0, color="black", linewidth=0.6)
    reach = max(max(abs(b.low), abs(b.high)) for b in bins)
    axes.set_xlim(-max(reach, spread) - 0.5, max(reach, spread) + 0.5)


def _label(judge: str) -> str:
    """A name for the chart's legend: matplotlib hides labels that begin with "_" and reads "$" as mathematics."""
    return f" {disarm(judge)}".replace("$", r"\$")


def write_report(result: HumanAgreement, folder: str | Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Writes text, JSON, CSV and the chart into ``folder``, each file at once, and returns their paths.

    Args:
        result: what is written.
        folder: made where it does not exist.
        formats: of the chart, of :data:`~sotopia_env.reports.charts.FORMATS`.

    Raises:
        UnknownNameError: there is no such format.
    """
    check_formats(formats)
    folder = Path(folder)
    texts = {"human_agreement.txt": to_text(result), "human_agreement.json": to_json(result)}
    texts |= {f"{name}.csv": text for name, text in to_csv(result).items()}
    return [*write_texts(folder, texts), *save_figure(difference_chart(result), folder / "differences", formats)]
