"""Connection options and limits of language models, shared by the command line, runs and training stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, JsonValue, PlainSerializer

from sotopia_env.chat_model.retries import RetryPolicy, read_patience
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.spending.ledger import Totals
from sotopia_env.chat_model.transports.form import RESERVED, Structured
from sotopia_env.foundation.errors import InvalidValueError, Verbatim, check_whole
from sotopia_env.foundation.settings import Settings

EVERY = ""
"""The key of the value for every model without its own."""
_T = TypeVar("_T")


def _by_model(value: Any) -> Any:
    """Returns a single value as a mapping with the key :data:`EVERY`."""
    return {} if value is None else value if isinstance(value, Mapping) else {EVERY: value}


def _switch(value: Any) -> Any:
    """Returns ``on`` or ``off`` for a truth value, since YAML 1.1 reads these words as booleans."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _price(value: Any) -> Any:
    return Price.parse(value) if isinstance(value, str) else value


def _retries(value: Any) -> Any:
    if not isinstance(value, int):
        return value
    check_whole("", value, 0)  # without a name: the error is reported under the name of the field
    return RetryPolicy(value)


def _body(value: Any) -> Any:
    """Returns one mapping of fields, for every model, as a mapping by model."""
    if not value or not isinstance(value, Mapping):
        return {} if value is None else value
    # Names of models contain a slash, and fields of a request do not.
    by_model = all(isinstance(key, str) and ("/" in key or key == EVERY) for key in value)
    bodies = value if by_model else {EVERY: value}
    for fields in bodies.values():
        for name in fields if isinstance(fields, Mapping) else ():
            if name in RESERVED:
                raise InvalidValueError(
                    f"{name!r} is set by this package", hint="use the policy's own setting, or leave it out"
                )
            if "key" in str(name).lower() or str(name).lower() == "token":
                raise InvalidValueError(f"{name!r} looks like a secret", hint="name its variable in models.api_key_env")
    return bodies


def _query(value: Any) -> Any:
    for name in value if isinstance(value, Mapping) else ():
        _check_public(str(name))
    return value


def _check_public(name: str) -> None:
    words = name.lower().replace("-", "_").split("_")
    if {"key", "apikey", "secret", "password", "token", "signature", "sig"} & set(words):
        raise InvalidValueError(
            f"{name!r} looks like a secret",
            hint="settings are written to records: name a variable in models.api_key_env or models.header_env",
        )


def _headers(value: Any) -> Any:
    for name, variable in value.items() if isinstance(value, Mapping) else ():
        if str(name).lower() in ("authorization", "content-type", "x-request-id", "host", "content-length"):
            raise InvalidValueError(f"the header {name!r} is set by this package")
        if not str(variable).isidentifier():
            raise InvalidValueError(
                f"the header {name!r} needs the name of an environment variable",
                hint="values of headers are never written to settings, since they may be secret",
            )
    return value


Bodies = Annotated[Mapping[str, Mapping[str, JsonValue]], BeforeValidator(_body)]
PriceText = Annotated[Price, BeforeValidator(_price), PlainSerializer(Price.text, return_type=str, when_used="json")]
"""A price, written as ``PROMPT,COMPLETION`` in files."""
Texts = Annotated[Mapping[str, str], BeforeValidator(_by_model)]
Prices = Annotated[Mapping[str, PriceText], BeforeValidator(_by_model)]


