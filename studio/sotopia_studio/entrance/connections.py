"""The HTTP server of the studio: whom it believes, how large a message may be, and how many connections a caller has.

A connection is counted before anything is read from it, because a request that never ends, and a WebSocket, hold one
for as long as they like.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from sotopia_studio.entrance.callers import OpenConnections
from sotopia_studio.settings import ServiceSettings

CONNECTIONS = 512
"""The maximum number of open connections of one address; each page that is watched takes one."""
LONGEST_MESSAGE = 2**20
"""The maximum size of a WebSocket message, in bytes."""
_FILES = 65_536
_REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"


class Server(uvicorn.Server):
    """A server that ends the streams of pages when it stops; uvicorn would wait for them and cut each with an error."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams, then everything else."""
        app: Any = self.config.app
        await app.state.services.hub.close()
        await super().shutdown(sockets)


def server_config(app: ASGIApp, settings: ServiceSettings, **options: Any) -> uvicorn.Config:
    """Returns the configuration of a server of the studio.

    Args:
        app: the application.
        settings: the service's settings, which name the proxies whose headers are believed.
        options: further options of uvicorn, such as ``port``.
    """
    config = uvicorn.Config(
        app,
        ws_max_size=LONGEST_MESSAGE,
        # Without a proxy the header is the caller's own invention, and would make every request another caller's.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        timeout_graceful_shutdown=2,
        **{"log_level": "warning", **options},
    )
    config.load()
    counted = OpenConnections(CONNECTIONS, settings.proxies)
    config.http_protocol_class = _counting(config.http_protocol_class, counted)
    if config.ws_protocol_class is not None:
        config.ws_protocol_class = _counting(config.ws_protocol_class, counted)
    return config


def _counting(protocol: type[asyncio.Protocol], counted: OpenConnections) -> type[asyncio.Protocol]:
    """Returns a protocol that refuses the connections of an address beyond its number.

    A WebSocket takes over the transport of its request, whose protocol never learns of the end. Therefore transports
    are counted, each once, by whichever protocol has them.
    """

    class Counting(protocol):  # type: ignore[valid-type, misc]
        _counted: tuple[str, asyncio.BaseTransport] | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            address = str((transport.get_extra_info("peername") or ("",))[0])
            if not counted.enter(address, transport):
                transport.write(_REFUSAL)
                transport.close()
                return
            self._counted = address, transport
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._counted is not None:
                counted.leave(*self._counted)
                super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._counted is not None:
                super().data_received(data)

        def eof_received(self) -> bool | None:
            return None if self._counted is None else super().eof_received()

    return Counting


def raise_file_limit() -> None:
    """Lets this process open as many files as it may: the usual 1024 are two callers' connections."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
