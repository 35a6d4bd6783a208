"""The researcher's pages on a study that is going on: the live board, and the agreement of annotators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.reports.sheet import Report
from sotopia_studio.answers import status_of
from sotopia_studio.api import studies as api
from sotopia_studio.api.reports import chart_of, chart_sizes
from sotopia_studio.auth import Reader
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.rendering import fragment, render
from sotopia_studio.store import studies
from sotopia_studio.studies import agreement as agreements
from sotopia_studio.studies.board import LOST, STAGES, board_of, minutes

router = APIRouter()
PERIOD = 2
"""Seconds between two looks at a study that is watched."""


async def board_html(parts: Services, name: str) -> str:
    """Returns the board of a study as it is now."""
    await api.settle(parts, name)
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        board = await board_of(connection, studies.settings_of(row), row.id)
        values: dict[str, Any] = {"row": row, "board": board, "progress": await studies.progress(connection, row.id)}
    lost = sum(board.stages.get(stage, 0) for stage in LOST)
    return fragment("_study_board.html", stages=STAGES, lost_stages=LOST, lost=lost, minutes=minutes, **values)


async def existing_study(parts: ServicesDep, _: Reader, name: str) -> str:
    """A dependency: the name of a study that exists."""
    async with parts.database.read() as connection:
        return str((await studies.by_name(connection, name)).name)


@router.get("/studies/{name}/board", response_class=EventSourceResponse)
async def board(
    parts: ServicesDep, _: Reader, name: Annotated[str, Depends(existing_study)]
) -> AsyncIterator[ServerSentEvent]:
    """The part of a study's page that changes: as it is now, and again whenever it has changed."""
    async with aclosing(parts.hub.changes(f"board {name}", partial(board_html, parts, name), PERIOD)) as stream:
        async for html in stream:
            yield ServerSentEvent(raw_data=html)


async def _report(parts: Services, name: str) -> Report:
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        return await agreements.agreement(connection, api.annotate_only(row), row)


@router.get("/studies/{name}/agreement")
async def agreement(request: Request, parts: ServicesDep, _: Reader, name: str) -> Response:
    """The agreement of annotators with each other and with judges: tables with intervals, and pictures."""
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        study = api.annotate_only(row)
    report, problem, status = None, "", 200
    try:
        report = await _report(parts, name)
    except SotopiaError as error:  # no annotations yet, or too few to compare
        problem, status = str(error), status_of(error)
    return render(
        request,
        "agreement.html",
        status if status != 422 else 200,
        row=row,
        study=study,
        problem=problem,
        parts=[] if report is None else [part for part in report.parts if part],
        charts=await chart_sizes(report),
    )


@router.get("/studies/{name}/agreement.svg")
async def agreement_chart(
    parts: ServicesDep, _: Reader, name: str, chart: Annotated[str, Query(max_length=80)]
) -> Response:
    """A picture of the agreement."""
    return await chart_of(await _report(parts, name), chart, "svg")
