"""Every provider litellm knows. litellm is imported when the first such model is made, never before."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, NoReturn

import aiohttp

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.transports.attempt import FailedAttempt, raise_for_status
from sotopia_env.chat_model.transports.completion import read_completion
from sotopia_env.chat_model.transports.direct import response_format
from sotopia_env.chat_model.transports.keys import read_key
from sotopia_env.chat_model.transports.listing import check_listed, check_reachable
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint, nearest

logger = logging.getLogger(__name__)

# Providers whose credentials may come from profiles, instance roles or tokens as well as from variables.
_OTHER_CREDENTIALS = ("bedrock", "sagemaker", "vertex_ai", "azure", "watsonx", "gigachat", "github_copilot", "oci")
# Providers where the user names the models, or anybody uploads them: litellm's list says nothing about them.
_OPEN_ENDED = ("azure", "huggingface", "ollama", "openrouter", "replicate", "sagemaker", "watsonx", "databricks")
_GRACE = 5.0
# Which transports use litellm's connections in which event loop: they are shared, so the last one closes them.
_users: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, set[int]] = weakref.WeakKeyDictionary()


def load_litellm() -> ModuleType:
    """Imports litellm: prices from its own file instead of the network, no ``.env`` files, no banners, no telemetry."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # in its "DEV" mode it reads keys from .env files it finds
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm


class HostedTransport:
    """One model of one provider, through litellm."""

    def __init__(self, name: str, api_base: str | None, key_variable: str | None, timeout: float) -> None:
        """Finds the provider and checks that its key is there, without the network.

        Args:
            name: the model as the user named it, ``provider/name``.
            api_base: another address than the provider's own.
            key_variable: environment variable that holds the key; ``None`` leaves it to the provider's usual one.
            timeout: seconds an attempt may take.

        Raises:
            UnknownNameError: there is no such provider.
            InvalidValueError: the key is not in the environment.
        """
        self.name = name
        self.identity = f"{name} at {api_base}" if api_base else name
        self._litellm = load_litellm()
        self._provider, self._model = _provider(self._litellm, name, api_base)
        self._base, self._key_variable = api_base, key_variable or f"{self._provider.upper()}_API_KEY"
        # The caller holds the clock; litellm's own is behind it, so that one of them always rings.
        self._options: dict[str, Any] = {"model": name, "timeout": timeout + _GRACE, "num_retries": 0, "max_retries": 0}
        self._options |= {"drop_params": True, "no-log": True}
        if api_base:
            self._options["api_base"] = api_base
        if key_variable:
            self._options["api_key"] = read_key(key_variable)
        else:
            self._check_key(api_base)
        self.price = self._known_price()
        self.longest_prompt, self.longest_answer = self._known_lengths()
        self._errors = _errors()

    def _check_key(self, api_base: str | None) -> None:
        missing = self._litellm.validate_environment(self.name, api_base=api_base)["missing_keys"]
        if missing and not self._provider.startswith(_OTHER_CREDENTIALS):
            raise InvalidValueError(
                f"model {self.name!r}: expected {' and '.join(missing)} in the environment, which "
                f"{'is' if len(missing) == 1 else 'are'} not set"
            )

    def _known_price(self) -> Price | None:
        try:
            prompt, completion = self._litellm.cost_per_token(self.name, prompt_tokens=1000, completion_tokens=1000)
        except self._litellm.ModelNotMappedError:
            return None
        return Price(prompt * 1000, completion * 1000)

    def _known_lengths(self) -> tuple[int | None, int | None]:
        try:
            known = self._litellm.get_model_info(self.name)
        except self._litellm.ModelNotMappedError:
            return None, None
        return known["max_input_tokens"], known["max_output_tokens"]

    async def attempt(self, request: ChatRequest, structured: bool, mark: str) -> ChatReply:
        """See :class:`~sotopia_env.chat_model.transports.attempt.Transport`; no common place for ``mark``."""
        _users.setdefault(asyncio.get_running_loop(), set()).add(id(self))
        started = time.perf_counter()
        try:
            answer = await self._litellm.acompletion(**self._options, **_arguments(request, structured))
        except self._errors as error:
            raise_failure(error)
        cost = answer._hidden_params.get("response_cost")
        return replace(read_completion(answer, time.perf_counter() - started), cost=cost if self.price else None)

    async def check(self) -> None:
        """Finds out, without a call that costs, whether the model is there.

        Where the user gives an address it is asked. Otherwise provider and key were checked when the model was made,
        and a name that litellm does not list is only warned about: providers have newer models than its list.

        Raises:
            InvalidValueError: nothing answers at the base URL, or it does not accept the key.
            UnknownNameError: it lists models, and this one is not among them.
        """
        if self._base is None:
            self._warn_of_unlisted()
            return
        key = os.environ.get(self._key_variable, "").strip()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with aiohttp.ClientSession(headers=headers, trust_env=True) as session:  # proxies, as litellm's calls
            if self._provider != "openai" and self._provider not in self._litellm.openai_compatible_providers:
                await check_reachable(self.name, self._base, session)
            else:
                sent = self._key_variable if key else None
                await check_listed(self.name, self._model, self._base, sent, session)

    def _warn_of_unlisted(self) -> None:
        listed = {name.removeprefix(f"{self._provider}/") for name in self._listed()}
        if self.price is not None or not listed or self._model in listed:
            return
        close = nearest(self._model, sorted(listed))
        hint = f"; did you mean {f'{self._provider}/{close}'!r}?" if close else ""
        logger.warning("model %r is not among those that litellm knows%s", self.name, hint)

    def _listed(self) -> Iterable[str]:
        if self._provider.startswith(_OPEN_ENDED) or self._model.startswith("ft:"):  # fine-tuned by the user
            return ()
        found: Iterable[str] = self._litellm.models_by_provider.get(self._provider, ())
        return found

    async def close(self) -> None:
        """Closes litellm's connections, once no other model uses them in this event loop."""
        users = _users.get(asyncio.get_running_loop(), set())
        if id(self) not in users:
            return
        users.discard(id(self))
        if not users:
            await self._litellm.close_litellm_async_clients()
            self._litellm.in_memory_llm_clients_cache.flush_cache()  # a closed client must not be found again


