"""The record of how language models are reached and what they may spend: of a command line, a run and a stage alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer

from sotopia_env.chat_model.retries import RetryPolicy, read_patience
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.spending.ledger import Totals
from sotopia_env.chat_model.transports.form import Structured
from sotopia_env.errors import InvalidValueError, Verbatim, check_whole
from sotopia_env.settings import Settings

EVERY = ""
"""Key of the value for every model that is not named."""
_T = TypeVar("_T")


def _by_model(value: Any) -> Any:
    """A value for every model as a mapping."""
    return {} if value is None else value if isinstance(value, Mapping) else {EVERY: value}


def _switch(value: Any) -> Any:
    """``on`` and ``off`` are truth values in YAML."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _price(value: Any) -> Any:
    return Price.parse(value) if isinstance(value, str) else value


def _retries(value: Any) -> Any:
    if not isinstance(value, int):
        return value
    check_whole("", value, 0)  # without a name of its own: it is the field that holds it
    return RetryPolicy(value)


PriceText = Annotated[Price, BeforeValidator(_price), PlainSerializer(Price.text, return_type=str, when_used="json")]
"""A price, which is ``PROMPT,COMPLETION`` in files."""
Texts = Annotated[Mapping[str, str], BeforeValidator(_by_model)]
Prices = Annotated[Mapping[str, PriceText], BeforeValidator(_by_model)]


class ModelOptions(Settings):
    """How the models of a run or of a stage are reached, and what they may spend.

    Where a value may differ from model to model it is a mapping from the model's name, with :data:`EVERY` for the rest;
    a single value is for every model.
    API keys are never options; they are environment variables.

    Attributes:
        api_base: base URLs, such as ``http://localhost:8000/v1``.
        api_key_env: environment variables that hold the keys. The one for every model is not used for a model with an
            address of its own (a judge's ``api_base=``), which gets a key only if it is named.
        concurrency: requests in flight at once, per model.
        rpm: requests per minute, per model; ``None`` for no limit.
        tpm: tokens per minute, per model; ``None`` for no limit.
        timeout: seconds one attempt may take.
        retries: how often a failed request is sent again, or a whole policy.
        patience: how long to wait for an unresponsive model: seconds, or a text such as ``10m``; ``None`` is what
            ``retries`` says, 10 minutes by default.
        fallbacks: models to ask, in this order, when one fails for good. Where a model has an address of its own (a
            judge's ``api_base=``), fallbacks of its provider are asked there too, with its key, unless ``api_base``
            names them.
        structured: ``auto`` asks servers to enforce a request's schema; where one refuses, for a JSON object, with the
            schema in the prompt, and else does without. ``on`` insists, ``off`` never asks.
        cache_dir: directory of judges' cached answers; ``None`` for no cache. Agents' answers are never cached.
        max_cost: US dollars that the whole run may spend.
        max_tokens: tokens that the whole run may use.
        price: of tokens, where the list price is missing or wrong: ``PROMPT,COMPLETION`` in US dollars per million.
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

    @property
    def retry_policy(self) -> RetryPolicy:
        """How failed requests are sent again."""
        return self.retries if self.patience is None else replace(self.retries, patience=self.patience)

    def share(self, count: int, spent: Totals) -> ModelOptions:
        """Returns what one of ``count`` processes may use: an equal part of the limits and of what is left to spend.

        ``spent`` must be below the limits; what interrupted calls may have used is not left.
        """
        cost = None if self.max_cost is None else (self.max_cost - spent.cost - spent.doubtful_cost) / count
        left = None if self.max_tokens is None else self.max_tokens - spent.tokens - spent.doubtful_tokens
        tokens = None if left is None else max(1, left // count)
        rpm, tpm = (limit and max(1, limit // count) for limit in (self.rpm, self.tpm))
        concurrency = max(1, self.concurrency // count)
        limits = {"concurrency": concurrency, "max_cost": cost, "max_tokens": tokens, "rpm": rpm, "tpm": tpm}
        return self.model_copy(update=limits)

    def check_divisible(self, count: int, longest: int = 0, field: str = "workers") -> None:
        """Raises :class:`InvalidValueError` if ``count`` processes would exceed a limit with one request each.

        Args:
            count: of the processes.
            longest: tokens that one answer may have.
            field: that gives the count, in the message.
        """
        for limit_name, limit in (("model concurrency", self.concurrency), ("rpm", self.rpm), ("tpm", self.tpm)):
            if limit is not None and limit < count:
                raise InvalidValueError(field=field, expected=f"no more than {limit_name}, which is {limit}", got=count)
        if self.tpm is not None and self.tpm // count < longest:
            raise InvalidValueError(
                field=field,
                expected=f"a part of tpm for each that holds an answer of max_tokens {longest}",
                got=Verbatim(f"{self.tpm // count} of {self.tpm} for each of {count}"),
            )


def of_model(option: Mapping[str, _T], model: str) -> _T | None:
    """Returns the value of an option for a model: its own, or that of every model."""
    return option.get(model, option.get(EVERY))
