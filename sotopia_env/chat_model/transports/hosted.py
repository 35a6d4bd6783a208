"""Transport to all providers of litellm, which is imported when the first such model is made."""

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
from sotopia_env.chat_model.transports.connections import connection_problem
from sotopia_env.chat_model.transports.form import RequestForm, messages_of, settings_of
from sotopia_env.chat_model.transports.keys import read_key
from sotopia_env.chat_model.transports.listing import check_listed, check_reachable
from sotopia_env.chat_model.transports.transport import Extras
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Where, nearest_name
from sotopia_env.foundation.extras import install_command

logger = logging.getLogger(__name__)

# Providers whose credentials may also come from profiles, instance roles or tokens instead of variables.
_OTHER_CREDENTIALS = ("bedrock", "sagemaker", "vertex_ai", "azure", "watsonx", "gigachat", "github_copilot", "oci")
# The environment variables of well-known providers' keys; one of them suffices.
_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "xai": ("XAI_API_KEY",),
}
# Providers with models that litellm cannot list, since users name or upload them.
_OPEN_ENDED = ("azure", "huggingface", "ollama", "openrouter", "replicate", "sagemaker", "watsonx", "databricks")
_GRACE = 5.0  # seconds
# The ids of transports by event loop. They share litellm's connections, so the last one to close closes them.
_users: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, set[int]] = weakref.WeakKeyDictionary()


def check_key(name: str, api_base: str | None, key_variable: str | None) -> None:
    """Checks the key of a well-known provider without litellm, whose import takes seconds.

    Raises:
        InvalidValueError: the key is not in the environment.
    """
    usual = _KEYS.get(name.partition("/")[0], ())
    if key_variable:
        read_key(key_variable)
    elif usual and not api_base and not any(os.environ.get(variable, "").strip() for variable in usual):
        problem = f"{' or '.join(usual)} is not set in the environment"
        raise InvalidValueError(problem, field="model", got=name)


