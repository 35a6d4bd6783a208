"""A small OpenAI-compatible server on loopback, with programmable answers, latency and faults.

In the process of a test::

    with LoopbackServer(latency=0.05, faults={"rate_limit": 0.1}, seed=7) as server:
        ...  # server.api_base, server.requests, server.served

As a process of its own (it prints its base URL, and `GET /stats` counts the requests)::

    python -m tests.sotopia_env.chat_model.server --port 0 --latency 0.05 --fault reset=0.1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SPEAK = '{"action_type": "speak", "argument": "Good morning, shall we begin?"}'
FOREIGN = '{"行動": "話す", "内容": "おはようございます"}'
FAULTS = (
    "rate_limit",
    "rate_limit_after",
    "server_error",
    "overloaded",
    "hang",
    "reset",
    "truncated",
    "malformed",
    "not_a_completion",
    "empty",
    "wrong_language",
)
"""Faults that occur by chance; a script may also contain the statuses of :data:`REFUSALS`."""
REFUSALS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "rate_limit": (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}),
    "rate_limit_after": (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}),
    "quota": (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
    "server_error": (500, {"message": "The server had an error"}),
    "overloaded": (503, {"message": "The server is overloaded"}),
    "timeout": (408, {"message": "Request timeout"}),
    "conflict": (409, {"message": "Conflict"}),
    "bad_request": (400, {"message": "temperature: expected a number", "code": "invalid_value"}),
    "unauthorized": (401, {"message": "Incorrect API key provided", "code": "invalid_api_key"}),
    "forbidden": (403, {"message": "Not for you"}),
    "not_found": (404, {"message": "The model does not exist", "code": "model_not_found"}),
    "no_route": (404, {"message": "404 page not found"}),
    "unprocessable": (422, {"message": "Cannot process"}),
    "context": (
        400,
        {
            "message": "This model's maximum context length is 128 tokens. However, your messages have 999 tokens.",
            "code": "context_length_exceeded",
        },
    ),
}

_LLAMA_CPP_TRACE = (
    "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input "
    "should be 'text' or 'json_object'\", 'input': 'json_schema', 'ctx': {'expected': \"'text' or 'json_object'\"}}"
    '\n\n  File "llama_cpp/server/app.py", line 376, in create_chat_completion\n    POST /v1/chat/completions'
)
REJECTIONS: Mapping[str, tuple[int, Any]] = {
    # OpenAI's reasoning models
    "temperature": (
        400,
        {
            "error": {
                "message": "Unsupported value: 'temperature' does not support 0.25 with this model. Only the "
                "default (1) value is supported.",
                "type": "invalid_request_error",
                "param": "temperature",
                "code": "unsupported_value",
            }
        },
    ),
    "max_tokens": (
        400,
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                "code": "unsupported_parameter",
            }
        },
    ),
    # Gemma's chat template, under vLLM
    "system": (
        400,
        {"object": "error", "message": "System role not supported", "type": "BadRequestError", "code": 400},
    ),
    # A FastAPI server with strict fields
    "seed": (422, {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]}),
    # llama-cpp-python 0.3.36
    "json_schema": (500, {"error": {"message": _LLAMA_CPP_TRACE, "type": "internal_server_error", "code": None}}),
    "request id": (400, None),
    # transformers serve 5.23
    "return_token_ids": (422, {"detail": "Unexpected fields in the request: {'return_token_ids'}"}),
    # litellm's proxy in front of it
    "return_token_ids, proxied": (
        422,
        {"error": {"message": "litellm.BadRequestError: OpenAIException - Error code: 422", "code": "422"}},
    ),
    # a server that takes functions, and no demand to call one
    "tool_choice": (400, {"error": {"message": "tool_choice: 'required' is not supported"}}),
    # vLLM without --enable-auto-tool-choice
    "tools": (
        400,
        {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice', "code": 400},
    ),
    # Anthropic, as its documentation and public reports have it
    "blank": (
        400,
        {"error": {"message": "messages: text content blocks must be non-empty", "type": "invalid_request_error"}},
    ),
    "top_logprobs": (400, {"error": {"message": "Unrecognized request argument supplied: top_logprobs"}}),
}
"""What real servers answer to what they do not take, as it was seen."""


@dataclass(frozen=True)
class Manner:
    """How a kind of server differs: keys of :data:`REJECTIONS`, fields it ignores, and whether it lists models."""

    rejects: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    lists: bool = True


MANNERS: Mapping[str, Manner] = {
    "llama_cpp.server": Manner(
        ("json_schema", "request id"), ("return_token_ids", "max_completion_tokens", "bare logprobs")
    ),
    "llama-server": Manner((), ("return_token_ids", "tools")),
    "transformers serve": Manner(("return_token_ids",), ("response_format", "logprobs", "seed", "tools"), lists=False),
    "litellm proxy": Manner(("return_token_ids, proxied",), ("response_format", "logprobs", "seed", "tools")),
}
"""The real servers of docs/models.md, as they answered there."""


def _uses(body: Mapping[str, Any], headers: Mapping[str, str], name: str) -> bool:
    """Whether a request has what a server rejects under ``name``."""
    if name == "blank":
        return any(not str(message["content"]).strip() for message in body["messages"])
    if name == "system":
        return any(message["role"] == "system" for message in body["messages"])
    if name == "json_schema":
        return bool(body.get("response_format", {}).get("type") == "json_schema")
    if name == "request id":
        return not _is_uuid(headers.get("X-Request-Id", ""))
    if name == "tool_choice":
        return body.get("tool_choice") == "required"
    return name.partition(",")[0] in body


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def conforming(schema: Mapping[str, Any]) -> Any:
    """A value that a schema allows."""
    if "anyOf" in schema:
        return conforming(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: conforming(schema["properties"][name]) for name in schema["required"]}
    return {"string": "word", "integer": 1}[schema["type"]]


def _first_function(body: Mapping[str, Any]) -> tuple[str, Any]:
    function = body["tools"][0]["function"]
    return function["name"], conforming(function["parameters"])


def obedient(body: Mapping[str, Any]) -> str:
    """An answer that follows the schema of a request, and otherwise its seed and its limit."""
    form = body.get("response_format", {})
    schema = form.get("json_schema", form).get("schema")
    if schema or form:
        return json.dumps(conforming(schema) if schema else {})
    words = [f"word{body.get('seed')}", *["word"] * 40]
    return " ".join(words[: body.get("max_tokens") or body.get("max_completion_tokens")])


def _entry(token: str, best: Mapping[str, float]) -> dict[str, Any]:
    top = [{"token": text, "logprob": math.log(share), "bytes": None} for text, share in best.items()]
    return {"token": token, "logprob": -0.1, "bytes": None, "top_logprobs": top}


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    time: float
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass
class LoopbackServer:
    """The server.

    Attributes:
        latency: seconds before an answer.
        reply: the answer's text, or a function of the request body that returns it.
        calls: the functions that answers call, with their arguments, where the request has any: a function of the
            request body.
        best: the tokens of an answer, each with the probabilities of the best ones there: a function of the request
            body. They are sent with ``top_logprobs``.
        most_alternatives: more ``top_logprobs`` are refused.
        reasoning: sent as ``reasoning_content`` where not empty.
        faults: probability of each kind of :data:`FAULTS`, drawn with ``seed``.
        script: what happens to the first requests, one entry each: a fault, or ``None`` for an answer.
        retry_after: the header sent with ``rate_limit_after``.
        rejects_response_format: answer 400, or this status, to a request that has ``response_format``.
        manner: what it rejects and ignores; see :data:`MANNERS`.
        raw: where not empty, the body of every answer, or a function that returns its parts; sent with ``raw_type``,
            ``raw_headers`` and ``raw_status``.
        key: where not empty, requests without this bearer token are answered 401.
        models: names that ``GET /v1/models`` lists.
        refuses: of these, names that are answered 404 all the same.
        usage: ``counted``, or what servers do that do not count: say ``nothing`` or ``zero``.
        echo_model: the model's name in answers, where not empty.
        outage: what happens to every request as long as it is set.
        fails_on: a word that turns a request into ``fails_with``, a fault or refusal, where not empty.
        echo_key: put the caller's Authorization header into every error message, as careless gateways do.
        marks: the ids that requests came with, in the order they came; empty where there was none.
        sent: bytes of raw answers.
        served: requests that were answered with a completion, faulty or not; ``requests``: all that came.
    """

    latency: float = 0.0
    reply: str | Callable[[dict[str, Any]], str] = SPEAK
    calls: Callable[[dict[str, Any]], Iterable[tuple[str, Any]]] | None = None
    best: Callable[[dict[str, Any]], Iterable[tuple[str, Mapping[str, float]]]] | None = None
    most_alternatives: int = 20
    reasoning: str = ""
    faults: Mapping[str, float] = field(default_factory=dict)
    script: Iterable[str | None] = ()
    seed: int = 0
    retry_after: str = "1"
    rejects_response_format: bool | int = False
    manner: Manner = Manner()
    raw: bytes | Callable[[], Iterable[bytes]] = b""
    raw_type: str = "application/json"
    raw_headers: Mapping[str, str] = field(default_factory=dict)
    raw_status: int = 200
    key: str = ""
    models: tuple[str, ...] = ("tiny", "gpt-4o-mini")
    refuses: tuple[str, ...] = ()
    finish_reason: str = "stop"
    usage: str = "counted"
    outage: str = ""
    fails_on: str = ""
    fails_with: str = "server_error"
    echo_key: bool = False
    echo_model: str = ""
    port: int = 0
    keep_requests: bool = True

    def __post_init__(self) -> None:
        unknown = set(self.faults) - set(FAULTS)
        assert not unknown, f"unknown faults: {unknown}"
        self.requests: list[Seen] = []
        self.marks: list[str] = []
        self.happened: Counter[str] = Counter()
        self.served = self.sent = 0
        self.at_once = self.most_at_once = 0
        self._script = iter(self.script)
        self._random = random.Random(self.seed)

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def total(self) -> int:
        """How many completion requests came."""
        return sum(self.happened.values())

    # --- the protocol ---

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_get("/stats", self._stats)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        if not self._authorised(request):
            return self._refusal("unauthorized", request)
        if not self.manner.lists:
            return web.Response(status=500, text="Internal Server Error")
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _stats(self, _: web.Request) -> web.Response:
        stats = {"total": self.total, "served": self.served, "most_at_once": self.most_at_once}
        return web.json_response({**stats, "happened": dict(self.happened)})

    def _authorised(self, request: web.Request) -> bool:
        return not self.key or request.headers.get("Authorization") == f"Bearer {self.key}"

    def _next_fault(self) -> str | None:
        scripted = next(self._script, "")
        if scripted != "":
            return scripted
        point = self._random.random() if self.faults else 1.0
        for kind, probability in self.faults.items():
            point -= probability
            if point < 0:
                return kind
        return None

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._complete(request)
        finally:
            self.at_once -= 1

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.marks.append(request.headers.get("X-Request-Id", ""))
        if self.keep_requests:
            self.requests.append(Seen(body, dict(request.headers), time.monotonic(), dict(request.query)))
        fault = self.outage or self._next_fault()
        if self.fails_on and self.fails_on in str(body["messages"]):
            fault = self.fails_with
        if not self._authorised(request):
            fault = "unauthorized"
        elif body["model"] in self.refuses:
            fault = "not_found"
        elif self.rejects_response_format and "response_format" in body:
            self.happened["response_format"] += 1
            status = 400 if self.rejects_response_format is True else int(self.rejects_response_format)
            return web.json_response({"error": {"message": "Unrecognized argument: response_format"}}, status=status)
        elif rejected := next((one for one in self.manner.rejects if _uses(body, request.headers, one)), ""):
            self.happened[rejected] += 1
            status, answer = REJECTIONS[rejected]
            return web.Response(status=status) if answer is None else web.json_response(answer, status=status)
        elif body.get("top_logprobs", 0) > self.most_alternatives:
            self.happened["top_logprobs"] += 1
            message = f"top_logprobs: expected at most {self.most_alternatives}"  # Fireworks, Together: 5
            return web.json_response({"error": {"message": message}}, status=400)
        self.happened[fault or "answer"] += 1
        body = {name: value for name, value in body.items() if name not in self.manner.ignores}
        if "bare logprobs" in self.manner.ignores and not body.get("top_logprobs"):
            body.pop("logprobs", None)
        if self.latency:
            await asyncio.sleep(self.latency)
        return await self._answer(request, body, fault)

    async def _answer(self, request: web.Request, body: dict[str, Any], fault: str | None) -> web.StreamResponse:
        if self.raw:
            return await self._raw(request)
        if fault in REFUSALS:
            return self._refusal(fault, request)
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "reset":
            return self._reset(request)
        data = json.dumps(self._completion(body, fault)).encode()
        self.served += 1
        if fault == "truncated":
            return await self._truncated(request, data)
        if fault == "malformed":
            data = data[: len(data) // 2]
        elif fault == "not_a_completion":
            data = b'{"object": "chat.completion", "status": "ok"}'
        return web.Response(body=data, content_type="application/json")

    async def _raw(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": self.raw_type, **self.raw_headers}
        response = web.StreamResponse(status=self.raw_status, headers=headers)
        await response.prepare(request)
        with suppress(ConnectionError):
            for part in (self.raw,) if isinstance(self.raw, bytes) else self.raw():
                await response.write(part)
                self.sent += len(part)
                await asyncio.sleep(0)
            await response.write_eof()
        return response

    def _refusal(self, fault: str, request: web.Request) -> web.Response:
        status, error = REFUSALS[fault]
        if self.echo_key:
            error = {**error, "message": f"{error['message']} ({request.headers.get('Authorization')})"}
        headers = {"Retry-After": self.retry_after} if fault == "rate_limit_after" else {}
        return web.json_response({"error": {"type": "error", **error}}, status=status, headers=headers)

    def _reset(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        raw = request.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
        return web.Response()

    async def _truncated(self, request: web.Request, data: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(data))})
        await response.prepare(request)
        await response.write(data[: len(data) // 2])
        assert request.transport is not None
        request.transport.close()
        return response

    def _completion(self, body: dict[str, Any], fault: str | None) -> dict[str, Any]:
        text = self.reply if isinstance(self.reply, str) else self.reply(body)
        text = {"empty": "", "wrong_language": FOREIGN}.get(fault or "", text)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        words = text.split()
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        prompt = sum(len(str(m["content"]).split()) for m in body["messages"])
        completion = {
            "id": f"chatcmpl-{self.total}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": self.echo_model or f"{body['model']}-2026",
            "choices": [choice],
        }
        if self.usage != "nothing":
            counts = (prompt, len(words)) if self.usage == "counted" else (0, 0)
            completion["usage"] = dict(
                zip(("prompt_tokens", "completion_tokens", "total_tokens"), (*counts, sum(counts)), strict=True)
            )
        if body.get("logprobs"):
            content = [
                {"token": w, "logprob": -0.5 - i, "bytes": None, "top_logprobs": []} for i, w in enumerate(words)
            ]
            if self.best is not None and body.get("top_logprobs", 0) > 1:
                content = [_entry(token, best) for token, best in self.best(body)]
            choice["logprobs"] = {"content": content}
        if body.get("tools"):
            calls = self.calls(body) if self.calls else [_first_function(body)]
            functions = [
                {"name": name, "arguments": one if isinstance(one, str) else json.dumps(one)} for name, one in calls
            ]
            message["tool_calls"] = [
                {"id": f"call_{number}", "type": "function", "function": function}
                for number, function in enumerate(functions)
            ]
            if functions:
                message["content"], choice["finish_reason"] = None, "tool_calls"
        if body.get("return_token_ids"):
            choice["token_ids"] = list(range(100, 100 + len(words)))
            completion["prompt_token_ids"] = list(range(prompt))
        return completion

    # --- running it ---

    async def start(self) -> web.AppRunner:
        runner = web.AppRunner(self.application(), access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=4096)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    def __enter__(self) -> LoopbackServer:
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

        async def serve() -> None:
            runner = await self.start()
            started.set()
            await self._stop.wait()
            await runner.cleanup()
            hanging = asyncio.all_tasks() - {asyncio.current_task()}
            for task in hanging:
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(serve())
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert started.wait(10), "the loopback server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds")
    parser.add_argument("--reply", default=SPEAK)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--retry-after", default="1")
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=PROBABILITY", help=", ".join(FAULTS))
    return parser.parse_args()


async def _serve(server: LoopbackServer) -> None:
    await server.start()
    print(server.api_base, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    arguments = _arguments()
    faults = {kind: float(share) for kind, _, share in (item.partition("=") for item in arguments.fault)}
    server = LoopbackServer(
        latency=arguments.latency,
        reply=arguments.reply,
        seed=arguments.seed,
        retry_after=arguments.retry_after,
        faults=faults,
        port=arguments.port,
        keep_requests=False,
    )
    asyncio.run(_serve(server))


if __name__ == "__main__":
    main()
