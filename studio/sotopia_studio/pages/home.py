"""The home page (running episodes and runs, the newest episodes, first steps) and the reference of the API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from sotopia_studio.auth import Reader, visitor
from sotopia_studio.context import ServicesDep
from sotopia_studio.pages.rendering import render
from sotopia_studio.store import episode_lists, library, runs
from sotopia_studio.store.episode_lists import EVERY, EpisodeFilter
from sotopia_studio.store.kinds import CHARACTERS, SCENARIOS, TASKS

router = APIRouter()
_MOST = 8


@router.get("/")
async def home(request: Request, parts: ServicesDep, _: Reader) -> HTMLResponse:
    """The home page."""
    running = EpisodeFilter(status="open")
    async with parts.database.read() as connection:
        values: dict[str, Any] = {
            "open_episodes": await episode_lists.page(connection, running, limit=_MOST),
            "open_runs": await runs.page(connection, status="running", limit=_MOST),
            "new": await episode_lists.page(connection, EpisodeFilter(status="done"), limit=_MOST),
            "episodes": await episode_lists.count(connection, EVERY),
            "characters": await library.count(connection, CHARACTERS),
            "scenarios": await library.count(connection, SCENARIOS),
            "tasks": await library.count(connection, TASKS),
        }
    return render(request, "home.html", **values)


@router.get("/api/docs")
async def reference(request: Request) -> HTMLResponse:
    """The endpoints of the API by subject, from its OpenAPI description; it needs no other server and no script."""
    request.state.principal = await visitor(request)
    description = request.app.openapi()
    subjects: dict[str, list[dict[str, Any]]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            entry = {"method": method.upper(), "path": path, **_summary(operation)}
            subjects.setdefault((operation.get("tags") or ["other"])[0], []).append(entry)
    return render(request, "reference.html", subjects=subjects, about=description["info"]["description"])


def _summary(operation: dict[str, Any]) -> dict[str, Any]:
    """The parts of an operation that the reference shows."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return {
        "text": operation.get("description") or operation.get("summary", ""),
        "parameters": [
            (parameter["name"], parameter["in"], parameter.get("description", ""))
            for parameter in operation.get("parameters", [])
            if parameter["in"] != "header"
        ],
        "body": body.get("$ref", "").rpartition("/")[2],
    }