def raise_failure(error: Exception) -> NoReturn:
    """Raises what an exception of litellm means, read from the chain of exceptions behind it.

    litellm answers 500 to everything it cannot name; what really happened is what the exceptions beneath say: an HTTP
    status, a connection that broke, a body that is no JSON.

    Raises:
        ContextLengthError: the conversation is too long.
        FailedAttempt: everything else.
    """
    import httpx

    beneath = list(_chain(error))
    message = str(getattr(error, "message", "") or error)
    refused = next((item for item in beneath if isinstance(item, httpx.HTTPStatusError)), None)
    sent = _was_sent(beneath)
    if refused is None and any(isinstance(item, httpx.TimeoutException) for item in beneath):
        raise FailedAttempt("timeout", message, doubtful=sent) from None
    if refused is None and any(isinstance(item, httpx.TransportError | OSError) for item in beneath):
        raise FailedAttempt("connection", f"{message} ({beneath[-1]})", doubtful=sent) from None
    status = refused.response.status_code if refused else int(getattr(error, "status_code", None) or 500)
    if refused is None and status in (200, 500):
        raise FailedAttempt("malformed", message, doubtful=True) from None
    code = " ".join(str(getattr(item, name, "") or "") for item in beneath for name in ("code", "type"))
    if type(error).__name__ == "ContextWindowExceededError":
        code += " context_length_exceeded"
    raise_for_status(status, message, code, refused.response.headers if refused else {})


def _was_sent(beneath: list[BaseException]) -> bool:
    """Whether there was a connection; litellm's transport calls one that broke later a failure to connect, too."""
    import httpx

    unsent: tuple[type[Exception], ...] = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    if any(isinstance(item, aiohttp.ClientError) for item in beneath):
        unsent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return not any(isinstance(item, unsent) for item in beneath)


def _errors() -> tuple[type[Exception], ...]:
    """What a call through litellm raises when it fails: OpenAI's family, and what its transports let through."""
    import httpx
    import openai

    return (openai.OpenAIError, httpx.HTTPError, aiohttp.ClientError, OSError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        yield following
        seen.add(id(following))
        following = following.__cause__ or following.__context__


def _arguments(request: ChatRequest, structured: bool) -> dict[str, Any]:
    wanted = {
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "logprobs": request.logprobs or None,
        "response_format": response_format(request) if structured else None,
    }
    return {"messages": list(request.messages)} | {name: value for name, value in wanted.items() if value is not None}


def _provider(litellm: ModuleType, name: str, api_base: str | None) -> tuple[str, str]:
    """Returns the provider, and the model's name there."""
    try:
        model, provider, *_ = litellm.get_llm_provider(name, api_base=api_base)
        return str(provider), str(model)
    except litellm.exceptions.BadRequestError:
        prefix, _, rest = name.partition("/")
        known = ["local", "openai-compatible", *sorted(str(provider.value) for provider in litellm.provider_list)]
        hint = name_hint(prefix, known) if rest else f"expected PROVIDER/NAME, such as 'openai/{name}', got {name!r}"
        raise UnknownNameError(f"model {name!r}: unknown provider; {hint}") from None
