"""Checks of the list of models of a server."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from sotopia_env.chat_model.transports.listing import check_listed
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from tests.errors import raises


def listed(model: str, names: list[str], elsewhere: str = "") -> list[str]:
    """Checks against a server that lists ``names`` or sends elsewhere; returns the paths it was asked for."""
    paths = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        if elsewhere and request.path == "/v1/models":
            return web.Response(status=301, headers={"Location": elsewhere})
        return web.json_response({"data": [{"id": name} for name in names]})

    async def work() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            async with aiohttp.ClientSession() as session:
                await check_listed(f"local/{model}", model, base, None, session)
        finally:
            await runner.cleanup()

    asyncio.run(work())
    return paths


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("tiny", "tiny"),
        ("tiny", "models/tiny"),
        ("tiny", "tiny:latest"),
        ("tiny:free", "owner/tiny"),
        ("tiny:8b", "owner/tiny:8b"),
        ("owner/tiny", "owner/tiny:free"),
        ("whatever", "*"),
    ],
)
def test_a_name_may_have_an_owner_and_a_tag(model: str, name: str) -> None:
    assert listed(model, ["another", name]) == ["/v1/models"]


@pytest.mark.parametrize(("model", "name"), [("tiny", "not-tiny"), ("tiny:8b", "tiny:7b"), ("tiny", "tiny/other")])
def test_another_name_is_another_model(model: str, name: str) -> None:
    with raises(UnknownNameError, field="model", got=model):
        listed(model, [name])


def test_a_key_does_not_follow_a_redirection() -> None:
    with raises(InvalidValueError, field="model", got="HTTP 301 to Location /v2/models"):
        listed("tiny", ["tiny"], elsewhere="/v2/models")
