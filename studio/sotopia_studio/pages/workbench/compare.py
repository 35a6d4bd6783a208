"""The page that compares policies or conditions over runs: the tables and charts of :mod:`sotopia_env.reports`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sotopia_env.foundation.errors import SotopiaError
from sotopia_studio.answers import status_of
from sotopia_studio.api.reports import Comparing, chart_sizes, compared
from sotopia_studio.auth import Reader
from sotopia_studio.context import ServicesDep
from sotopia_studio.pages.rendering import render
from sotopia_studio.store import episode_lists, runs

router = APIRouter()
FACTORS = ("", "tag", "scenario", "character", "relationship", "condition")
"""Factors by which a comparison can be split; empty for policies alone."""


@router.get("/compare")
async def compare(
    request: Request, parts: ServicesDep, _: Reader, comparing: Annotated[Comparing, Query()]
) -> Response:
    """The form, and the comparison that it requests."""
    async with parts.database.read() as connection:
        rows = [row for row in await runs.page(connection) if row.played]
        tags = await episode_lists.values(connection, "tag")
    report, problem, status = None, "", 200
    if comparing.run or comparing.tag:
        try:
            report = await compared(parts, comparing)
        except SotopiaError as error:
            problem, status = str(error), status_of(error)
    return render(
        request,
        "compare.html",
        status,
        comparing=comparing,
        runs=rows,
        tags=tags,
        factors=FACTORS,
        headline="" if report is None else report.headline,
        parts=[] if report is None else [part for part in report.parts if part and part != report.headline],
        charts=await chart_sizes(report),
        sheets=[] if report is None else [sheet.name for sheet in report.sheets],
        query=urlencode([(name, value) for name, value in request.query_params.multi_items() if value]),
        problem=problem,
    )
