"""The server as an ASGI application: routes, middleware, and opening and closing the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from prometheus_client import Histogram

from sotopia_env.foundation.versions import code_version
from sotopia_studio import answers
from sotopia_studio.api import ROUTERS as API
from sotopia_studio.api import s4
from sotopia_studio.api.bodies import ERRORS
from sotopia_studio.context import Services
from sotopia_studio.entrance.guard import Guard
from sotopia_studio.hub import Hub, Once
from sotopia_studio.menus import EpisodeMenus
from sotopia_studio.pages import ROUTERS as PAGES
from sotopia_studio.pages.rendering import STATIC, error_page
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store.engine import Database
from sotopia_studio.store.migrations import upgrade

REPORTS = 8
"""Comparisons that are kept, until their episodes change: a page with three charts asks for one four times."""


def create_app(settings: ServiceSettings) -> FastAPI:
    """Returns the ASGI application; it opens the database on start-up."""
    database = Database(settings.database)
    durations = Histogram(
        "studio_request_seconds",
        "Seconds from a request to the start of its response.",
        ["method", "route", "status"],
        registry=None,  # the default one is shared by all servers of a process
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await upgrade(database)
        parts = Services(settings, database, Hub(database), EpisodeMenus(database), Once(REPORTS), durations)
        app.state.services = parts
        parts.menus.begin()  # nobody waits for the first count of a large database …
        await asyncio.to_thread(_build_routes, app)  # … nor for what FastAPI builds of its routes at the first request
        yield
        await parts.menus.close()
        # Ends the open streams; they would otherwise end only with the connection of each browser.
        await parts.hub.close()
        await database.close()

    app = FastAPI(
        title="SOTOPIA studio",
        version=code_version(),
        description="Design, play, watch, annotate and compare social situations. Errors are problem details.",
        lifespan=lifespan,
        docs_url=None,  # its scripts come from another server; /api/docs is a page of the studio
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    for router in API:
        app.include_router(router, prefix="/api/v1", responses=ERRORS)
    app.include_router(s4.router, prefix=s4.ROOT, responses=ERRORS)
    for router in PAGES:
        app.include_router(router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=Path(STATIC)), name="static")
    answers.install(app, error_page)

    # Last, so that it is outermost: no handler sees a request before its checks.
    app.add_middleware(Guard, origin=settings.origin, hosts=frozenset(settings.hosts), durations=durations)
    return app


def _build_routes(app: FastAPI) -> None:
    """Compares a path that nobody has with every route, before which FastAPI builds them: a fifth of a second."""
    for route in app.routes:
        route.matches({"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []})
