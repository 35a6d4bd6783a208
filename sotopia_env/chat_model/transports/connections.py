"""Keep-alive connections to one URL: an aiohttp session without cookies, redirects and limits of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

_KEEP_ALIVE_SECONDS = 30.0
_MARK = "X-Request-Id"  # vLLM and most gateways write it into their logs
_NO_LIMITS = aiohttp.ClientTimeout(total=None)  # the caller has its own timeout


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response: its status, headers and whole body, decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connector(aiohttp.TCPConnector):
    """Gives up an idle connection on which something came that nobody asked for: it would answer the next request."""

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        """See aiohttp."""
        connection = await super().connect(*args, **options)
        while connection.protocol is not None and connection.protocol.should_close:
            connection.close()
            connection = await super().connect(*args, **options)
        return connection


class Connections:
    """Keep-alive connections of one event loop to one URL."""

    def __init__(self, url: URL, headers: Mapping[str, str], most: int) -> None:
        """Prepares, within the event loop, without connecting.

        Args:
            url: of every request.
            headers: of every request, beside those that aiohttp sends by itself.
            most: how many connections there may be at once.
        """
        self.loop = asyncio.get_running_loop()
        self._url = url
        self.session = aiohttp.ClientSession(
            connector=_Connector(limit=most, keepalive_timeout=_KEEP_ALIVE_SECONDS),
            timeout=_NO_LIMITS,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
        )

    async def post(self, body: bytes, mark: str) -> HttpResponse:
        """Sends ``body`` as the request of the id ``mark`` and returns the response, whatever its status.

        After a failure or cancellation the connection is closed, so that its response cannot answer another request.

        Raises:
            aiohttp.ClientError: no connection, one that was lost before the response was whole, or no HTTP.
            OSError: likewise.
        """
        headers = {_MARK: mark}
        async with self.session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            return HttpResponse(response.status, response.headers, await response.read())

    async def close(self) -> None:
        """Closes the connections."""
        await self.session.close()
