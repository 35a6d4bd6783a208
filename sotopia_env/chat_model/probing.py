"""Report of what an OpenAI-compatible server takes and gives, found out with about ten requests.

Each row of :data:`ROWS` is one request and the reading of its answer. A server may ignore a field that it does not
know, so what counts is the answer, not the status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sotopia_env.chat_model.factory import DIRECT, make_transport
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.transports.attempt import FailedAttempt, one_line
from sotopia_env.chat_model.transports.completion import read_completion
from sotopia_env.chat_model.transports.direct import DirectTransport
from sotopia_env.chat_model.transports.form import Capabilities, Form
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.errors import ContextLengthError
from sotopia_env.json_text import decode_json
from sotopia_env.settings import settings_of

Result = Literal["yes", "no", "ignored"]
"""It works; the server refuses it; the server answers as if it had not been asked for."""
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"mood": {"enum": ["calm", "tense"]}, "doors": {"type": "integer"}},
    "required": ["mood", "doors"],
    "additionalProperties": False,
}
_QUESTION = "Describe the first room that comes to your mind in one sentence."
_ASK = ChatRequest(messages=({"role": "user", "content": _QUESTION},), temperature=1.0, max_tokens=24, seed=1)
_WITH_SYSTEM = replace(_ASK, messages=({"role": "system", "content": "You are an architect."}, *_ASK.messages))
_TOOL = {"type": "function", "function": {"name": "room", "description": "Describes a room.", "parameters": _SCHEMA}}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row: what was asked for, whether the server has it, and what it answered."""

    name: str
    result: Result
    detail: str = ""


@dataclass(slots=True)
class Probe:
    """The conversation with one server.

    Attributes:
        transport: to the model.
        timeout: seconds for a request.
        capabilities: what its refusals of plain requests have taught.
        requests: sent so far, beside the one for the list of models.
        plain: the answer to the plain question.
    """

    transport: DirectTransport
    timeout: float
    capabilities: Capabilities = field(default_factory=lambda: Capabilities("the server"))
    requests: int = 0
    plain: ChatReply = field(default_factory=lambda: ChatReply(""))

    async def ask(self, request: ChatRequest, form: Form) -> ChatReply:
        """Returns the answer to one request."""
        reply: ChatReply = await self._timed(self.transport.attempt(request, form, self._mark()))
        return reply

    async def ask_plainly(self, request: ChatRequest) -> ChatReply:
        """Returns the answer to a request, in whatever form the server takes it."""
        while True:
            form = self.capabilities.form
            try:
                return await self.ask(request, form)
            except FailedAttempt as failure:
                if not self.capabilities.learn(failure, request, form):
                    raise

    async def call_tool(self, choice: object) -> Mapping[str, Any]:
        """Returns the message that answers a request which must be answered with a call of the tool."""
        body = {"model": self.transport.model, "messages": list(_ASK.messages), "tools": [_TOOL], "tool_choice": choice}
        body[self.capabilities.form.limit] = 64
        answer, _ = await self._timed(self.transport.send(json.dumps(body).encode(), self._mark()))
        read_completion(answer, 0.0)  # raises for anything else
        message: Mapping[str, Any] = answer["choices"][0]["message"]
        return message

    def _mark(self) -> str:
        self.requests += 1
        return f"probe.{self.requests}"

    async def _timed(self, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self.timeout):
                return await work
        except TimeoutError:
            raise FailedAttempt("timeout", f"no answer within {self.timeout:g} seconds") from None


async def _plain(probe: Probe) -> Finding:
    probe.plain = await probe.ask_plainly(_ASK)
    usual, form = Form(), probe.capabilities.form
    changes = [
        f"{name} {getattr(form, name)}" for name in form.__slots__ if getattr(form, name) != getattr(usual, name)
    ]
    words = ", ".join([f"{probe.plain.latency:.1f} s", *changes])
    return Finding("plain", "yes", f"{words}: {_shown(probe.plain.text)}")


async def _system(probe: Probe) -> Finding:
    await probe.ask_plainly(_WITH_SYSTEM)
    is_merged = probe.capabilities.form.system == "merged"
    return Finding("system", "no" if is_merged else "yes", "put before the user's first message" if is_merged else "")


async def _usage(probe: Probe) -> Finding:
    prompt, completion = probe.plain.prompt_tokens, probe.plain.completion_tokens
    if prompt is None or completion is None:
        return Finding("usage", "no", "tokens are not counted: limits on tokens take their most")
    return Finding("usage", "yes", f"{prompt} prompt and {completion} answer tokens")


