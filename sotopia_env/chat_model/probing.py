"""Report on the features of an OpenAI-compatible server, determined with about ten requests.

Each row of :data:`ROWS` sends a request and evaluates its answer. A server may ignore an unknown field without an
error, so the result depends on the answer, not on the status code.
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
from sotopia_env.chat_model.transports.completion import empty_reason, read_completion
from sotopia_env.chat_model.transports.direct import DirectTransport
from sotopia_env.chat_model.transports.form import Capabilities, RequestForm, unwrapped
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.foundation.errors import ContextLengthError
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.settings import settings_of

Result = Literal["yes", "no", "ignored"]
"""``yes``: the feature works; ``no``: the server refuses it; ``ignored``: the server answers as if without it."""
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"mood": {"enum": ["calm", "tense"]}, "doors": {"type": "integer"}},
    "required": ["mood", "doors"],
    "additionalProperties": False,
}
# As the schemas of actions: alternatives at the root and inside, a nullable value, limits on lengths and ranges.
_ALTERNATIVES: Mapping[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "mood": {"type": "string", "enum": ["calm", "tense"]},
                "doors": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}]},
            },
            "required": ["mood", "doors"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 40}},
            "required": ["name"],
            "additionalProperties": False,
        },
    ]
}
_QUESTION = "Describe the first room that comes to your mind in one sentence."
_ASK = ChatRequest(messages=({"role": "user", "content": _QUESTION},), temperature=1.0, max_tokens=24, seed=1)
_WITH_SYSTEM = replace(_ASK, messages=({"role": "system", "content": "You are an architect."}, *_ASK.messages))
_TOOL = {"type": "function", "function": {"name": "room", "description": "Describes a room.", "parameters": _SCHEMA}}


@dataclass(frozen=True, slots=True)
class FeatureResult:
    """One row of the report: the name of a feature, whether the server has it, and details of the answer."""

    name: str
    result: Result
    detail: str = ""


@dataclass(slots=True)
class ServerProbe:
    """The requests to one server, and the state that later requests depend on.

    Attributes:
        transport: the transport to the model.
        timeout: seconds for a request.
        capabilities: the accepted form of requests, learned from refusals of plain requests.
        requests: the number of requests so far, excluding the one for the list of models.
        plain: the answer to the plain question.
    """

    transport: DirectTransport
    timeout: float
    capabilities: Capabilities = field(default_factory=lambda: Capabilities("the server"))
    requests: int = 0
    plain: ChatReply = field(default_factory=lambda: ChatReply(""))

    async def ask(self, request: ChatRequest, form: RequestForm) -> ChatReply:
        """Returns the answer to one request."""
        reply: ChatReply = await self._timed(self.transport.attempt(request, form, self._mark()))
        return reply

    async def ask_plainly(self, request: ChatRequest) -> ChatReply:
        """Returns the answer to a request, in the first form that the server accepts."""
        while True:
            form = self.capabilities.form
            try:
                return await self.ask(request, form)
            except FailedAttempt as failure:
                if not self.capabilities.learn(failure, request, form):
                    raise

    async def call_tool(self, choice: object) -> Mapping[str, Any]:
        """Returns the answer to a request that requires a call of the tool, as a message."""
        body = {"model": self.transport.model, "messages": list(_ASK.messages), "tools": [_TOOL], "tool_choice": choice}
        body[self.capabilities.form.limit] = 64
        answer, _ = await self._timed(self.transport.send(json.dumps(body).encode(), self._mark()))
        read_completion(answer, 0.0)  # raises FailedAttempt unless ``answer`` is a chat completion
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


async def _plain(probe: ServerProbe) -> FeatureResult:
    probe.plain = await probe.ask_plainly(_ASK)
    usual, form = RequestForm(), probe.capabilities.form
    changes = [
        f"{name} {getattr(form, name)}" for name in form.__slots__ if getattr(form, name) != getattr(usual, name)
    ]
    words = ", ".join([f"{probe.plain.latency:.1f} s", *changes])
    if not probe.plain.text.strip():
        return FeatureResult("plain", "no", f"{words}: {empty_reason(probe.plain)}")
    return FeatureResult("plain", "yes", f"{words}: {_excerpt(probe.plain.text)}")


async def _system(probe: ServerProbe) -> FeatureResult:
    await probe.ask_plainly(_WITH_SYSTEM)
    is_merged = probe.capabilities.form.system == "merged"
    return FeatureResult(
        "system", "no" if is_merged else "yes", "prepended to the user's first message" if is_merged else ""
    )


async def _usage(probe: ServerProbe) -> FeatureResult:
    prompt, completion = probe.plain.prompt_tokens, probe.plain.completion_tokens
    if prompt is None or completion is None:
        return FeatureResult("usage", "no", "tokens are not counted; limits assume the maximum")
    return FeatureResult("usage", "yes", f"{prompt} prompt and {completion} answer tokens")


async def _limit(probe: ServerProbe) -> FeatureResult:
    reply = await probe.ask_plainly(replace(_ASK, max_tokens=4))
    # Four tokens of English have about 16 characters; 60 allow for tokens that are unusually long.
    is_longer = len(reply.text) > 60 if reply.completion_tokens is None else reply.completion_tokens > 4
    return FeatureResult("max_tokens", "ignored" if is_longer else "yes", f"as {probe.capabilities.form.limit}")


async def _sampling(probe: ServerProbe) -> FeatureResult:
    reply = await probe.ask_plainly(replace(_ASK, seed=2))
    if reply.text != probe.plain.text:
        return FeatureResult("sampling", "yes")
    return FeatureResult("sampling", "ignored", "two seeds at temperature 1 give the same answer")


async def _schema(probe: ServerProbe) -> FeatureResult:
    request = replace(_ASK, schema=_ALTERNATIVES, max_tokens=128)
    try:
        form = _form(probe, schema="json_schema")
        reply = await probe.ask(request, form)
    except FailedAttempt as failure:
        # The run would send the schema without bounds, too, after a refusal of these.
        if not probe.capabilities.learn(failure, request, form) or probe.capabilities.form.bounds == form.bounds:
            raise
        form = _form(probe, schema="json_schema")
        reply = await probe.ask(request, form)
    text = unwrapped(reply.text, request, form)
    detail = "" if form.bounds == "sent" else "without limits on lengths and ranges: "
    return FeatureResult("schema", "yes" if _is_alternative(text) else "ignored", f"{detail}{_excerpt(text)}")


async def _json_object(probe: ServerProbe) -> FeatureResult:
    reply = await probe.ask(replace(_ASK, schema=_SCHEMA, max_tokens=128), _form(probe, schema="json_object"))
    kind = "follows the schema" if _follows(reply.text) else "does not follow the schema"
    return FeatureResult(
        "json_object", "yes" if _is_object(reply.text) else "ignored", f"{kind}: {_excerpt(reply.text)}"
    )


async def _logprobs(probe: ServerProbe) -> FeatureResult:
    reply = await probe.ask(replace(_ASK, logprobs=True), _form(probe, token_ids="absent"))
    count = len(reply.logprobs or ())
    return FeatureResult("logprobs", "yes" if count else "ignored", f"of {count} tokens" if count else "")


async def _token_ids(probe: ServerProbe) -> FeatureResult:
    reply = await probe.ask(replace(_ASK, logprobs=True), _form(probe))
    own, prompt = len(reply.token_ids or ()), len(reply.prompt_token_ids or ())
    return FeatureResult(
        "token ids", "yes" if own else "ignored", f"{own} of the answer, {prompt} of the prompt" if own else ""
    )


async def _tools(probe: ServerProbe) -> FeatureResult:
    # Some servers force a call only if the function is named, others only with "required".
    for choice in ({"type": "function", "function": {"name": "room"}}, "required"):
        message = await probe.call_tool(choice)
        if calls := message.get("tool_calls"):
            return FeatureResult("tools", "yes", _excerpt(json.dumps(calls)))
    return FeatureResult("tools", "ignored", _excerpt(str(message.get("content"))))


ROWS: tuple[tuple[str, Callable[[ServerProbe], Awaitable[FeatureResult]]], ...] = (
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
"""The rows, in the order of their requests; if the first one fails, the others are skipped."""


async def probe_server(
    api_base: str, model: str, *, api_key_env: str | None = None, timeout: float = 60.0
) -> tuple[FeatureResult, ...]:
    """Returns the features of a server in the order of :data:`ROWS`, or only the first row if that one fails.

    Args:
        api_base: the base URL, such as ``http://localhost:8000/v1``.
        model: the name of the model on the server.
        api_key_env: the environment variable that holds the key.
        timeout: seconds for one request.

    Raises:
        InvalidValueError: no server responds at the base URL, or it does not accept the key.
        UnknownNameError: the server lists its models, and this one is not among them.
    """
    options = settings_of(
        {"api_base": api_base, "api_key_env": api_key_env, "timeout": timeout, "concurrency": 1}, ModelOptions, ""
    )
    transport = make_transport(f"{DIRECT[0]}/{model}", options)
    assert isinstance(transport, DirectTransport)
    probe, findings = ServerProbe(transport, timeout), []
    try:
        await transport.check()
        for name, row in ROWS:
            findings.append(await _row(name, row, probe))
            if findings[0].result != "yes":
                break
    finally:
        await transport.close()
    return tuple(findings)


async def _row(name: str, row: Callable[[ServerProbe], Awaitable[FeatureResult]], probe: ServerProbe) -> FeatureResult:
    try:
        return await row(probe)
    except (FailedAttempt, ContextLengthError) as failure:
        return FeatureResult(name, "no", str(failure))


def _form(probe: ServerProbe, **changes: str) -> RequestForm:
    return replace(probe.capabilities.form, **changes)


def _excerpt(text: str) -> str:
    return one_line(redact(text))[:60]


def _decoded(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return None


def _is_object(text: str) -> bool:
    return isinstance(_decoded(text), dict)


def _is_alternative(text: str) -> bool:
    answer = _decoded(text)
    if not isinstance(answer, dict):
        return False
    if set(answer) == {"name"}:
        return isinstance(answer["name"], str)
    doors = answer.get("doors", "")
    return set(answer) == {"mood", "doors"} and answer["mood"] in ("calm", "tense") and isinstance(doors, int | None)


def _follows(text: str) -> bool:
    answer = _decoded(text)
    is_whole = isinstance(answer, dict) and set(answer) == set(_SCHEMA["required"])
    return is_whole and answer["mood"] in ("calm", "tense") and isinstance(answer["doors"], int)
