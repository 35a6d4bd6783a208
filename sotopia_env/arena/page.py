"""A card as a report, also as one HTML file: ratings with groups, matrix, process, failures, cost and hashes."""

from __future__ import annotations

import html
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.arena.card import CARD_FILE, Card
from sotopia_env.arena.tables import PoolTables, clustered, play_tables
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.quoting import escape_line
from sotopia_env.reports.charts import Panel, figure_bytes, forest_chart, heat_chart
from sotopia_env.reports.sheet import Report, Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def card_report(card: Card, *, power: bool = False) -> Report:
    """Returns the report of a card.

    Args:
        card: the card.
        power: whether to add the number of tasks that differences need.

    Raises:
        InvalidValueError: nothing can be rated, or a policy has fewer than half of its episodes.
    """
    is_rated = bool(card.of_play("pool"))
    if not is_rated and not card.of_play("human"):
        raise InvalidValueError(
            "no policy has met every opponent of the pool", field="results", hint="`sotopia arena run` plays them"
        )
    tables = PoolTables(card) if is_rated else None
    sheets = [*([] if tables is None else tables.sheets(power)), *play_tables(card)]
    return Report(
        name="card",
        parts=[_heading(card, tables), *sheets, _provenance(card)],
        sheets=sheets,
        charts=dict if tables is None else partial(_charts, tables),
        title=f"Arena {card.suite.name}, version {card.suite.version}",
    )


def write_card(card: Card, folder: Path, *, power: bool = False) -> list[Path]:
    """Writes the card as Markdown, JSON, one HTML file, CSV and SVG charts; returns the paths.

    Raises:
        InvalidValueError: nothing can be rated, or the folder cannot be written to.
    """
    report = card_report(card, power=power)
    paths = report.write(folder, ("svg",), markdown=True)
    page, data = folder / "card.html", folder / CARD_FILE
    write_text_atomically(page, html_page(report))
    write_text_atomically(data, card.model_dump_json() + "\n")
    return [*paths, page, data]


def html_page(report: Report) -> str:
    """Returns a report as one HTML file that needs no other."""
    charts = {name: figure_bytes(figure, "svg").decode() for name, figure in report.charts().items()}
    # Without the XML declaration and the document type, which are not allowed inside a page.
    drawings = [
        f'<div role="img" aria-label="{_escaped(name)}">{svg[svg.index("<svg") :]}</div>'
        for name, svg in charts.items()
    ]
    first, *rest = [_html(part) for part in report.parts]
    body = "\n".join([f"<h1>{_escaped(report.title)}</h1>", first, *drawings, *rest])
    style = (
        "body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}td,th{padding:.2rem .6rem;text-align:right;"
        "border-bottom:1px solid #ccc}td{white-space:nowrap}"
        "td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"
    )
    view = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head = f"{view}<title>{_escaped(report.title)}</title><style>{style}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _html(part: str | Sheet) -> str:
    if isinstance(part, str):
        return "".join(f"<p>{_escaped(line)}</p>" for line in part.splitlines() if line)
    header, lines, notes = part.visible()
    if not lines:
        return ""
    rows = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in line)}</tr>\n" for line in lines)
    names = "".join(f'<th scope="col">{_escaped(name)}</th>' for name in header)
    table = f"<table><thead><tr>{names}</tr></thead><tbody>\n{rows}</tbody></table>"
    return f"<h2>{_escaped(part.title)}</h2>{table}" + "".join(f"<p>{_escaped(note)}</p>" for note in notes)


def _escaped(text: str) -> str:
    return html.escape(escape_line(text))


def _heading(card: Card, tables: PoolTables | None) -> str:
    suite = card.suite
    about = f"{suite.about}\n" if suite.about else ""
    if tables is None:
        return f"{about}No policy was rated: none has met the pool of the suite. Payoff: {suite.metric}."
    rating, unrated = tables.rating, ", ".join(tables.label[policy] for policy in card.unrated)
    return (
        f"{about}Policies rated: {len(tables.order)}; {len(tables.pool)} reference opponents, {rating.tasks} tasks, "
        f"{len({row.key for row in tables.rows})} episodes. Payoff: {suite.metric}, of the policy's own seat.\n"
        "Ratings estimate the mean payoff over this pool and these kinds of task, not over other opponents. "
        f"Intervals are 95 %, over tasks (sandwich, Student's t with at most {rating.tasks - 1} degrees of freedom). "
        "Policies in one group cannot be told apart from its first; read no order within a group."
        + (f"\nNot rated, because they have not met the pool: {unrated}." if unrated else "")
    )


def _provenance(card: Card) -> str:
    suite = card.suite
    left_out = "".join(f"\nLeft out of {x.source}: {x.episodes} episodes, because {x.reason}." for x in card.left_out)
    return (
        f"Suite {suite.name} version {suite.version}, hash {suite.content_hash}, seed {suite.seed}, "
        f"{len(suite.hashes)} tasks of {suite.tasks!r} ({suite.level}), orders {suite.orders}, "
        f"evaluator {suite.evaluator}, behaviour of the pool {suite.behaviour}. "
        f"Played by sotopia-env {', '.join(card.code)}.{left_out}"
    )


def _charts(tables: PoolTables) -> dict[str, Figure]:
    """The strengths, and the matrix."""
    alone = len(tables.order) == 1
    values = tables.rating.means if alone else tables.rating.strengths
    lines = [(f"{tables.rating.groups.get(p, 'n/a')}: {tables.label[p]}", values[p]) for p in tables.order]
    suite = tables.card.suite
    heading = f"Arena {suite.name} {suite.version}: against the pool (group: policy)"
    unit = suite.metric if alone else f"{suite.metric} minus the mean of the rated policies"
    panel = Panel(unit, lines, reference=None if alone else 0.0)
    pairs = {
        (p, o): [row for row in tables.rows if (row.policy, row.opponent) == (p, o)]
        for p in tables.order
        for o in tables.pool
    }
    cells = {
        (tables.label[p], tables.label[o]): mean
        for (p, o), rows in pairs.items()
        if (mean := clustered(rows)) is not None
    }
    names = [tables.label[p] for p in tables.order], [tables.label[o] for o in tables.pool]
    heat = heat_chart({"": cells}, *names, axes_labels=("policy", "opponent"), unit=f"mean {suite.metric}")
    return {"ratings": forest_chart([panel], heading), "matrix": heat}
