"""OpenAI-compatible servers that people run themselves (vLLM, SGLang, TGI, llama.cpp), without an SDK in between.

An SDK's call costs milliseconds of CPU, so one process could not feed a fast server; this path costs a little more than
aiohttp itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import lru_cache
from typing import Any

import aiohttp
from yarl import URL

from sotopia_env.chat_model.attempt import FailedAttempt, error_message, one_line, raise_for_status
from sotopia_env.chat_model.completion import read_completion
from sotopia_env.chat_model.keys import DEFAULT_KEY, read_key, redact
from sotopia_env.chat_model.price import Price
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint

_CHECK_SECONDS = 5.0


@lru_cache(maxsize=16_384)
def _message(role: str, content: str) -> str:
    """One message as JSON. A prompt repeats the one before and adds two messages, so most were encoded already."""
    return json.dumps({"role": role, "content": content})


class DirectTransport:
    """One model on one OpenAI-compatible server, through one keep-alive connection pool per event loop."""

    def __init__(self, name: str, model: str, api_base: str, key_variable: str | None, concurrency: int) -> None:
        """Prepares, without connecting.

        Args:
            name: the model as the user named it.
            model: its name on the server.
            api_base: the server's base URL, without a slash at the end.
            key_variable: environment variable that must hold the key; ``None`` takes the default one if it is set.
            concurrency: size of the connection pool.

        Raises:
            InvalidValueError: the variable is not set.
        """
        self.name = name
        self.identity = f"{name} at {api_base}"
        self.price: Price | None = None
        self._model = model
        self._base = api_base
        self._url = URL(f"{api_base}/chat/completions")
        self._key_variable = key_variable
        self._key = read_key(key_variable)
        self._concurrency = concurrency
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def attempt(self, request: ChatRequest, structured: bool) -> ChatReply:
        """See :class:`~sotopia_env.chat_model.attempt.Transport`."""
        body = self._encoded(request, structured)
        started = time.perf_counter()
        try:
            session = await self._open()
            async with session.post(self._url, data=body, allow_redirects=False) as response:
                raw = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise FailedAttempt("connection", f"{type(error).__name__}: {error}") from None
        latency = time.perf_counter() - started
        if response.status != 200:
            raise_for_status(response.status, *error_message(raw.decode("utf-8", "replace")), response.headers)
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise FailedAttempt("malformed", f"the answer is no JSON ({error})", status=200) from None
        return read_completion(answer, latency)

    def _encoded(self, request: ChatRequest, structured: bool) -> bytes:
        messages = ",".join([_message(message["role"], message["content"]) for message in request.messages])
        return f'{{"messages":[{messages}],{json.dumps(self._settings(request, structured))[1:]}'.encode()

    def _settings(self, request: ChatRequest, structured: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        if request.seed is not None:
            body["seed"] = request.seed
        if structured:
            body["response_format"] = response_format(request)
        if request.logprobs:
            # The second is vLLM's; the other servers ignore what they do not know.
            body |= {"logprobs": True, "return_token_ids": True}
        return body

    async def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            await self.close()  # its loop is gone, and with it its connections
            headers = {"Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=30.0),
                timeout=aiohttp.ClientTimeout(total=None),  # the caller holds the clock
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
            )
            self._loop = loop
        return self._session

    async def check(self) -> None:
        """Asks the server for its models.

        Raises:
            InvalidValueError: nothing answers at the base URL, or it does not accept the key.
            UnknownNameError: it lists models, and this one is not among them.
        """
        session = await self._open()
        try:
            async with asyncio.timeout(_CHECK_SECONDS), session.get(f"{self._base}/models") as response:
                raw = await response.read()
        except TimeoutError:
            raise InvalidValueError(
                f"model {self.name!r}: expected a server at {self._base}, got no answer in {_CHECK_SECONDS:g} seconds"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise InvalidValueError(
                f"model {self.name!r}: expected a server at {self._base}, got {one_line(redact(str(error)))}"
            ) from None
        self._check_listing(response.status, raw)

    def _check_listing(self, status: int, raw: bytes) -> None:
        if status in (401, 403):
            variable = self._key_variable or DEFAULT_KEY
            raise InvalidValueError(f"{self._base}: expected another key in {variable}, got HTTP {status}")
        if status != 200:
            return  # a server without a list of models; the first call will tell
        try:
            names = [str(entry["id"]) for entry in json.loads(raw)["data"]]
        except (ValueError, KeyError, TypeError):
            return
        if names and self._model not in names:
            raise UnknownNameError(f"model at {self._base}: {name_hint(self._model, names)}")

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
        self._session = None


def response_format(request: ChatRequest) -> dict[str, Any]:
    """Returns OpenAI's ``response_format`` for the request's schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.schema, "strict": True}}
