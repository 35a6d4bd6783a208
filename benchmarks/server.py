"""The loopback model server of the benchmarks: real HTTP over real sockets, in another process, and hardly any CPU.

A server on a web framework takes about as much CPU for a call as the client, which would spoil the measurement on two
cores. This one reads the length and the body of a request, waits, and writes a prepared answer: an utterance, or the
verdict of the request's schema.

``python -m benchmarks.server LATENCY`` prints the base URL and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from tests.sotopia_env.runs.model_runs import answer

_LENGTH = b"content-length:"


class _Connection(asyncio.Protocol):
    """One keep-alive connection; answers requests one after another."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        # A request may come in several pieces, so it is answered when its declared length has arrived.
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        length = _length(self._buffer[:end])
        if len(self._buffer) < end + length:
            return
        body, self._buffer = self._buffer[end : end + length], self._buffer[end + length :]
        self._loop.call_later(self._latency, self._transport.write, _response(body))


def _length(head: bytes) -> int:
    lower = head.lower()
    start = lower.find(_LENGTH)
    return int(head[start + len(_LENGTH) : head.index(b"\r", start)]) if start >= 0 else 0


def _response(body: bytes) -> bytes:
    # A key of judges' schemas; inside messages the quotes would be escaped.
    if b'"verdicts"' in body:
        return _completion(answer(json.loads(body)), len(body))
    return _utterance(body.count(b'"role"'))


@lru_cache
def _utterance(messages: int) -> bytes:
    return _completion(answer({"messages": [None] * messages}), 600 * messages)


def _completion(text: str, length: int) -> bytes:
    """A chat completion with ``text`` for a prompt of ``length`` characters, as an HTTP response."""
    # About four characters a token, as in English.
    prompt, words = length // 4, len(text.split())
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "tiny-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": prompt + words},
    }
    data = json.dumps(completion).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@contextmanager
def server_process(latency: float) -> Iterator[str]:
    """Runs the server in a process of its own and yields its base URL."""
    command = [sys.executable, "-m", "benchmarks.server", str(latency)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


async def _serve(latency: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(latency), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
