"""Rendering of pages: one Jinja environment that escapes everything, and the filters that templates share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from sotopia_env.foundation.versions import code_version
from sotopia_env.tasks.synopsis import Synopsis, synopsis
from sotopia_env.world import Scenario, Task
from sotopia_studio.auth import visitor

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
NAVIGATION = (
    ("/", "Home"),
    ("/simulate", "Simulate"),
    ("/episodes", "Episodes"),
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/scenarios", "Scenarios"),
    ("/characters", "Characters"),
    ("/tasks", "Tasks"),
    ("/dimensions", "Dimensions"),
    ("/studies", "Studies"),
)
"""The pages of a researcher, in the order of the navigation."""

templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    # Any text may come from a model, a participant or an upload.
    autoescape=select_autoescape(default=True),
    # A misspelt variable is an error and not an empty text.
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.globals |= {"version": code_version(), "navigation": NAVIGATION}


def _when(seconds: float | None) -> str:
    """A time in a readable form, in UTC; empty for ``None``."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M")


def _without(query: Mapping[str, str], *names: str, **changes: str) -> str:
    """A query string with changes: ``?a=1&b=2``, or an empty text without fields."""
    fields = {name: value for name, value in {**query, **changes}.items() if value and name not in names}
    return f"?{urlencode(fields)}" if fields else ""


def _synopsis(record: Scenario | Task) -> Synopsis:
    """The lines by which a scenario or a task is chosen."""
    return synopsis(record.scenario if isinstance(record, Task) else record)


templates.filters |= {"dedent": dedent, "when": _when, "query": _without, "synopsis": _synopsis}


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Returns a page.

    Args:
        request: the request of the page.
        template: file name of the template.
        status: HTTP status.
        values: the variables of the template; a missing variable is an error.
    """
    principal = getattr(request.state, "principal", None)
    # Participants have neither scope; the forms on their pages are theirs.
    staff = principal is not None and "read" in principal.scopes
    reading = staff and principal is not None and "run" not in principal.scopes
    who = "" if principal is None else principal.name or principal.role
    trial = getattr(request.state, "trial", None)  # of a researcher who tries a study
    common = {
        "request": request,
        "path": request.url.path,
        "staff": staff,
        "reading": reading,
        "who": who,
        "trial": trial,
    }
    text = templates.get_template(template).render(**common, **values)
    return HTMLResponse(text, status)


class EventStream(StreamingResponse):
    """Server-sent events that are encoded already, so that one encoding serves all watchers; empty ones are pings.

    FastAPI's own stream encodes every event for every watcher and hands it through two queues, in three times the time.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        """Sends the events as they come."""
        pinged = (event or KEEPALIVE_COMMENT async for event in events)
        super().__init__(pinged, headers={"X-Accel-Buffering": "no"})  # a proxy must not wait for more


def fragment(template: str, **values: Any) -> str:
    """Returns a part of a page, or a page of its own, as HTML text."""
    return templates.get_template(template).render(**values)


async def error_page(request: Request, status: int, details: dict[str, Any]) -> Response:
    """Returns the page that explains an error and what to do."""
    if getattr(request.state, "principal", None) is None:  # refused before anybody asked who it is
        request.state.principal = await visitor(request)
    return render(request, "error.html", status, problem=details)