def load_litellm() -> ModuleType:
    """Imports litellm with local prices instead of a download, and without ``.env`` files, banners and telemetry.

    Raises:
        InvalidValueError: litellm is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # In its default mode, "DEV", litellm reads keys from any ``.env`` file that it finds.
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        import litellm
    except ImportError:
        raise InvalidValueError(
            f"models of providers need the package litellm, which is not installed: {install_command('hosted')}"
        ) from None

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm


class HostedTransport:
    """A transport to one model of one provider, through litellm."""

    def __init__(
        self,
        name: str,
        api_base: str | None,
        key_variable: str | None,
        timeout: float,
        extras: Extras | None = None,
    ) -> None:
        """Resolves the provider and checks that its key is set, without network access.

        Args:
            name: the model as the user named it, ``provider/name``.
            api_base: the address of another server than the provider's; ``None`` for the provider's.
            key_variable: the environment variable that holds the key; ``None`` uses the provider's usual one.
            timeout: seconds that an attempt may take.
            extras: additions to every request.

        Raises:
            UnknownNameError: the provider is unknown.
            InvalidValueError: the key is not in the environment, or litellm is not installed.
        """
        self.name = name
        self.identity = f"{name} at {api_base}" if api_base else name
        check_key(name, api_base, key_variable)
        self._litellm = load_litellm()
        self._provider, self._model = _provider(self._litellm, name, api_base)
        self._base, self._key_variable = api_base, key_variable or f"{self._provider.upper()}_API_KEY"
        # The caller enforces the timeout; litellm's is longer and only guards against a hang. Retries are the caller's,
        # too: litellm's would be invisible to the ledger.
        self._options: dict[str, Any] = {"model": name, "timeout": timeout + _GRACE, "num_retries": 0, "max_retries": 0}
        self._options |= {"drop_params": True, "no-log": True}
        extras = extras or Extras()
        additions = {"extra_body": extras.body, "extra_headers": extras.headers}
        self._options |= {name: dict(values) for name, values in additions.items() if values}
        if api_base:
            self._options["api_base"] = api_base
        if key_variable:
            self._options["api_key"] = read_key(key_variable)
        else:
            self._check_key(api_base)
        self.price = self._listed_price()
        self.longest_prompt, self.longest_answer = self._listed_lengths()
        self._errors = _errors()

    def _check_key(self, api_base: str | None) -> None:
        missing = self._litellm.validate_environment(self.name, api_base=api_base)["missing_keys"]
        if missing and not self._provider.startswith(_OTHER_CREDENTIALS):
            raise InvalidValueError(f"not set in the environment: {', '.join(missing)}", field="model", got=self.name)

    def _listed_price(self) -> Price | None:
        try:
            # Despite its name, the function returns the cost of the given number of tokens.
            prompt, completion = self._litellm.cost_per_token(self.name, prompt_tokens=1000, completion_tokens=1000)
        except self._litellm.ModelNotMappedError:
            return None
        return Price(prompt * 1000, completion * 1000)

    def _listed_lengths(self) -> tuple[int | None, int | None]:
        try:
            info = self._litellm.get_model_info(self.name)
        except self._litellm.ModelNotMappedError:
            return None, None
        return info["max_input_tokens"], info["max_output_tokens"]

    async def attempt(self, request: ChatRequest, form: RequestForm, mark: str) -> ChatReply:
        """See :class:`~sotopia_env.chat_model.transports.transport.Transport`; ``mark`` is not sent."""
        _users.setdefault(asyncio.get_running_loop(), set()).add(id(self))
        start = time.perf_counter()
        try:
            answer = await self._litellm.acompletion(**self._with_extra(request), **_arguments(request, form))
        except self._errors as error:
            raise_failure(error)
        reply = read_completion(answer, time.perf_counter() - start)
        # Without a list price or a token count, litellm's ``response_cost`` is not the cost.
        is_known = self.price is not None and reply.usage.tokens is not None
        return replace(reply, cost=answer._hidden_params.get("response_cost") if is_known else None)

    def _with_extra(self, request: ChatRequest) -> dict[str, Any]:
        if not request.extra:
            return self._options
        return {**self._options, "extra_body": {**self._options.get("extra_body", {}), **request.extra}}

    async def check(self) -> None:
        """Checks, at no cost, that the model exists.

        A server at ``api_base`` is queried. Otherwise provider and key were checked when the model was made, and a name
        that litellm does not list only causes a warning, since providers have newer models than its list.

        Raises:
            InvalidValueError: no server responds at the base URL, or it does not accept the key.
            UnknownNameError: the server lists its models, and this one is not among them.
        """
        if self._base is None:
            self._warn_if_unlisted()
            return
        key = os.environ.get(self._key_variable, "").strip()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # ``trust_env`` uses the proxies in the environment, as litellm's calls do.
        async with aiohttp.ClientSession(headers=headers, trust_env=True) as session:
            if self._provider != "openai" and self._provider not in self._litellm.openai_compatible_providers:
                await check_reachable(self.name, self._base, session)
            else:
                variable = self._key_variable if key else None
                await check_listed(self.name, self._model, self._base, variable, session)

    def _warn_if_unlisted(self) -> None:
        names = {name.removeprefix(f"{self._provider}/") for name in self._model_list()}
        if self.price is not None or not names or self._model in names:
            return
        close = nearest_name(self._model, sorted(names))
        hint = f"; did you mean {f'{self._provider}/{close}'!r}?" if close else ""
        logger.warning("model %r is unknown to litellm%s", self.name, hint)

    def _model_list(self) -> Iterable[str]:
        # "ft:" is OpenAI's prefix for models that a user has fine-tuned.
        if self._provider.startswith(_OPEN_ENDED) or self._model.startswith("ft:"):
            return ()
        names: Iterable[str] = self._litellm.models_by_provider.get(self._provider, ())
        return names

    async def close(self) -> None:
        """Closes litellm's connections, once no other model uses them in this event loop."""
        users = _users.get(asyncio.get_running_loop(), set())
        if id(self) not in users:
            return
        users.discard(id(self))
        if not users:
            await self._litellm.close_litellm_async_clients()
            # litellm would otherwise use a closed client from its cache.
            self._litellm.in_memory_llm_clients_cache.flush_cache()


