"""Construction of a model from its name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from sotopia_env.chat_model.cache import ResponseCache
from sotopia_env.chat_model.limits import Limits
from sotopia_env.chat_model.remote import RemoteModel
from sotopia_env.chat_model.retries import PATIENCE, RetryPolicy
from sotopia_env.chat_model.route import Route
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.chat_model.transports.attempt import Transport
from sotopia_env.chat_model.transports.form import Structured
from sotopia_env.errors import InvalidValueError, check_whole

DIRECT = ("local", "openai-compatible")
"""Prefixes of models on OpenAI-compatible servers; every other prefix is one of litellm's providers."""


def make_model(
    spec: str,
    *,
    api_base: str | None = None,
    api_key_env: str | None = None,
    concurrency: int = 128,
    rpm: int | None = None,
    tpm: int | None = None,
    timeout: float = 60.0,
    retries: int | RetryPolicy = 6,
    patience: float = PATIENCE,
    max_tokens: int | None = None,
    fallbacks: Sequence[str | RemoteModel] = (),
    ledger: Ledger | None = None,
    cache_dir: str | Path | None = None,
    structured: Structured = "auto",
    price: Price | None = None,
    rng: random.Random | None = None,
) -> RemoteModel:
    """Returns the model that ``spec`` names, without connecting to it.

    Args:
        spec: ``local/NAME`` (or ``openai-compatible/NAME``) for a model on an OpenAI-compatible server at
            ``api_base``; otherwise ``PROVIDER/NAME`` as litellm has it.
        api_base: base URL, such as ``http://localhost:8000/v1``.
        api_key_env: environment variable that holds the key. By default the provider's own; for a server of the
            user's, ``OPENAI_COMPATIBLE_API_KEY`` if it is set.
        concurrency: requests in flight at once.
        rpm: requests per minute.
        tpm: tokens per minute.
        timeout: seconds one attempt may take.
        retries: how often a request is sent again, or a whole policy.
        patience: seconds to wait for a model that answers no call, unless ``retries`` is a whole policy.
        max_tokens: limit on answers, in tokens, for requests that name none.
        fallbacks: models to ask, in this order, when this one fails for good. A name is on the same server (for
            ``local/``) or with the same provider, under the same limits; for anything else give a model.
        ledger: counts every call; its limits hold.
        cache_dir: folder of the response cache; ``None`` for no cache.
        structured: ``auto`` asks the server to enforce a request's schema; where it refuses, for a JSON object, with
            the schema in the prompt, and else goes without. ``on`` insists, ``off`` never asks.
        price: cost of tokens, where litellm does not know it or is wrong.
        rng: source of the jitter.

    Raises:
        UnknownNameError: there is no such provider.
        InvalidValueError: another argument is not valid, limits contradict each other, or a key is missing.
    """
    limits = Limits(concurrency, rpm, tpm)
    if max_tokens is not None:
        check_whole("max_tokens", max_tokens, 1)
    limits.check_answer(max_tokens)
    policy = retries if isinstance(retries, RetryPolicy) else RetryPolicy(retries, patience=patience)

    def route(name: str) -> Route:
        transport = make_transport(name, api_base, api_key_env, timeout, concurrency)
        return Route(
            transport, limits=limits, retries=policy, timeout=timeout, structured=structured, price=price, rng=rng
        )

    routes = [route(spec)]
    for fallback in fallbacks:
        if isinstance(fallback, RemoteModel):
            routes += fallback.routes
        else:
            _check_same_provider(spec, fallback)
            routes.append(route(fallback))
    cache = ResponseCache(cache_dir) if cache_dir is not None else None
    return RemoteModel(routes, max_tokens=max_tokens, structured=structured, ledger=ledger, cache=cache)


def _check_same_provider(spec: str, fallback: str) -> None:
    if _prefix(spec) != _prefix(fallback):
        raise InvalidValueError(
            f"fallback {fallback!r}: expected a model of the same provider as {spec!r}, or one made by make_model"
        )


def _prefix(spec: str) -> str:
    prefix = spec.partition("/")[0]
    return DIRECT[0] if prefix in DIRECT else prefix


def make_transport(
    spec: str, api_base: str | None, key_variable: str | None, timeout: float, concurrency: int
) -> Transport:
    """Returns the transport to a model; see :func:`make_model`.

    Args:
        spec: the model.
        api_base: base URL of its server.
        key_variable: environment variable that holds the key.
        timeout: seconds an attempt may take.
        concurrency: connections at once.

    Raises:
        UnknownNameError: there is no such provider.
        InvalidValueError: another argument is not valid, or a key is missing.
    """
    prefix, _, model = spec.partition("/")
    base = _base_url(api_base)
    if prefix not in DIRECT:
        from sotopia_env.chat_model.transports.hosted import HostedTransport

        return HostedTransport(spec, base, key_variable, timeout)
    if not model:
        raise InvalidValueError(f"model {spec!r}: expected a name after {prefix + '/'!r}")
    if base is None:
        raise InvalidValueError(
            f"model {spec!r}: expected the server's base URL in api_base, such as 'http://localhost:8000/v1', got none"
        )
    from sotopia_env.chat_model.transports.direct import DirectTransport

    return DirectTransport(spec, model, base, key_variable, concurrency)


def _base_url(api_base: str | None) -> str | None:
    if api_base is None:
        return None
    try:
        parts = urlsplit(api_base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidValueError("api_base: expected a URL such as 'http://localhost:8000/v1', got no URL") from None
    if parts.username or parts.password or parts.query:  # not repeated in the message: it may be a secret
        raise InvalidValueError(
            "api_base: expected a URL without user, password or query; keys belong in the environment"
        )
    if not usable:
        raise InvalidValueError(f"api_base: expected a URL such as 'http://localhost:8000/v1', got {api_base!r}")
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise InvalidValueError(f"api_base: expected the URL without '/chat/completions', got {api_base!r}")
    return api_base.rstrip("/")
