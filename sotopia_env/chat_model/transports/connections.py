"""Posts to one URL over aiohttp's connections and its response parser, without a session's requests.

A session builds every request from scratch, with cookies, redirects, middlewares, tracing and a task that writes the
body: twice the work of the rest of a call. Here only the body differs from one request to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
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
        self._headers, self._most = headers, most
        self._connector = aiohttp.TCPConnector(limit=most, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        self._request = aiohttp.ClientRequest("POST", url, headers=headers, loop=self.loop)
        lines = [f"{name}: {text}" for name, text in self._request.headers.items() if name != "Content-Length"]
        self._head = "\r\n".join([f"POST {url.raw_path_qs} HTTP/1.1", *lines, "Content-Length: "])

    async def post(self, body: bytes, mark: str) -> HttpResponse:
        """Sends ``body`` as the request of the id ``mark`` and returns the response, whatever its status.

        After a failure or cancellation the connection is closed, so that its response cannot answer another request.

        Raises:
            aiohttp.ClientError: no connection, one that was lost before the response was whole, or no HTTP.
            OSError: likewise.
        """
        connection, protocol, transport = await self._connect()
        try:
            protocol.set_response_params(read_until_eof=True)
            transport.write(f"{self._head}{len(body)}\r\n{_MARK}: {mark}\r\n\r\n".encode() + body)
            response = await _read(protocol)
        except BaseException:
            connection.close()
            raise
        if transport.get_write_buffer_size():  # a response to half a request: the rest is still to come
            connection.close()
        else:
            protocol._parser = None  # or data that arrives now would be parsed, and half a message lost
            connection.release()
        return response

    async def _connect(self) -> tuple[aiohttp.connector.Connection, ResponseHandler, asyncio.Transport]:
        """Returns a connection without unread data, which would be taken for the next response."""
        for _ in range(self._most + 1):  # more than can lie idle
            connection = await self._connector.connect(self._request, [], _NO_LIMITS)
            protocol = connection.protocol
            if protocol is not None and protocol.transport is not None and not protocol.should_close:
                return connection, protocol, protocol.transport
            connection.close()
        raise aiohttp.ClientConnectionError("the server closes new connections, or speaks before it is asked")

    def session(self) -> aiohttp.ClientSession:
        """Returns a session over these connections for requests of other kinds; to be closed by the caller."""
        return aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            timeout=_NO_LIMITS,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._connector.close()


async def _read(protocol: Any) -> HttpResponse:
    try:
        message, payload = await protocol.read()
        while 100 <= message.code < 200 and message.code != 101:  # not the response yet
            message, payload = await protocol.read()
    except HttpProcessingError as error:
        raise aiohttp.ClientConnectionError(f"no HTTP response ({error.message})") from error
    return HttpResponse(message.code, message.headers, await payload.read())
