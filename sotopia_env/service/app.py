"""The server: its routes, what wraps every request, and what starts and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

from sotopia_env.records import code_version
from sotopia_env.service import answers
from sotopia_env.service.api import ROUTERS as API
from sotopia_env.service.context import Services
from sotopia_env.service.hub import Hub
from sotopia_env.service.pages import ROUTERS as PAGES
from sotopia_env.service.pages.rendering import STATIC, error_page
from sotopia_env.service.settings import ServiceSettings
from sotopia_env.service.store.engine import Database
from sotopia_env.service.store.migrations import upgrade

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def create_app(settings: ServiceSettings) -> FastAPI:
    """Returns the server as an ASGI application; it opens the database when it starts."""
    database = Database(settings.database)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await upgrade(database)
        parts = Services(settings, database, Hub(database))
        app.state.services = parts
        yield
        await parts.hub.close()
        await database.close()

    app = FastAPI(
        title="SOTOPIA studio",
        version=code_version(),
        description="Design, play, watch, annotate and compare social situations. Errors are problem details.",
        lifespan=lifespan,
        docs_url="/api/docs",
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    for router in API:
        app.include_router(router, prefix="/api/v1")
    for router in PAGES:
        app.include_router(router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=Path(STATIC)), name="static")
    answers.install(app, error_page)

    @app.middleware("http")
    async def headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return app
