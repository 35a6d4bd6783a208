"""Keep-alive connections to one URL: an aiohttp session without cookies, redirects and limits of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from sotopia_env.chat_model.transports.attempt import FailedAttempt

_KEEP_ALIVE_SECONDS = 30.0
_MARK = "X-Request-Id"  # vLLM and most gateways write it into their logs
_NAMESPACE = uuid.UUID("5d6c1a52-6f0b-4b36-9a1e-0c7f2f4f7f11")
MOST_BYTES = 16_000_000
"""Of an answer, decompressed: some 60,000 tokens with ids and log-probabilities."""
MOST_ERROR_BYTES = 64_000
"""Of an error that is read; the rest is cut off."""
_NO_LIMITS = aiohttp.ClientTimeout(total=None)  # the caller has its own timeout


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response: its status, headers and whole body, decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request_id(mark: str) -> str:
    """Returns the id that a request is sent with: a UUID, as some servers refuse any other, of its id in the ledger."""
    return str(uuid.uuid5(_NAMESPACE, mark))


async def read_body(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """Returns the first ``most`` bytes of a body, decompressed, and whether that is all; else the connection is closed.

    aiohttp decompresses no further than what is read.
    """
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > most:
            response.close()
            return b"".join(parts)[:most], False
    return b"".join(parts), True


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
        """Sends ``body`` as the request of the id :func:`request_id` and returns the response, whatever its status.

        After a failure or cancellation the connection is closed, so that its response cannot answer another request.

        Raises:
            aiohttp.ClientError: no connection, one that was lost before the response was whole, or no HTTP.
            OSError: likewise.
            FailedAttempt: the answer is longer than :data:`MOST_BYTES`.
        """
        headers = {_MARK: request_id(mark)}
        async with self.session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            most = MOST_BYTES if response.status == 200 else MOST_ERROR_BYTES
            raw, is_whole = await read_body(response, most)
            if response.status == 200 and not is_whole:
                raise FailedAttempt(
                    "malformed", f"the answer is longer than {most:,} bytes, and was cut off", status=200, doubtful=True
                )
            return HttpResponse(response.status, response.headers, raw)

    async def close(self) -> None:
        """Closes the connections."""
        await self.session.close()
