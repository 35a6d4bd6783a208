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
from sotopia_env.chat_model.transports.keys import read_headers
from sotopia_env.chat_model.transports.transport import Extras, Transport
from sotopia_env.foundation.errors import InvalidValueError, check_whole
from sotopia_env.foundation.settings import settings_of

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
            ``api_base``; otherwise ``PROVIDER/NAME`` as in litellm.
        options: the connection options and limits of the model. Budget, fallbacks and cache are not read from here:
            they belong to a pool.
        max_tokens: the limit on answers, in tokens, for requests without their own limit.
        fallbacks: the models to call, in this order, when this one fails for good. A name must be on the same server
            (for ``local/``) or of the same provider, with the same limits; pass a model for anything else.
        ledger: records every call and enforces its limits.
        cache_dir: the directory of the response cache; ``None`` for no cache.
        rng: the source of random jitter.
        settings: fields of :class:`ModelOptions`, such as ``api_base``, instead of ``options``.

    Raises:
        UnknownNameError: the provider or a setting is unknown.
        InvalidValueError: another argument is invalid, limits contradict each other, or a key is missing.
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
            extras={
                "extra_body": dict(of_model(options.extra_body, name) or {}),
                "header_env": dict(options.header_env),
                "query": dict(options.query),
            },
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
        UnknownNameError: the provider is unknown.
        InvalidValueError: an option is invalid, or a key is missing.
    """
    key_variable = of_model(options.api_key_env, spec)
    prefix, _, model = spec.partition("/")
    base = _base_url(of_model(options.api_base, spec))
    extras = Extras(of_model(options.extra_body, spec) or {}, read_headers(options.header_env), options.query)
    # Each transport imports its HTTP client, so only the one that is needed is imported.
    if prefix not in DIRECT:
        if options.query:
            hint = "litellm does not pass it on; for Azure, it reads AZURE_API_VERSION"
            raise InvalidValueError(field="query", expected="only local/ models with it", got=spec, hint=hint)
        from sotopia_env.chat_model.transports.hosted import HostedTransport

        return HostedTransport(spec, base, key_variable, options.timeout, extras)
    if not model:
        raise InvalidValueError(field="model", expected=f"a name after {prefix + '/'!r}", got=spec)
    if base is None:
        raise InvalidValueError(
            "the server's base URL is missing",
            field="api_base",
            hint=f"{spec!r} needs one, such as 'http://localhost:8000/v1'",
        )
    from sotopia_env.chat_model.transports.direct import DirectTransport

    return DirectTransport(spec, model, base, key_variable, options.concurrency, extras)


def _base_url(api_base: str | None) -> str | None:
    if api_base is None:
        return None
    try:
        parts = urlsplit(api_base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidValueError(field="api_base", expected="a URL such as 'http://localhost:8000/v1'") from None
    # The message must not contain the URL, since its user, password or query may be secret.
    if parts.username or parts.password or parts.query:
        raise InvalidValueError(
            field="api_base", expected="a URL without user, password or query", hint="keys belong in the environment"
        )
    if not usable:
        raise InvalidValueError(field="api_base", expected="a URL such as 'http://localhost:8000/v1'", got=api_base)
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise InvalidValueError(field="api_base", expected="the URL without '/chat/completions'", got=api_base)
    return api_base.rstrip("/")
