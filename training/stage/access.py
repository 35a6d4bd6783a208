"""Access of a stage to language models on servers: addresses and limits as in ``sotopia rollout``, as settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from sotopia_env.chat_model import PATIENCE, ModelOptions, ModelPool, Price, read_patience
from training.stage.settings import Settings


class ModelAccess(Settings):
    """Addresses and limits of language models. API keys are never settings; they are environment variables.

    A mapping from the model's name gives each model its own value.

    Attributes:
        api_base: base URLs, e.g. ``http://localhost:8000/v1``.
        api_key_env: environment variables that hold the keys.
        concurrency: requests in flight at once, per model.
        rpm: requests per minute, per model.
        tpm: tokens per minute, per model.
        timeout: seconds one attempt may take.
        retries: attempts after a failed request.
        patience: how long to wait for a model that answers no call: seconds, or a text such as ``10m``.
        structured: whether servers are asked to enforce the form of answers, agents' and judges': ``auto``, ``on`` or
            ``off``.
        cache_dir: directory of the judges' cached answers.
        max_cost: US dollars that the stage may spend.
        max_tokens: tokens that it may use.
        price: ``PROMPT,COMPLETION`` in US dollars per million tokens, where the list price is missing or wrong.
    """

    api_base: str | dict[str, str] | None = None
    api_key_env: str | dict[str, str] | None = None
    concurrency: int = Field(default=128, ge=1)
    rpm: int | None = Field(default=None, ge=1)
    tpm: int | None = Field(default=None, ge=1)
    timeout: float = Field(default=60.0, gt=0)
    retries: int = Field(default=6, ge=0)
    patience: Annotated[float, BeforeValidator(read_patience)] = PATIENCE
    structured: Literal["auto", "on", "off"] = "auto"
    cache_dir: str | None = None
    max_cost: float | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    price: str | dict[str, str] | None = None

    def models(self) -> ModelPool:
        """Returns what makes the models by name; nothing is connected yet."""
        return ModelPool(
            ModelOptions(
                api_base=self.api_base,
                api_key_env=self.api_key_env,
                concurrency=self.concurrency,
                rpm=self.rpm,
                tpm=self.tpm,
                timeout=self.timeout,
                retries=self.retries,
                patience=self.patience,
                structured=self.structured,
                cache_dir=None if self.cache_dir is None else Path(self.cache_dir),
                max_cost=self.max_cost,
                max_tokens=self.max_tokens,
                price=self._prices(),
            )
        )

    def _prices(self) -> dict[str, Price] | None:
        if self.price is None:
            return None
        prices = {"": self.price} if isinstance(self.price, str) else self.price
        return {model: Price.parse(text) for model, text in prices.items()}


@asynccontextmanager
async def opened(models: ModelPool, directory: Path) -> AsyncIterator[ModelPool]:
    """Finds out whether every model is there, keeps the ledger in ``directory``, and closes all in the end.

    Raises:
        InvalidValueError: nothing answers at a base URL, or a key is not accepted.
        UnknownNameError: a server does not have a model.
        BudgetExceededError: the limit was reached in an earlier run.
    """
    try:
        await models.check()
        models.open(directory)
        yield models
    finally:
        await models.close()
