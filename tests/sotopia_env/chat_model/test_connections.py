"""The wire beneath the direct path, against a server that says byte for byte what a test wants."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from sotopia_env.chat_model.transports import direct
from sotopia_env.chat_model.transports.connections import Connections, connection_problem

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ZIPPED = gzip.compress(b"ok")


def in_a_loop(test):
    """Runs a test that is a coroutine, for at most 20 seconds."""

    @functools.wraps(test)
    def run(*arguments, **named):
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 240))

    return run


class Wire:
    """What a server has seen: the heads and bodies of requests, and how many connections there were.

    ``say`` writes unrequested data on the newest connection.
    """

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.say: Callable[[bytes], None]


@asynccontextmanager
async def wire(answer: Callable[[int], bytes], *, read_body: bool = True, close: bool = False):
    """A server that answers request n of all with ``answer(n)``, and connections to it."""
    traffic = Wire()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        traffic.connections += 1
        traffic.say = writer.write
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                traffic.heads.append(head)
                traffic.bodies.append(await reader.readexactly(length) if read_body else b"")
                writer.write(answer(len(traffic.heads)))
                await writer.drain()
                if close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connections = Connections(URL(f"http://127.0.0.1:{port}/v1/chat"), {"Authorization": "Bearer k"}, 4)
        try:
            yield connections, traffic
        finally:
            await connections.close()


@pytest.mark.parametrize(
    "raw",
    [
        OK,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED) + ZIPPED,
    ],
    ids=["length", "interim", "chunked", "gzip"],
)
@in_a_loop
async def test_a_response_is_read_whole_and_its_connection_used_again(raw):
    async with wire(lambda _: raw) as (connections, traffic):
        responses = [await connections.post(text, "a.1") for text in (b"one", b"", b"two" * 1000)]
    assert [(one.status, one.body) for one in responses] == [(200, b"ok")] * 3
    assert traffic.bodies == [b"one", b"", b"two" * 1000]
    assert traffic.connections == 1


@in_a_loop
async def test_a_request_carries_its_headers_once():
    async with wire(lambda _: OK) as (connections, traffic):
        await connections.post(b"{}", "id.1")
    first, *lines = traffic.heads[0].rstrip().split("\r\n")
    names = [line.partition(":")[0].lower() for line in lines]
    assert first == "POST /v1/chat HTTP/1.1"
    assert {"host", "authorization", "content-length", "accept-encoding", "user-agent"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "raw",
    [
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n",
        b"",
    ],
    ids=["garbage", "short", "short chunks", "nothing"],
)
@in_a_loop
async def test_an_incomplete_response_is_an_error_and_closes_its_connection(raw):
    async with wire(lambda number: raw if number == 1 else OK, close=True) as (connections, traffic):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await connections.post(b"{}", "a.1")
        assert (await connections.post(b"{}", "a.2")).body == b"ok"
    assert traffic.connections == 2


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:{free}", ["127.0.0.1:{free}", "refused", "is the server running"]),
        ("http://no-such-host.invalid", ["no-such-host.invalid", "check the address"]),
        ("https://127.0.0.1:{server}", ["127.0.0.1:{server}", "http://"]),
        ("http://127.0.0.1:{server}", ["closed the connection"]),
    ],
    ids=["nothing listens", "no host", "no TLS", "closed"],
)
@in_a_loop
async def test_a_failed_connection_says_where_and_what_to_do(address, words):
    async def close(reader, writer):
        await reader.readuntil(b"\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    ports = {"free": free_port(), "server": server.sockets[0].getsockname()[1]}
    connections = Connections(URL(address.format(**ports)), {}, 1)
    try:
        with pytest.raises((aiohttp.ClientError, OSError)) as failure:
            await connections.post(b"{}", "a.1")
    finally:
        await connections.close()
        server.close()
    text = connection_problem(failure.value)
    assert all(word.format(**ports) in text for word in words), text
    assert "ssl:" not in text
    assert "(_ssl.c" not in text


@in_a_loop
async def test_a_connection_that_the_server_closes_is_not_used_again():
    response = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    async with wire(lambda _: response) as (connections, traffic):
        assert [(await connections.post(b"{}", "a.1")).body for _ in range(2)] == [b"ok", b"ok"]
    assert traffic.connections == 2


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nl"], ids=["no", "half an"])
@in_a_loop
async def test_the_answer_to_a_cancelled_request_is_dropped(beginning):
    late = asyncio.Event()

    def answer(number: int) -> bytes:
        if number == 1:
            late.set()
            return beginning  # the rest never comes
        return OK

    async with wire(answer) as (connections, traffic):
        first = asyncio.create_task(connections.post(b"{}", "a.1"))
        await late.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await connections.post(b"{}", "a.2")).body == b"ok"
    assert traffic.connections == 2


@in_a_loop
async def test_a_refusal_before_the_body_was_sent_leaves_nothing_on_the_connection():
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    async with wire(lambda number: refusal if number == 1 else OK, read_body=False) as (connections, traffic):
        assert (await connections.post(b"x" * 64_000_000, "a.1")).status == 413
        assert (await connections.post(b"", "a.2")).body == b"ok"
    assert traffic.connections == 2


@in_a_loop
async def test_no_more_connections_than_wanted_are_opened():
    async with wire(lambda _: OK) as (connections, traffic):
        await asyncio.gather(*(connections.post(b"{}", f"a.{number}") for number in range(20)))
    assert traffic.connections <= 4
    assert len(traffic.bodies) == 20


@pytest.mark.parametrize(
    "stray",
    [OK.replace(b"ok", b"no"), OK[:9], b"\r\n", b"no HTTP at all\r\n\r\n"],
    ids=["a response", "half a head", "a line end", "garbage"],
)
@in_a_loop
async def test_what_comes_on_an_idle_connection_answers_no_request(stray):
    async with wire(lambda _: OK) as (connections, traffic):
        assert (await connections.post(b"{}", "a.1")).body == b"ok"
        traffic.say(stray)
        await asyncio.sleep(0.05)  # until it has come, or a stray of the next request would be tested
        try:
            second = (await connections.post(b"{}", "a.2")).body
        except aiohttp.ClientError:
            second = (await connections.post(b"{}", "a.3")).body
    assert second == b"ok"


@in_a_loop
async def test_a_redirection_is_not_followed():
    moved = b"HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 2\r\n\r\nno"
    async with wire(lambda _: moved) as (connections, traffic):
        assert (await connections.post(b"{}", "a.1")).status == 307
    assert len(traffic.heads) == 1


def test_long_messages_are_encoded_but_not_remembered():
    direct._short_message.cache_clear()
    for content, size in (("short", 1), ("é" * 1_999, 2), ("x" * 2_000, 2), ("y" * 1_000_000, 2)):
        assert json.loads(direct._message({"role": "user", "content": content})) == {"role": "user", "content": content}
        assert direct._short_message.cache_info().currsize == size
