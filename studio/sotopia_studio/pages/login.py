"""Logging in and out: by one-time address, or by name and password where there are accounts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from sotopia_studio import auth
from sotopia_studio.context import ServicesDep
from sotopia_studio.pages.rendering import render
from sotopia_studio.problems import UnauthorizedError

router = APIRouter()
_Text = Form(max_length=1_000)  # hashing a long password would keep the server busy


@router.get("/login")
async def form(request: Request, parts: ServicesDep) -> Response:
    """Asks for name and password, or explains where to find the one-time address."""
    return render(request, "login.html", accounts=parts.settings.accounts, problem="")


@router.get("/login/{secret}")
async def confirm(request: Request, parts: ServicesDep, secret: str) -> Response:
    """The page behind a one-time address; a mail scanner that opens it does not use it up."""
    try:
        async with parts.database.read() as connection:
            await auth.login_role(connection, secret)
    except UnauthorizedError as error:
        return render(request, "login.html", 401, accounts=parts.settings.accounts, problem=str(error))
    return render(request, "login_once.html", secret=secret)


@router.post("/login/{secret}")
async def claim(request: Request, parts: ServicesDep, secret: str) -> Response:
    """Starts a session with a one-time address."""
    async with parts.database.write() as connection:
        session = await auth.claim_login(connection, secret)
    return auth.session_response(request, session, "/")


@router.post("/login")
async def log_in(
    request: Request, parts: ServicesDep, name: Annotated[str, _Text], password: Annotated[str, _Text]
) -> Response:
    """Starts a session with name and password."""
    return auth.session_response(request, await auth.log_in(parts.database, name, password), "/")


@router.post("/logout")
async def log_out(request: Request, parts: ServicesDep) -> Response:
    """Ends the session."""
    name = auth.cookie_name(request)
    async with parts.database.write() as connection:
        await auth.close_session(connection, request.cookies.get(name, ""))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(name)
    return response
