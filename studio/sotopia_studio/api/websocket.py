"""Simulations over a WebSocket, the protocol of SOTOPIA-S4 (§3): START_SIM, SERVER_MSG, ERROR, FINISH_SIM.

A client sends ``{"type": "START_SIM", "data": …}`` with the body of ``POST /simulate``; the server answers with one
``SERVER_MSG`` for each event of the episode and ``FINISH_SIM`` at its end. The client ends it early with
``FINISH_SIM`` or ``END_SIM``, which takes effect at once. The token is in the header ``Authorization`` or in the first
message, which then must be small and come soon, and never in the address. The episode is stored like any other, and
continues if the connection breaks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import Field, ValidationError

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.json_text import canonical_json, decode_json, parse_json
from sotopia_env.foundation.validation import invalid
from sotopia_studio import answers, auth, live
from sotopia_studio.api.bodies import Body
from sotopia_studio.api.simulate import Simulation, begin_all
from sotopia_studio.auth import Principal
from sotopia_studio.context import services
from sotopia_studio.entrance.connections import LONGEST_MESSAGE
from sotopia_studio.problems import ForbiddenError, MissingError, UnauthorizedError

router = APIRouter()
LONGEST_OF_STRANGERS = 64 * 2**10
"""The maximum number of characters in the first message of a client that has not sent a token before."""
PATIENCE = 10.0
"""Seconds that a client without a token has for its first message."""
ErrorType = Literal[
    "NOT_AUTHORIZED",
    "RESOURCE_NOT_FOUND",
    "SIMULATION_ALREADY_STARTED",
    "SIMULATION_NOT_STARTED",
    "SIMULATION_ISSUE",
    "INVALID_MESSAGE",
    "OTHER",
]
_STOP = ("FINISH_SIM", "END_SIM")


class ClientMessage(Body):
    """A message from a client."""

    type: Literal["START_SIM", "CLIENT_MSG", "FINISH_SIM", "END_SIM"]
    data: dict[str, Any] = Field(default_factory=dict)
    token: str = ""


class _Simulation:
    """One connection, with at most one simulation at a time."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket, self.parts, self.principal = socket, services(socket), Principal("", "", frozenset())
        self.episode: str | None = None
        self._sender: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def serve(self) -> None:
        """Carries out messages until the client leaves; a client that does not identify itself gets one error."""
        try:
            first = await self._identify()
        except (UnauthorizedError, ForbiddenError) as error:
            await self.error("NOT_AUTHORIZED", error)
        except InvalidValueError as error:
            await self.error("INVALID_MESSAGE", error)
        else:
            if first is not None:
                await self.take(first)
            while True:
                await self.take(await self._text())

    async def _identify(self) -> ClientMessage | None:
        """Reads the token at the handshake, or else in the first message, which it returns."""
        principal, first = await auth.principal_of(self.socket), None
        if principal is None:
            # Nothing is parsed of a stranger that could be long.
            with suppress(TimeoutError):
                first = _message(await asyncio.wait_for(self._text(), PATIENCE), LONGEST_OF_STRANGERS)
            if first is None or not first.token:
                raise UnauthorizedError("send the token in the header Authorization or in the first message")
            principal = await auth.of_token(self.socket, first.token)
        if "run" not in principal.scopes:
            raise ForbiddenError("this request needs the scope 'run'")
        self.principal = principal
        return first

    async def _text(self) -> str:
        message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        return message.get("text") or ""  # a message of bytes is none of ours

    async def send(self, kind: str, data: Any) -> None:
        # Errors and events are sent by two tasks; a frame must not be sent while another one is.
        async with self._lock:
            await self.socket.send_text(canonical_json({"type": kind, "data": data}))

    async def error(self, kind: ErrorType, error: SotopiaError) -> None:
        await self.send("ERROR", {"error": kind, **answers.problem(error)})

    async def take(self, text: str | ClientMessage) -> None:
        """Carries out a message."""
        try:
            message = _message(text) if isinstance(text, str) else text
            if message.type == "START_SIM":
                await self._start(message.data)
            elif message.type in _STOP:
                await self._stop()
            else:
                problem = InvalidValueError(field="type", got=message.type, expected="START_SIM or FINISH_SIM")
                await self.error("INVALID_MESSAGE", problem)
        except (UnauthorizedError, ForbiddenError) as error:
            await self.error("NOT_AUTHORIZED", error)
        except MissingError as error:
            await self.error("RESOURCE_NOT_FOUND", error)
        except InvalidValueError as error:
            await self.error("INVALID_MESSAGE", error)
        except SotopiaError as error:
            await self.error("OTHER", error)

    async def _start(self, data: dict[str, Any]) -> None:
        if self._sender is not None and not self._sender.done():
            await self.error("SIMULATION_ALREADY_STARTED", InvalidValueError("one simulation at a time", field="type"))
            return
        try:
            simulation = Simulation.model_validate(data)
        except ValidationError as error:
            raise invalid(error, Simulation.model_fields, data) from None
        if simulation.repeats != 1:
            raise InvalidValueError(
                field="repeats", expected="1: a connection shows one episode", got=simulation.repeats
            )
        (self.episode,) = await begin_all(self.parts, self.principal, simulation)
        self._sender = asyncio.create_task(self._follow(self.episode))

    async def _stop(self) -> None:
        if self.episode is None or self._sender is None or self._sender.done():
            await self.error("SIMULATION_NOT_STARTED", InvalidValueError("no simulation is in progress", field="type"))
            return
        await live.end(self.parts.database, self.episode, "stopped", "the client stopped it")
        await self.parts.hub.notify(self.episode)

    async def _follow(self, episode: str) -> None:
        last = ""
        async for event in self.parts.hub.follow(episode):
            last = event.kind
            data = {"episode": episode, "number": event.number, "kind": event.kind, "at": event.at}
            await self.send("SERVER_MSG", {**data, "event": decode_json(event.payload)})
            if event.kind == "failed":
                problem = SotopiaError(decode_json(event.payload).get("reason", ""))
                await self.error("SIMULATION_ISSUE", problem)
        if not self.parts.hub.closing:  # then the connection is closed, and the episode goes on
            await self.send("FINISH_SIM", {"episode": episode, "last": last})

    async def close(self) -> None:
        """Ends the stream; the episode continues."""
        if self._sender is not None:
            self._sender.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await self._sender


def _message(text: str, longest: int = LONGEST_MESSAGE) -> ClientMessage:
    if len(text) > longest:
        raise InvalidValueError(expected=f"at most {longest:,} characters", got=len(text))
    raw = parse_json(text, "the message", InvalidValueError)
    try:
        return ClientMessage.model_validate(raw)
    except ValidationError as error:
        raise invalid(error, ClientMessage.model_fields, raw) from None


@router.websocket("/ws/simulation")
async def simulation(socket: WebSocket) -> None:
    """Serves one client."""
    # Accepted even with an invalid token, because a client can read an ERROR message but not a refused handshake.
    await socket.accept()
    connection = _Simulation(socket)
    try:
        with suppress(WebSocketDisconnect):
            await connection.serve()
            await socket.close(1008)
    finally:
        await connection.close()