def raise_failure(error: Exception) -> NoReturn:
    """Raises the exception that corresponds to one of litellm, determined by the chain of its causes.

    litellm reports every unknown failure as status 500; the causes hold the HTTP status, the broken connection or the
    JSON error of the body.

    Raises:
        ContextLengthError: the conversation is too long.
        FailedAttempt: everything else.
    """
    import httpx

    causes = list(_chain(error))
    message = str(getattr(error, "message", "") or error)
    status_error = next((item for item in causes if isinstance(item, httpx.HTTPStatusError)), None)
    connected = _is_connected(causes)
    if status_error is None and any(isinstance(item, httpx.TimeoutException) for item in causes):
        raise FailedAttempt("timeout", message, doubtful=connected) from None
    if status_error is None and any(isinstance(item, httpx.TransportError | OSError) for item in causes):
        cause = next((item for item in causes if isinstance(item, aiohttp.ClientError)), None)
        problem = connection_problem(cause) if cause is not None else f"{message} ({causes[-1]})"
        raise FailedAttempt("connection", problem, doubtful=connected) from None
    status = status_error.response.status_code if status_error else int(getattr(error, "status_code", None) or 500)
    # Without an HTTP error in the chain, the server answered with status 200 and litellm could not read the body.
    if status_error is None and status in (200, 500):
        raise FailedAttempt("malformed", message, doubtful=True) from None
    code = " ".join(str(getattr(item, name, "") or "") for item in causes for name in ("code", "type"))
    # litellm recognizes further wordings of this error than ``raise_for_status``.
    if type(error).__name__ == "ContextWindowExceededError":
        code += " context_length_exceeded"
    raise_for_status(status, message, code, status_error.response.headers if status_error else {})


def _is_connected(causes: list[BaseException]) -> bool:
    """Whether a connection was established, so that the request may be billed."""
    import httpx

    connect_errors: tuple[type[Exception], ...] = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    # litellm's aiohttp transport also reports a connection that broke later as httpx.ConnectError, so the decision
    # must rest on aiohttp's exception if there is one.
    if any(isinstance(item, aiohttp.ClientError) for item in causes):
        connect_errors = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return not any(isinstance(item, connect_errors) for item in causes)


def _errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions of a call through litellm: those of the OpenAI client and of the HTTP transports."""
    import httpx
    import openai

    return (openai.OpenAIError, httpx.HTTPError, aiohttp.ClientError, OSError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    # A chain of causes may contain a cycle.
    ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in ids:
        yield cause
        ids.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _arguments(request: ChatRequest, form: RequestForm) -> dict[str, Any]:
    # Only fields that every provider accepts: no token ids (vLLM's field), and log-probabilities without ``top_``.
    plain = replace(form, token_ids="absent", logprobs=form.logprobs.removeprefix("top_"))
    settings = settings_of(request, plain)
    # For requests with tools, litellm would otherwise look for MCP servers, with a package that it does not install.
    if request.tools:
        settings["_skip_mcp_handler"] = True
    return {"messages": list(messages_of(request, form)), **settings}


def _provider(litellm: ModuleType, name: str, api_base: str | None) -> tuple[str, str]:
    """Returns the provider and the name of the model at the provider."""
    try:
        model, provider, *_ = litellm.get_llm_provider(name, api_base=api_base)
        return str(provider), str(model)
    except litellm.exceptions.BadRequestError:
        prefix, _, rest = name.partition("/")
        names = ["local", "openai-compatible", *sorted(str(provider.value) for provider in litellm.provider_list)]
        if not rest:
            expected = f"PROVIDER/NAME, such as 'openai/{name}'"
            raise UnknownNameError("unknown provider", field="model", expected=expected, got=name) from None
        where = Where(record=f"model {name!r}")
        raise UnknownNameError("unknown provider", field="model", got=prefix, valid=names, where=where) from None
