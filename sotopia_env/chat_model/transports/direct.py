"""Transport to OpenAI-compatible servers (vLLM, SGLang, TGI, llama.cpp), without an SDK.

A call through an SDK takes milliseconds of CPU time, too slow for one process to saturate a fast server.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

import aiohttp
from yarl import URL

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.transports.attempt import FailedAttempt, error_message, raise_for_status
from sotopia_env.chat_model.transports.completion import decode_answer, read_completion
from sotopia_env.chat_model.transports.connections import Connections, connection_problem
from sotopia_env.chat_model.transports.form import RequestForm, messages_of, settings_of
from sotopia_env.chat_model.transports.keys import DEFAULT_KEY, read_key
from sotopia_env.chat_model.transports.listing import check_listed
from sotopia_env.chat_model.transports.transport import Extras
from sotopia_env.world.observation import ChatMessage

_CACHEABLE = 2_000  # characters; with ``maxsize`` of the cache, this limits its memory to some tens of MB


def _message(message: ChatMessage) -> str:
    """Returns one message as JSON; most are cached, since each prompt repeats the previous one plus two messages."""
    # A message with more fields than role and content is a function call or its result.
    if len(message) > 2:
        return json.dumps(message)
    role, content = message["role"], message["content"]
    return _short_message(role, content) if len(content) < _CACHEABLE else _message_json(role, content)


def _message_json(role: str, content: str) -> str:
    return f'{{"role":{_quoted(role)},"content":{_quoted(content)}}}'


_short_message = lru_cache(maxsize=4_096)(_message_json)


class DirectTransport:
    """A transport to one model on an OpenAI-compatible server, with a keep-alive connection pool per event loop."""

    def __init__(
        self,
        name: str,
        model: str,
        api_base: str,
        key_variable: str | None,
        concurrency: int,
        extras: Extras | None = None,
    ) -> None:
        """Creates a transport, without connecting.

        Args:
            name: the model as the user named it.
            model: the name of the model on the server.
            api_base: the server's base URL, without a trailing slash.
            key_variable: the environment variable that must hold the key; ``None`` uses the default one if it is set.
            concurrency: the size of the connection pool.
            extras: additions to every request.

        Raises:
            InvalidValueError: the variable is not set.
        """
        self.name = name
        self.identity = f"{name} at {api_base}"
        self.price: Price | None = None
        self.longest_prompt: int | None = None
        self.longest_answer: int | None = None
        self.model = model
        self._base = api_base
        self._extras = extras or Extras()
        self._url = URL(f"{api_base}/chat/completions").update_query(self._extras.query)
        self._key_variable = key_variable
        self._key = read_key(key_variable)
        self._concurrency = concurrency
        self._connections: Connections | None = None
        self._settings_json: tuple[object, str] = (None, "")

    async def attempt(self, request: ChatRequest, form: RequestForm, mark: str) -> ChatReply:
        """See :class:`~sotopia_env.chat_model.transports.transport.Transport`."""
        return read_completion(*await self.send(self._body(request, form), mark))

    async def send(self, body: bytes, mark: str) -> tuple[Any, float]:
        """Returns the decoded answer to a body, and its latency in seconds; raises the errors of :meth:`attempt`."""
        start = time.perf_counter()
        try:
            response = await (await self._open()).post(body, mark)
        except (aiohttp.ClientError, OSError) as error:
            # Once connected, the server may have received and billed the request.
            is_connected = not isinstance(error, aiohttp.ClientConnectorError)
            raise FailedAttempt("connection", connection_problem(error), doubtful=is_connected) from None
        latency = time.perf_counter() - start
        raw = response.body
        if response.status != 200:
            message, code = error_message(raw.decode("utf-8", "replace"))
            raise_for_status(response.status, message, code, response.headers, self._base)
        return decode_answer(raw), latency

    def _body(self, request: ChatRequest, form: RequestForm) -> bytes:
        conversation = messages_of(request, form)
        messages = ",".join([_message(message) for message in conversation])
        is_plain = request.schema is None and not request.tools
        settings = self._plain_settings(request, form) if is_plain else self._settings(request, form)
        # The object of the settings is continued: its opening brace is replaced by the messages.
        return f'{{"messages":[{messages}],{settings[1:]}'.encode()

    def _plain_settings(self, request: ChatRequest, form: RequestForm) -> str:
        """Returns the settings of a request without schema and functions as JSON; the last ones are cached."""
        tokens = (request.logprobs, request.alternatives)
        key = (request.temperature, request.max_tokens, request.seed, tokens, form, request.extra)
        if key != self._settings_json[0]:
            self._settings_json = key, self._settings(request, form)
        return self._settings_json[1]

    def _settings(self, request: ChatRequest, form: RequestForm) -> str:
        return json.dumps({"model": self.model, **settings_of(request, form), **self._extras.body, **request.extra})

    async def _open(self) -> Connections:
        loop = asyncio.get_running_loop()
        if self._connections is None or self._connections.loop is not loop:
            await self.close()  # the pool of an event loop that has ended
            headers = {"Content-Type": "application/json", **self._extras.headers}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._connections = Connections(self._url, headers, self._concurrency)
        return self._connections

    async def check(self) -> None:
        """Checks that the server lists the model.

        Raises:
            InvalidValueError: no server responds at the base URL, or it does not accept the key.
            UnknownNameError: the server lists its models, and this one is not among them.
        """
        key = self._key_variable or DEFAULT_KEY
        await check_listed(self.name, self.model, self._base, key, (await self._open()).session)

    async def close(self) -> None:
        """Closes the connections."""
        if self._connections is not None:
            await self._connections.close()
        self._connections = None
