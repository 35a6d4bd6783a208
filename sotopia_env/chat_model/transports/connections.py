"""Keep-alive connections to one URL: an aiohttp session without cookies, redirects and timeouts."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from sotopia_env.chat_model.transports.attempt import FailedAttempt

_KEEP_ALIVE_SECONDS = 30.0
_MARK = "X-Request-Id"  # vLLM and most gateways log this header
_NAMESPACE = uuid.UUID("5d6c1a52-6f0b-4b36-9a1e-0c7f2f4f7f11")
MOST_BYTES = 16_000_000
"""Maximum size of a decompressed answer: some 60,000 tokens with ids and log-probabilities."""
MOST_ERROR_BYTES = 64_000
"""Maximum number of bytes read of an error; the rest is discarded."""
_NO_LIMITS = aiohttp.ClientTimeout(total=None)  # the caller has its own timeout


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response with its status, headers and complete, decompressed body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def connection_problem(error: Exception) -> str:
    """Returns what failed below HTTP, with host and port and what to do, from an error of aiohttp or of a socket."""
    connecting = (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError)
    at = f"{error.host}:{error.port}" if isinstance(error, connecting) else "the server"
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"no host of the name {error.host}; check the address and the network"
        case aiohttp.ClientConnectorCertificateError():
            return f"the certificate of {at} is not accepted; SSL_CERT_FILE can name the authority that signed it"
        case aiohttp.ClientConnectorSSLError():
            return f"no TLS at {at}; the address of a server without it begins with http://"
        case aiohttp.ClientProxyConnectionError():
            return f"no connection to the proxy {at} ({_system_text(error)}); see HTTP_PROXY and HTTPS_PROXY"
        case aiohttp.ClientConnectorError():
            return f"no connection to {at} ({_system_text(error)}); is the server running, and is this its port?"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | aiohttp.ClientOSError():
            return "the server closed the connection before the end of its answer; see the server's log"
    return f"{type(error).__name__}: {error}"


def _system_text(error: aiohttp.ClientConnectorError) -> str:
    """Returns the system's name of an error, such as "Connection refused"."""
    # asyncio's own text repeats the address as a Python tuple.
    number = error.os_error.errno
    return os.strerror(number) if number is not None else type(error.os_error).__name__


def request_id(mark: str) -> str:
    """Returns the id in a request's header: a UUID, which some servers require, derived from the id in the ledger."""
    return str(uuid.uuid5(_NAMESPACE, mark))


async def read_body(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """Returns the first ``most`` bytes of a decompressed body, and whether that is all of it.

    The connection of a longer body is closed.
    """
    # aiohttp decompresses only the parts that are read, so a compressed body cannot exhaust the memory.
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > most:
            response.close()
            return b"".join(parts)[:most], False
    return b"".join(parts), True


class _Connector(aiohttp.TCPConnector):
    """A connector that closes idle connections with unexpected data, which would be read as the next answer."""

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        """Returns a connection without unread data; see :class:`aiohttp.TCPConnector`."""
        connection = await super().connect(*args, **options)
        while connection.protocol is not None and connection.protocol.should_close:
            connection.close()
            connection = await super().connect(*args, **options)
        return connection


class Connections:
    """Keep-alive connections of one event loop to one URL."""

    def __init__(self, url: URL, headers: Mapping[str, str], most: int) -> None:
        """Creates the session in the running event loop, without connecting.

        Args:
            url: the URL of every request.
            headers: the headers of every request, in addition to aiohttp's own.
            most: the maximum number of concurrent connections.
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
        """Sends ``body`` with the header :func:`request_id`, and returns the response with any status.

        After a failure or cancellation the connection is closed, so that its response is not read as another answer.

        Raises:
            aiohttp.ClientError: the connection failed, was lost before the end of the response, or did not speak HTTP.
            OSError: the connection failed below HTTP.
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
