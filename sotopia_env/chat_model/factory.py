"""Construction of a model from its name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sotopia_env.chat_model.cache import ResponseCache
from sotopia_env.chat_model.limits import Limits
from sotopia_env.chat_model.options import ModelOptions, of_model
from sotopia_env.chat_model.remote import RemoteModel
from sotopia_env.chat_model.route import Route
from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.chat_model.transports.transport import Transport
from sotopia_env.errors import InvalidValueError, check_whole
from sotopia_env.settings import settings_of

DIRECT = ("local", "openai-compatible")
"""Prefixes of models on OpenAI-compatible servers; every other prefix is one of litellm's providers."""


def make_model(
    spec: str,
    *,
    options: ModelOptions | None = None,
    max_tokens: int | None = None,
    fallbacks: Sequence[str | RemoteModel] = (),
    ledger: Ledger | None = None,
    cache_dir: str | Path | None = None,
    rng: random.Random | None = None,
    **settings: Any,
) -> RemoteModel:
    """Returns the model that ``spec`` names, without connecting to it.

    Args:
        spec: ``local/NAME`` (or ``openai-compatible/NAME``) for a model on an OpenAI-compatible server at
            ``api_base``; otherwise ``PROVIDER/NAME`` as litellm has it.
        options: how the model is reached. Budget, fallbacks and cache are a pool's, and not read here.
        max_tokens: limit on answers, in tokens, for requests that name none.
        fallbacks: models to ask, in this order, when this one fails for good. A name is on the same server (for
            ``local/``) or with the same provider, under the same limits; for anything else give a model.
        ledger: counts every call; its limits hold.
        cache_dir: folder of the response cache; ``None`` for no cache.
        rng: source of the jitter.
        settings: fields of :class:`ModelOptions`, in place of ``options``, such as ``api_base``.

    Raises:
        UnknownNameError: there is no such provider, or no such setting.
        InvalidValueError: another argument is not valid, limits contradict each other, or a key is missing.
    """
    options = options or settings_of(settings, ModelOptions, "")
    limits = Limits(options.concurrency, options.rpm, options.tpm)
    if max_tokens is not None:
        check_whole("max_tokens", max_tokens, 1)
    limits.check_answer(max_tokens)

    def route(name: str) -> Route:
        return Route(
            make_transport(name, options),
            limits=limits,
            retries=options.retry_policy,
            timeout=options.timeout,
            structured=options.structured,
            price=of_model(options.price, name),
            rng=rng,
        )

    routes = [route(spec)]
    for fallback in fallbacks:
        if isinstance(fallback, RemoteModel):
            routes += fallback.routes
        else:
            _check_same_provider(spec, fallback)
            routes.append(route(fallback))
    cache = ResponseCache(cache_dir) if cache_dir is not None else None
    return RemoteModel(routes, max_tokens=max_tokens, structured=options.structured, ledger=ledger, cache=cache)


def _check_same_provider(spec: str, fallback: str) -> None:
    if _prefix(spec) != _prefix(fallback):
        raise InvalidValueError(
            field="fallbacks",
            got=fallback,
            expected=f"a model of the same provider as {spec!r}, or one made by make_model",
        )


def _prefix(spec: str) -> str:
    prefix = spec.partition("/")[0]
    return DIRECT[0] if prefix in DIRECT else prefix


def make_transport(spec: str, options: ModelOptions) -> Transport:
    """Returns the transport to a model; see :func:`make_model`.

    Raises:
        UnknownNameError: there is no such provider.
        InvalidValueError: an option is not valid, or a key is missing.
    """
    key_variable = of_model(options.api_key_env, spec)
    prefix, _, model = spec.partition("/")
    base = _base_url(of_model(options.api_base, spec))
    if prefix not in DIRECT:
        from sotopia_env.chat_model.transports.hosted import HostedTransport

        return HostedTransport(spec, base, key_variable, options.timeout)
    if not model:
        raise InvalidValueError(field="model", expected=f"a name after {prefix + '/'!r}", got=spec)
    if base is None:
        raise InvalidValueError(
            "the server's base URL is not given",
            field="api_base",
            hint=f"{spec!r} needs one, such as 'http://localhost:8000/v1'",
        )
    from sotopia_env.chat_model.transports.direct import DirectTransport

    return DirectTransport(spec, model, base, key_variable, options.concurrency)


def _base_url(api_base: str | None) -> str | None:
    if api_base is None:
        return None
    try:
        parts = urlsplit(api_base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidValueError(field="api_base", expected="a URL such as 'http://localhost:8000/v1'") from None
    if parts.username or parts.password or parts.query:  # not repeated in the message: it may be a secret
        raise InvalidValueError(
            field="api_base", expected="a URL without user, password or query", hint="keys belong in the environment"
        )
    if not usable:
        raise InvalidValueError(field="api_base", expected="a URL such as 'http://localhost:8000/v1'", got=api_base)
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise InvalidValueError(field="api_base", expected="the URL without '/chat/completions'", got=api_base)
    return api_base.rstrip("/")
