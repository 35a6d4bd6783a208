"""Checks of every request before it reaches a handler: host, origin, size and rate.

Browsers send cookies with requests from any page, so a request with effects must come from a page of this server
(protection against CSRF): its ``Origin`` is checked, for forms and WebSockets. Requests with a token are exempt, since
a browser never adds one by itself. The host is checked against DNS rebinding, where an attacker's domain resolves to
this machine and would otherwise count as the same origin.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from urllib.parse import urlsplit

from prometheus_client import Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sotopia_studio.answers import PROBLEM

LONGEST_BODY = 4 * 2**20
"""The maximum size of a request, in bytes."""
LONGEST_UPLOAD = 64 * 2**20
"""The maximum size of an upload of episodes, in bytes; enough for some thousand episodes."""
_UPLOAD = "/api/v1/episodes"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_RATES = {
    "/login": (10, 60.0),
    "/api/v1/design": (20, 60.0),
    "/api/v1/simulate": (240, 60.0),
    "/design": (20, 60.0),
    "/simulate": (240, 60.0),
}
"""Limits on requests with effects, by path: the number that a caller may send, and the period in seconds."""
_CALLERS = 10_000
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
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal, is_http = self._refusal(scope, headers), scope["type"] == "http"
        if refusal is None:
            await self._app(
                scope,
                _limited(receive, _longest(scope)),
                self._observed(scope, _with_headers(send)) if is_http else send,
            )
        elif scope["type"] == "websocket":
            # The first message is `websocket.connect`; closing before accepting refuses the handshake.
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            status, detail = refusal
            details = {"type": "about:blank", "title": "refused", "status": status, "detail": detail}
            await JSONResponse(details, status, media_type=PROBLEM)(scope, receive, send)

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
        return self._too_often(scope, headers)

    def _is_own(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request comes from a page of this server, or from a program without cookies."""
        origin = headers.get("origin")
        if origin is None:
            site = headers.get("sec-fetch-site")
            return site == "same-origin" or (site is None and not headers.get("cookie"))
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        return origin == (self._origin or f"{scheme}://{headers.get('host')}")

    def _too_often(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        rate = _RATES.get(scope["path"].rstrip("/"))
        if rate is None:
            return None
        number, seconds = rate
        # A header that anybody can make up would give a guesser of passwords as many tries as there are headers.
        caller = (scope.get("client") or ("", 0))[0]
        key, now = (caller, scope["path"]), time.monotonic()
        tokens, before = self._buckets.pop(key, (float(number), now))
        # A token bucket: it refills at the allowed rate and holds at most one interval's worth.
        tokens = min(float(number), tokens + (now - before) * number / seconds)
        self._buckets[key] = (max(tokens - 1.0, 0.0), now)
        if len(self._buckets) > _CALLERS:
            # The least recently used: `pop` and insertion move a caller to the end.
            self._buckets.popitem(last=False)
        return None if tokens >= 1.0 else (429, f"expected at most {number} of these in {seconds:g} s; wait a little")


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


def _limited(receive: Receive, most: int) -> Receive:
    """Ends the connection when a body without a declared length exceeds the limit."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b"")) if message["type"] == "http.request" else 0
        return {"type": "http.disconnect"} if size > most else message

    return limited


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return with_headers
