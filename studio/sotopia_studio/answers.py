"""Error responses: problem details (RFC 9457) for programs, a page for browsers.

The caller gets the message and the fields of every error of the package. Any other exception is a fault of the service:
it is logged with an id, and the caller gets only the id.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from sotopia_env.foundation.errors import (
    BudgetExceededError,
    DamagedRecordError,
    FieldError,
    InUseError,
    ModelCallError,
    SotopiaError,
    excerpt,
)
from sotopia_env.foundation.validation import invalid_of
from sotopia_env.world.taskset import FIELD_NAMES
from sotopia_studio.problems import (
    ConflictError,
    ForbiddenError,
    LimitError,
    MissingError,
    TooLargeError,
    UnauthorizedError,
)
from sotopia_studio.store.engine import UNREACHABLE

logger = logging.getLogger(__name__)
THEIRS = ("/study", "/seat/")
"""The beginnings of the addresses of participants' pages; a study's own page is below ``/studies``."""
PROBLEM = "application/problem+json"
# The first class that matches decides, so subclasses come before their bases.
_STATUS: tuple[tuple[type[SotopiaError], int], ...] = (
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (MissingError, 404),
    (ConflictError, 409),
    (InUseError, 409),
    (LimitError, 429),
    (TooLargeError, 413),
    (BudgetExceededError, 409),
    (ModelCallError, 502),
    (DamagedRecordError, 422),
    (FieldError, 422),
    (SotopiaError, 422),
)
Render = Callable[[Request, int, dict[str, Any]], Awaitable[Response]]


def status_of(error: SotopiaError) -> int:
    """Returns the HTTP status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def problem(error: SotopiaError) -> dict[str, Any]:
    """Returns an error as problem details, with its message and its fields."""
    kind = type(error).__name__
    details: dict[str, Any] = {"type": f"about:blank#{kind}", "title": kind, "status": status_of(error)}
    details["detail"] = str(error)
    if isinstance(error, FieldError):
        fields = {"field": error.field, "expected": error.expected, "hint": error.hint, "where": str(error.where)}
        details |= {name: value for name, value in fields.items() if value}
        if error.got is not ...:
            details["got"] = excerpt(error.got)
        if error.nearest is not None:
            details["nearest"] = str(error.nearest)
    return details


def _route(request: Request) -> str:
    """The pattern of a request's path: the path itself may hold the secret of a link."""
    return str(getattr(request.scope.get("route"), "path", "(no route)"))


def install(app: FastAPI, page: Render) -> None:
    """Installs the exception handlers of ``app``.

    Args:
        app: the server.
        page: renders problem details for a browser; programs get JSON.
    """

    async def answer(request: Request, details: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
        if not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", ""):
            # Only a page that was asked for can be shown after the login; a form that was sent would be lost.
            # Participants have no login: their page says what opens it.
            if details["status"] == 401 and request.method == "GET" and not request.url.path.startswith(THEIRS):
                return RedirectResponse("/login", 303)
            return await page(request, details["status"], details)
        return JSONResponse(details, details["status"], media_type=PROBLEM, headers=headers)

    @app.exception_handler(SotopiaError)
    async def package_error(request: Request, error: SotopiaError) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthorizedError) else None
        return await answer(request, problem(error), headers)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> Response:
        # FastAPI prefixes every location with the part of the request; users know only the names of their fields.
        sources = ("body", "query", "path", "header")
        problems = [
            {**item, "loc": tuple(part for part in item["loc"] if part not in sources)} for item in error.errors()
        ]
        if error.errors()[0]["loc"][0] != "body":  # a parameter has its name, also without a body that holds it
            return await answer(request, problem(invalid_of(problems, FIELD_NAMES)))
        body = error.body if error.body is not None else {}
        # A form is a mapping, but not the `dict` that a body of JSON is.
        body = dict(body) if isinstance(body, Mapping) else body
        return await answer(request, problem(invalid_of(problems, FIELD_NAMES, body)))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, SotopiaError):  # a body that is not JSON
            return await answer(request, problem(error.__cause__))
        details = {"type": "about:blank", "title": error.detail, "status": error.status_code, "detail": error.detail}
        if error.status_code == 404:
            details["detail"] = f"{request.url.path}: page not found"
        return await answer(request, details, dict(error.headers or {}))

    async def no_storage(request: Request, error: Exception) -> Response:
        logger.error("request %s %s: database or disk failed", request.method, _route(request), exc_info=error)
        detail = "the database or the disk does not answer, or is full; nothing was saved, so try again in a moment"
        return await answer(request, {"type": "about:blank", "title": "no storage", "status": 503, "detail": detail})

    for kind in UNREACHABLE:  # a PostgreSQL server that is down is an OSError of the driver
        app.add_exception_handler(kind, no_storage)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        identity = secrets.token_hex(4)
        logger.error("request %s %s failed (%s)", request.method, _route(request), identity, exc_info=error)
        detail = f"the service failed; its log says why under {identity}"
        return await answer(request, {"type": "about:blank", "title": "fault", "status": 500, "detail": detail})
