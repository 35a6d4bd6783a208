"""The home page: what is running, what is new, where to start."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from sotopia_env.service.auth import Reader
from sotopia_env.service.context import ServicesDep
from sotopia_env.service.pages.rendering import render

router = APIRouter()


@router.get("/")
async def home(request: Request, parts: ServicesDep, _: Reader) -> HTMLResponse:
    """The home page."""
    return render(request, "home.html")
