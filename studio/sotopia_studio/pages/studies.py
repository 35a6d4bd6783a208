"""The researcher's pages on studies: opening one, and one study with its links, people, progress and agreement."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from sotopia_studio.api import studies as api
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import ServicesDep, public_address
from sotopia_studio.pages.board import board_html
from sotopia_studio.pages.rendering import render
from sotopia_studio.store import studies

router = APIRouter()


@router.get("/studies")
async def list_studies(request: Request, parts: ServicesDep, _: Reader) -> Response:
    """All studies."""
    async with parts.database.read() as connection:
        rows = await studies.listed(connection)
        progress = {row.id: await studies.progress(connection, row.id) for row in rows}
    return render(request, "studies.html", studies=rows, progress=progress)


@router.get("/studies/{name}")
async def one(request: Request, parts: ServicesDep, _: Reader, name: str) -> Response:
    """A study: address, links, people, progress, agreement."""
    return await _page(request, parts, name, [])


async def _page(request: Request, parts: ServicesDep, name: str, links: list[str]) -> Response:
    board = await board_html(parts, name)
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        progress = await studies.progress(connection, row.id)
    address = f"{public_address(request)}/join/{row.name}"
    values = {"row": row, "study": studies.settings_of(row), "progress": progress, "board": Markup(board)}
    return render(request, "study.html", address=address, links=links, **values)


@router.post("/studies/{name}/links")
async def add_links(
    request: Request, parts: ServicesDep, runner: Runner, name: str, count: Annotated[int, Form(ge=1, le=1000)]
) -> Response:
    """Makes personal links and shows them once."""
    return await _page(request, parts, name, await api.add_links(request, parts, runner, name, count))


@router.post("/studies/{name}/status")
async def change(
    parts: ServicesDep, runner: Runner, name: str, change: Annotated[Literal["close", "reopen"], Form()]
) -> Response:
    """Closes a study or opens it again."""
    await api.change_study(parts, runner, name, change)
    return RedirectResponse(f"/studies/{name}", 303)


@router.post("/studies/{name}/screen")
async def screen(parts: ServicesDep, runner: Runner, name: str) -> Response:
    """Rejects annotations by the quality rules and opens new assignments for them."""
    await api.screen(parts, runner, name)
    return RedirectResponse(f"/studies/{name}", 303)
