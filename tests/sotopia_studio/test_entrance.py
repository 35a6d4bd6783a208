"""What callers without a token send to `sotopia serve`, a process of its own: it stays small and answers others."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import websockets
from sotopia_studio.entrance import connections, guard
from sotopia_studio.settings import ServiceSettings

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import settings_of
from tests.sotopia_studio.process import MB, Server, served
from tests.sotopia_studio.serving import serving

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="every loopback address answers on Linux")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("served"), "--set", "accounts=true") as running:
        yield running


async def attack(server: Server, work: Callable[[int], object], count: int) -> tuple[list[object], int, float]:
    """The results of simultaneous attackers, the memory that the server took, and the slowest page meanwhile.

    A third party asks for the page.
    """
    before, peak, slowest, ended = server.memory, 0, 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal peak, slowest
        async with httpx.AsyncClient(timeout=60) as other:
            while not ended.is_set():
                start = time.monotonic()
                await other.get(f"{server.address}/login")
                slowest, peak = max(slowest, time.monotonic() - start), max(peak, server.memory)

    watching = asyncio.create_task(watch())
    results = await asyncio.gather(*(work(number) for number in range(count)))  # type: ignore[call-overload]
    ended.set()
    await watching
    return list(results), max(peak, server.memory) - before, slowest


# --- WebSockets ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [16 * MB, MB - 10])
def test_large_messages_without_a_token_take_neither_memory_nor_time(server: Server, size: int) -> None:
    """Once 120 of them made 4,445 MB of 864 MB, and a page took 18 s; here, a quarter of them."""
    url, frame = f"ws://127.0.0.1:{server.port}/api/v1/ws/simulation", '{"data":[' + "1," * (size // 2 - 10) + "1]}"

    async def stranger(_: int) -> int:
        try:
            async with websockets.connect(url, compression=None, ping_interval=None, open_timeout=60) as socket:
                await socket.send(frame)
                while True:
                    await asyncio.wait_for(socket.recv(), 60)
        except websockets.ConnectionClosed as error:
            return error.rcvd.code if error.rcvd else 1006

    results, memory, slowest = asyncio.run(attack(server, stranger, 30))
    assert set(results) <= {1009, 1008, 1006}, results
    assert memory < 200 * MB, memory / MB
    assert slowest < 10
    assert server.page().status_code == 200


def test_a_socket_without_a_token_ends_and_one_address_has_only_so_many(server: Server) -> None:
    url = f"ws://127.0.0.1:{server.port}/api/v1/ws/simulation"

    async def silent(stack: list[websockets.ClientConnection]) -> bool:
        try:
            stack.append(await websockets.connect(url, open_timeout=60))
        except websockets.InvalidStatus:
            return False
        return True

    async def work() -> None:
        sockets: list[websockets.ClientConnection] = []
        accepted = await asyncio.gather(*(silent(sockets) for _ in range(guard.SOCKETS + 9)))
        assert accepted.count(False) == 9
        # Nobody waits for a stranger: the places become free by themselves.
        await asyncio.wait_for(asyncio.gather(*(one.wait_closed() for one in sockets)), 60)
        assert await silent(sockets)
        await sockets[-1].close()

    asyncio.run(work())


def test_messages_of_one_address_are_limited(server: Server) -> None:
    url, headers = f"ws://127.0.0.1:{server.port}/api/v1/ws/simulation", {"authorization": f"Bearer {server.token}"}

    async def work() -> int:
        async with websockets.connect(url, additional_headers=headers) as socket:
            with suppress(websockets.ConnectionClosed):
                for number in range(5000):  # noqa: B007
                    await socket.send("{}")
                    await asyncio.wait_for(socket.recv(), 60)
        assert socket.close_code == 1008
        return number

    assert asyncio.run(work()) < 1200


# --- bodies -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("path", ["/api/v1/episodes", "/api/v1/agents", "/login", "/design"])
def test_a_large_body_of_a_stranger_is_refused_before_it_is_read(server: Server, path: str, declared: bool) -> None:
    async def pieces() -> object:
        for _ in range(48):
            yield b"a" * 65536

    async def stranger(_: int) -> int:
        async with httpx.AsyncClient(timeout=60) as http:
            body = b"a" * (3 * MB) if declared else pieces()
            headers = {"content-type": "application/json" if "api" in path else "application/x-www-form-urlencoded"}
            try:
                answer = await http.post(f"{server.address}{path}", content=body, headers=headers)  # type: ignore[arg-type]
            except httpx.TransportError:  # it hung up while the body was sent
                return 401
            return answer.status_code

    results, memory, _ = asyncio.run(attack(server, stranger, 12))
    assert set(results) <= {401, 429}, results
    assert memory < 24 * MB, memory / MB


def test_an_undeclared_body_beyond_the_limit_is_413_also_with_a_token(server: Server) -> None:
    def pieces(count: int) -> Iterator[bytes]:
        return (b" " * 65536 for _ in range(count))

    headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
    with httpx.Client(base_url=server.address, headers=headers, timeout=60) as http:
        assert http.post("/api/v1/agents", content=pieces(70)).status_code == 413
        assert http.post("/api/v1/agents", content=pieces(20)).status_code == 422  # read, and not JSON


# --- connections --------------------------------------------------------------------------------------------------
def test_idle_connections_of_one_address_keep_nobody_else_out(server: Server) -> None:
    sockets = []
    try:
        for _ in range(connections.CONNECTIONS + 20):
            sockets.append(socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.9", 0)))
        sockets[-1].settimeout(60)
        assert b" 429 " in sockets[-1].recv(100)
        assert server.page().status_code == 200
    finally:
        for one in sockets:
            one.close()
    for _ in range(200):  # those that have ended are not counted
        with socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.9", 0)) as again:
            again.sendall(f"GET /login HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            again.settimeout(60)
            if b" 200 " in again.recv(100):
                return
        time.sleep(0.05)
    raise AssertionError("refused for ever")


# --- whose address it is ------------------------------------------------------------------------------------------
def _guesses(address: str, count: int = 40) -> list[int]:
    form, origin = {"name": "rosa", "password": "guess"}, {"origin": address}
    with httpx.Client(base_url=address, timeout=60) as http:
        return [
            http.post("/login", data=form, headers={**origin, "x-forwarded-for": f"203.0.113.{number}"}).status_code
            for number in range(count)
        ]


def test_an_invented_address_gives_no_more_guesses(server: Server) -> None:
    """Once 200 of 200 guesses were answered."""
    assert _guesses(server.address).count(429) >= 25


def test_a_proxy_that_the_operator_names_is_believed(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path, accounts=True, proxies=("127.0.0.1",)) as (address, _):
        assert 429 not in _guesses(address, 12)


def test_only_addresses_and_networks_are_proxies() -> None:
    assert ServiceSettings(proxies=("10.0.0.0/8", "::1")).proxies
    with pytest.raises(InvalidValueError, match="proxies"):
        settings_of({"proxies": ["*"]}, ServiceSettings, "")


# --- caches -------------------------------------------------------------------------------------------------------
def test_no_cache_keeps_a_page_an_export_or_an_answer(server: Server) -> None:
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.address, headers=headers, timeout=60) as http:
        for path in ("/", "/episodes", "/api/v1/episodes", "/api/v1/episodes/export.jsonl", "/nowhere", "/login"):
            assert http.get(path).headers["cache-control"] == "no-store", path
        assert "no-store" not in http.get("/static/studio.css").headers.get("cache-control", "")
        refused = http.get("/", headers={"host": "evil.example"})
        assert (refused.status_code, refused.headers["cache-control"]) == (421, "no-store")