class ModelOptions(Settings):
    """Connection options and limits of the models of a run or of a training stage.

    A value that may differ between models is a mapping from the model's name, with the key :data:`EVERY` for all other
    models; a single value applies to every model. API keys are never options, but environment variables.

    Attributes:
        api_base: the base URLs, such as ``http://localhost:8000/v1``.
        api_key_env: the environment variables that hold the keys. A model with its own address (a judge's
            ``api_base=``) does not get the key for every model, only a key that is given for it by name.
        concurrency: the number of requests in flight at once, per model.
        rpm: requests per minute, per model; ``None`` for no limit.
        tpm: tokens per minute, per model; ``None`` for no limit.
        timeout: seconds that one attempt may take.
        retries: how often a failed request is sent again, or a complete retry policy.
        patience: how long to wait for an unresponsive model: seconds, or a text such as ``10m``; ``None`` uses the
            value in ``retries``, by default 10 minutes.
        fallbacks: the models to call, in this order, when one fails for good. If a model has its own address (a
            judge's ``api_base=``), fallbacks of the same provider are called at that address, with its key, unless
            ``api_base`` gives their address.
        structured: ``auto`` asks servers to enforce a request's schema; if a server refuses, it asks for a JSON object
            with the schema in the prompt, and finally for plain text. ``on`` requires enforcement, ``off`` never asks.
        cache_dir: the directory of judges' cached answers; ``None`` for no cache. Agents' answers are never cached.
        max_cost: US dollars that the whole run may spend.
        max_tokens: tokens that the whole run may use.
        price: the price of tokens if the list price is missing or wrong: ``PROMPT,COMPLETION`` in US dollars per
            million.
        extra_body: more fields for the body of every request, such as ``{"top_p": 0.9, "reasoning_effort": "low"}`` or
            ``{"chat_template_kwargs": {"enable_thinking": False}}``; or a mapping of these by model. They are part of
            a model's parameters, and so of run and cache.
        header_env: more headers, each with the environment variable that holds its value. A model with its own address
            (a judge's ``api_base=``) does not get them.
        query: parameters of the URL's query, such as ``{"api-version": "2024-10-21"}``; for ``local/`` models only.
    """

    api_base: Texts = Field(default_factory=dict)
    api_key_env: Texts = Field(default_factory=dict)
    concurrency: int = Field(default=128, ge=1)
    rpm: int | None = Field(default=None, ge=1)
    tpm: int | None = Field(default=None, ge=1)
    timeout: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    retries: Annotated[RetryPolicy, BeforeValidator(_retries)] = RetryPolicy()
    patience: Annotated[float, BeforeValidator(read_patience)] | None = None
    fallbacks: tuple[str, ...] = ()
    structured: Annotated[Structured, BeforeValidator(_switch)] = "auto"
    cache_dir: Path | None = None
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    price: Prices = Field(default_factory=dict)
    extra_body: Bodies = Field(default_factory=dict)
    header_env: Annotated[Mapping[str, str], BeforeValidator(_headers)] = Field(default_factory=dict)
    query: Annotated[Mapping[str, str], BeforeValidator(_query)] = Field(default_factory=dict)

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy for failed requests, with ``patience`` applied."""
        return self.retries if self.patience is None else replace(self.retries, patience=self.patience)

    def share(self, count: int, spent: Totals) -> ModelOptions:
        """Returns the options of one of ``count`` processes: an equal part of the limits and of the remaining budget.

        ``spent`` must be below the limits. The possible use of interrupted calls counts as spent.
        """
        cost = None if self.max_cost is None else (self.max_cost - spent.cost - spent.doubtful_cost) / count
        left = None if self.max_tokens is None else self.max_tokens - spent.tokens - spent.doubtful_tokens
        # A limit of 0 is invalid, so every process gets at least 1.
        tokens = None if left is None else max(1, left // count)
        rpm, tpm = (limit and max(1, limit // count) for limit in (self.rpm, self.tpm))
        concurrency = max(1, self.concurrency // count)
        limits = {"concurrency": concurrency, "max_cost": cost, "max_tokens": tokens, "rpm": rpm, "tpm": tpm}
        return self.model_copy(update=limits)

    def check_divisible(self, count: int, longest: int = 0, field: str = "workers") -> None:
        """Raises :class:`InvalidValueError` if ``count`` processes would exceed a limit with one request each.

        Args:
            count: the number of processes.
            longest: the maximum number of tokens in one answer.
            field: the name of the setting with the count, for the message.
        """
        for limit_name, limit in (("model concurrency", self.concurrency), ("rpm", self.rpm), ("tpm", self.tpm)):
            if limit is not None and limit < count:
                raise InvalidValueError(field=field, expected=f"no more than {limit_name}, which is {limit}", got=count)
        if self.tpm is not None and self.tpm // count < longest:
            raise InvalidValueError(
                field=field,
                expected=f"a share of tpm of at least max_tokens {longest} for each",
                got=Verbatim(f"{self.tpm // count} of {self.tpm} for each of {count}"),
            )


def of_model(option: Mapping[str, _T], model: str) -> _T | None:
    """Returns the value of an option for a model: its own, or that for every model."""
    return option.get(model, option.get(EVERY))