async def _limit(probe: Probe) -> Finding:
    reply = await probe.ask_plainly(replace(_ASK, max_tokens=4))
    longest = len(reply.text) > 60 if reply.completion_tokens is None else reply.completion_tokens > 4
    return Finding("max_tokens", "ignored" if longest else "yes", f"as {probe.capabilities.form.limit}")


async def _sampling(probe: Probe) -> Finding:
    reply = await probe.ask_plainly(replace(_ASK, seed=2))
    if reply.text != probe.plain.text:
        return Finding("sampling", "yes")
    return Finding("sampling", "ignored", "two seeds at temperature 1 give the same answer")


async def _schema(probe: Probe) -> Finding:
    reply = await probe.ask(replace(_ASK, schema=_SCHEMA, max_tokens=128), _form(probe, schema="json_schema"))
    return Finding("schema", "yes" if _follows(reply.text) else "ignored", _shown(reply.text))


async def _json_object(probe: Probe) -> Finding:
    reply = await probe.ask(replace(_ASK, schema=_SCHEMA, max_tokens=128), _form(probe, schema="json_object"))
    kind = "follows its schema" if _follows(reply.text) else "not its schema"
    return Finding("json_object", "yes" if _is_object(reply.text) else "ignored", f"{kind}: {_shown(reply.text)}")


async def _logprobs(probe: Probe) -> Finding:
    reply = await probe.ask(replace(_ASK, logprobs=True), _form(probe, token_ids="absent"))
    count = len(reply.logprobs or ())
    return Finding("logprobs", "yes" if count else "ignored", f"of {count} tokens" if count else "")


async def _token_ids(probe: Probe) -> Finding:
    reply = await probe.ask(replace(_ASK, logprobs=True), _form(probe))
    own, prompt = len(reply.token_ids or ()), len(reply.prompt_token_ids or ())
    return Finding(
        "token ids", "yes" if own else "ignored", f"{own} of the answer, {prompt} of the prompt" if own else ""
    )


async def _tools(probe: Probe) -> Finding:
    for choice in ({"type": "function", "function": {"name": "room"}}, "required"):
        message = await probe.call_tool(choice)
        if calls := message.get("tool_calls"):
            return Finding("tools", "yes", _shown(json.dumps(calls)))
    return Finding("tools", "ignored", _shown(str(message.get("content"))))


ROWS: tuple[tuple[str, Callable[[Probe], Awaitable[Finding]]], ...] = (
    ("plain", _plain),
    ("system", _system),
    ("usage", _usage),
    ("max_tokens", _limit),
    ("sampling", _sampling),
    ("schema", _schema),
    ("json_object", _json_object),
    ("logprobs", _logprobs),
    ("token ids", _token_ids),
    ("tools", _tools),
)
"""The rows, in the order in which they are asked; without the first there are no others."""


async def probe_server(
    api_base: str, model: str, *, api_key_env: str | None = None, timeout: float = 60.0
) -> tuple[Finding, ...]:
    """Returns what a server has, in the order of :data:`ROWS`; only the first row if it answers no plain question.

    Args:
        api_base: base URL, such as ``http://localhost:8000/v1``.
        model: its name on the server.
        api_key_env: environment variable that holds the key.
        timeout: seconds for one request.

    Raises:
        InvalidValueError: nothing answers at the base URL, or it does not accept the key.
        UnknownNameError: it lists models, and this one is not among them.
    """
    options = settings_of(
        {"api_base": api_base, "api_key_env": api_key_env, "timeout": timeout, "concurrency": 1}, ModelOptions, ""
    )
    transport = make_transport(f"{DIRECT[0]}/{model}", options)
    assert isinstance(transport, DirectTransport)
    probe, findings = Probe(transport, timeout), []
    try:
        await transport.check()
        for name, row in ROWS:
            findings.append(await _row(name, row, probe))
            if findings[0].result != "yes":
                break
    finally:
        await transport.close()
    return tuple(findings)


async def _row(name: str, row: Callable[[Probe], Awaitable[Finding]], probe: Probe) -> Finding:
    try:
        return await row(probe)
    except (FailedAttempt, ContextLengthError) as failure:
        return Finding(name, "no", str(failure))


def _form(probe: Probe, **changes: str) -> Form:
    return replace(probe.capabilities.form, **changes)


def _shown(text: str) -> str:
    return one_line(redact(text))[:60]


def _decoded(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return None


def _is_object(text: str) -> bool:
    return isinstance(_decoded(text), dict)


def _follows(text: str) -> bool:
    answer = _decoded(text)
    is_whole = isinstance(answer, dict) and set(answer) == set(_SCHEMA["required"])
    return is_whole and answer["mood"] in ("calm", "tense") and isinstance(answer["doors"], int)
