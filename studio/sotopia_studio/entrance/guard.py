"""Checks of every request and WebSocket before it reaches a handler: host, origin, size and rate.

Browsers send cookies with requests from any page, so a request with effects must come from a page of this server
(protection against CSRF): its ``Origin`` is checked, for forms and WebSockets. Requests with a token are exempt, since
a browser never adds one by itself. The host is checked against DNS rebinding, where an attacker's domain resolves to
this machine and would otherwise count as the same origin.

What arrives is counted as it arrives, with or without a declared length, and whoever sends more than a small body is
identified before the rest of it is read.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from prometheus_client import Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sotopia_studio import auth
from sotopia_studio.answers import PROBLEM
from sotopia_studio.entrance.callers import OpenConnections, Rates, caller_of
from sotopia_studio.problems import TooLargeError, UnauthorizedError

LONGEST_BODY = 4 * 2**20
"""The maximum size of a request, in bytes."""
LONGEST_UPLOAD = 64 * 2**20
"""The maximum size of an upload of episodes, in bytes; enough for some thousand episodes."""
LONGEST_OF_STRANGERS = 64 * 2**10
"""The maximum size of a request from a caller who is not logged in, in bytes; their largest form is a long name."""
SOCKETS = 64
"""The maximum number of open WebSockets of one caller; each shows one live episode."""
_UPLOAD = "/api/v1/episodes"
_STATIC = "/static/"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_RATES = {
    "/login": (10, 60.0),
    "/api/v1/design": (20, 60.0),
    "/api/v1/simulate": (240, 60.0),
    "/api/s4/simulate": (240, 60.0),
    "/design": (20, 60.0),
    "/simulate": (240, 60.0),
}
"""Limits on requests with effects, by path: the number that a caller may send, and the period in seconds."""
_MESSAGES = (600, 60.0)
"""The limit on the messages of all WebSockets of a caller."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_PRIVATE = "no-store"
"""No cache keeps a page, an export or an answer: they are one person's, and the next person may use the computer."""


class Guard:
    """ASGI middleware that refuses unsafe requests with problem details."""

    def __init__(
        self, app: ASGIApp, durations: Histogram, origin: str = "", hosts: frozenset[str] = frozenset()
    ) -> None:
        """Wraps ``app``.

        Args:
            app: the server.
            durations: seconds until a response starts, by method, route and status.
            origin: the address under which browsers reach the server; by default any host of ``hosts``.
            hosts: names of this machine; by default those of the loopback interface.
        """
        self._app = app
        self._durations = durations
        self._origin = origin.rstrip("/")
        named = frozenset({urlsplit(origin).hostname or ""}) if origin else _LOOPBACK
        self._hosts = hosts or named
        self._rates = Rates()
        self._sockets = OpenConnections(SOCKETS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_http = scope["type"] == "http"
        send = _with_headers(scope, send) if is_http else send
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
        elif is_http:
            await self._app(scope, _limited(scope, receive), self._observed(scope, send))
        else:
            await self._socket(scope, receive, send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._sockets.enter(_address(scope), id(scope)):
            await _refuse(scope, receive, send, 429, f"expected at most {SOCKETS} WebSockets of one address")
            return
        try:
            await self._app(scope, self._messages(scope, receive, send), send)
        finally:
            self._sockets.leave(_address(scope), id(scope))

    def _messages(self, scope: Scope, receive: Receive, send: Send) -> Receive:
        """Closes a WebSocket whose caller sends messages too often."""
        key = (caller_of(_address(scope)), "messages")

        async def counted() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or self._rates.allows(key, *_MESSAGES):
                return message
            await send({"type": "websocket.close", "code": 1008, "reason": _too_often(*_MESSAGES)})
            return {"type": "websocket.disconnect", "code": 1008}

        return counted

    def _observed(self, scope: Scope, send: Send) -> Send:
        start = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":  # a stream begins, and may go on for hours
                labels = self._durations.labels(scope["method"], _route(scope), message["status"])
                labels.observe(time.perf_counter() - start)
            await send(message)

        return observed

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if host not in self._hosts:
            # 421 Misdirected Request (RFC 9110).
            return 421, "unknown host name; give the server's address as the setting `origin`"
        if scope["type"] == "http" and scope["method"] in _SAFE:
            return None
        length, most = headers.get("content-length", "0"), _longest(scope)
        if length.isdecimal() and (len(length) > 15 or int(length) > most):
            return 413, f"expected at most {most:,} bytes"
        if not _has_token(headers) and not self._is_own(scope, headers):
            return 403, "the request does not come from a page of this server"
        # A header that anybody can make up would give a guesser of passwords as many tries as there are headers.
        rate = _RATES.get(scope["path"].rstrip("/"))
        if rate is not None and not self._rates.allows((caller_of(_address(scope)), scope["path"]), *rate):
            return 429, _too_often(*rate)
        return None

    def _is_own(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request comes from a page of this server, or from a program without cookies."""
        origin = headers.get("origin")
        if origin is None:
            site = headers.get("sec-fetch-site")
            return site == "same-origin" or (site is None and not headers.get("cookie"))
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        return origin == (self._origin or f"{scheme}://{headers.get('host')}")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, detail: str) -> None:
    if scope["type"] == "websocket":
        # The first message is `websocket.connect`; closing before accepting refuses the handshake.
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": detail})
        return
    details = {"type": "about:blank", "title": "refused", "status": status, "detail": detail}
    await JSONResponse(details, status, media_type=PROBLEM)(scope, receive, send)


def _too_often(number: int, seconds: float) -> str:
    return f"expected at most {number} of these in {seconds:g} s; wait a little"


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])


def _route(scope: Scope) -> str:
    """The path with names in place of ids, to avoid one metric series per episode; empty for 404."""
    if "endpoint" not in scope:
        return ""
    names = {str(value): f"{{{name}}}" for name, value in scope.get("path_params", {}).items()}
    return "/".join(names.get(part, part) for part in scope["path"].split("/"))


def _has_token(headers: Headers) -> bool:
    """Whether the request names a token; browsers add other kinds of authorization by themselves, such as Basic."""
    return headers.get("authorization", "").partition(" ")[0].casefold() == "bearer"


def _longest(scope: Scope) -> int:
    return LONGEST_UPLOAD if scope["path"].rstrip("/") == _UPLOAD else LONGEST_BODY


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Counts a body as it arrives; one that is too large, or a large one of a stranger, is an error of the request."""
    size, most, is_known = 0, _longest(scope), False

    async def limited() -> Message:
        nonlocal size, is_known
        message = await receive()
        size += len(message.get("body", b""))
        if size <= LONGEST_OF_STRANGERS:
            return message
        if scope["method"] in _SAFE:  # whose bodies nobody reads: its answer may have begun
            return {"type": "http.disconnect"}
        if size > most:
            raise TooLargeError(f"expected at most {most:,} bytes")
        is_known = is_known or await auth.principal_of(HTTPConnection(scope)) is not None
        if not is_known:
            raise UnauthorizedError(f"a request of more than {LONGEST_OF_STRANGERS:,} bytes needs a login or a token")
        return message

    return limited


def _with_headers(scope: Scope, send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if not scope["path"].startswith(_STATIC):
                headers["Cache-Control"] = _PRIVATE
        await send(message)

    return with_headers
