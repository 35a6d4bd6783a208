"""Comparisons of runs and of lists of episodes, as JSON, CSV and SVG of the same report."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.reports.charts import figure_bytes
from sotopia_env.reports.compare import CompareSpec
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.sheet import Report
from sotopia_studio.api.bodies import Body, StrictRoute, json_answer
from sotopia_studio.auth import Reader
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.store import episode_lists, episodes, runs
from sotopia_studio.store.episode_lists import EpisodeFilter

router = APIRouter(tags=["reports"], route_class=StrictRoute)
_MOST = 100_000
"""The maximum number of episodes outside of run directories that a comparison reads."""


class Comparing(Body):
    """A comparison of runs by their ids, or of all ended episodes with a tag; other fields as in `sotopia compare`."""

    run: list[str] = Field(default=[], max_length=100)
    tag: str | None = None
    evaluator: list[str] = Field(default=[], max_length=20)
    metric: list[str] = Field(default=[], max_length=50)
    by: str | None = None
    baseline: str | None = None
    policy: list[str] = Field(default=[], max_length=100)
    partner: list[str] = Field(default=[], max_length=100)


class ComparingSheet(Comparing):
    """A sheet of a comparison; for an unknown name, the error lists the valid names."""

    sheet: str = Field(default="ranking", max_length=80)


class ComparingChart(Comparing):
    """A chart of a comparison, the first one by default; for an unknown name, the error lists the valid names."""

    chart: str = Field(default="", max_length=80)


ComparingDep = Annotated[Comparing, Query()]


async def compared(parts: Services, query: Comparing) -> Report:
    """Returns the report of a comparison, computed once until its episodes change.

    Raises:
        MissingError: a run does not exist.
        InvalidValueError: nothing to compare, or no evaluator that all episodes share.
        UnknownNameError: an evaluator, a metric, a factor or a policy is not known.
    """
    async with parts.database.read() as connection:
        directories = [(await runs.one(connection, run)).directory for run in query.run]
        lines = await _tagged(connection, query.tag)
    if not directories and query.tag is None:
        raise InvalidValueError(field="run", expected="ids of runs, or a tag of episodes")
    state = await asyncio.to_thread(_state, directories, lines)
    fields = query.model_dump_json(include=set(Comparing.model_fields))
    # Intervals are bootstrapped, which takes seconds for large runs; the event loop must not wait.
    return await parts.reports((fields, state), partial(asyncio.to_thread, _report, query, directories, lines))


async def _tagged(connection: AsyncConnection, tag: str | None) -> list[str]:
    """The records of all ended episodes with the tag."""
    if tag is None:
        return []
    rows = await episode_lists.page(connection, EpisodeFilter(tag=tag, status="done"), limit=_MOST)
    lines = await episodes.lines_of(connection, [row.id for row in rows])
    if not lines:
        raise InvalidValueError("no ended episode has this tag", field="tag", got=tag)
    return lines


def _state(directories: Iterable[str], lines: Iterable[str]) -> str:
    """A hash that changes with what is compared: the records, and sizes and times of the files of runs."""
    state = hashlib.sha256()
    for path in sorted(path for directory in directories for path in Path(directory).rglob("*")):
        with suppress(FileNotFoundError):  # a temporary one of a run that is being played
            status = path.stat()
            state.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    for line in lines:
        state.update(f"{line}\n".encode())
    return state.hexdigest()


def _report(query: Comparing, directories: Sequence[str], lines: Sequence[str]) -> Report:
    with tempfile.TemporaryDirectory(prefix="sotopia-compare-") as folder:
        tagged = Path(folder, "episodes.jsonl")
        tagged.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        spec = CompareSpec(
            runs=(*directories, *([str(tagged)] if lines else [])),
            evaluators=tuple(query.evaluator),
            metrics=tuple(query.metric),
            by=query.by or None,  # a form sends an empty text for what is left out
            baseline=query.baseline or None,
            policies=tuple(query.policy),
            partners=tuple(query.partner),
        )
        report = comparison_report(*spec.compare())
    return replace(report, charts=cache(report.charts))


@router.get("/compare")
async def compare(parts: ServicesDep, _: Reader, query: ComparingDep) -> Response:
    """Compares policies: ranks, intervals, paired differences, by evaluator; as JSON."""
    return json_answer((await compared(parts, query)).json())


@router.get("/compare.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
async def compare_csv(parts: ServicesDep, _: Reader, query: Annotated[ComparingSheet, Query()]) -> Response:
    """Returns one sheet of a comparison as CSV; for an unknown name, the error lists the valid names."""
    report = await compared(parts, query)
    sheets = {item.name: item for item in report.sheets}
    if query.sheet not in sheets:
        raise UnknownNameError(field="sheet", got=query.sheet, valid=list(sheets))
    return Response(sheets[query.sheet].csv(), media_type="text/csv; charset=utf-8")


@router.get(
    "/compare.{form}",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {}, "image/png": {}}}},
)
async def compare_chart(
    parts: ServicesDep, _: Reader, query: Annotated[ComparingChart, Query()], form: Literal["svg", "png"]
) -> Response:
    """Returns a chart of a comparison, the first one by default; the error lists the valid names."""
    return await chart_of(await compared(parts, query), query.chart, form)


async def chart_sizes(report: Report | None) -> dict[str, tuple[int, int]]:
    """Returns the charts of a report by name: width and height in CSS pixels, for which a page leaves room."""
    charts = {} if report is None else await asyncio.to_thread(report.charts)
    inches = {name: figure.get_size_inches() for name, figure in charts.items()}
    return {name: (round(96 * width), round(96 * height)) for name, (width, height) in inches.items()}


async def chart_of(report: Report, name: str, form: Literal["svg", "png"]) -> Response:
    """Returns a chart of a report, the first one without a name.

    Raises:
        UnknownNameError: the report has no such chart.
    """
    charts = await asyncio.to_thread(report.charts)
    name = name or next(iter(charts), "")
    if name not in charts:
        raise UnknownNameError(field="chart", got=name, valid=list(charts))
    content = await asyncio.to_thread(figure_bytes, charts[name], form)
    return Response(content, media_type={"svg": "image/svg+xml", "png": "image/png"}[form])
