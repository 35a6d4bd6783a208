"""How a stage reaches language models on servers: the limits and addresses of ``sotopia rollout``, as settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import Field

from sotopia_env.chat_model import Price
from sotopia_env.chat_model.pool import ModelOptions, RunModels, parse_prices
from training.stage.settings import Settings


class ModelAccess(Settings):
    """Where models are, and what they may spend. Keys are never settings: they stand in the environment.

    Where a value may differ from model to model it is a mapping from the model's name.

    Attributes:
        api_base: base URLs, e.g. ``http://localhost:8000/v1``.
        api_key_env: environment variables that hold the keys.
        concurrency: requests in flight at once, per model.
        rpm: requests per minute, per model.
        tpm: tokens per minute, per model.
        timeout: seconds one attempt may take.
        retries: how often a request is sent again.
        cache_dir: where judges' answers are kept.
        max_cost: US dollars that the stage may spend.
        max_tokens: tokens that it may use.
        price: ``PROMPT,COMPLETION`` in US dollars per million tokens, where it is not known or not right.
    """

    api_base: str | dict[str, str] | None = None
    api_key_env: str | dict[str, str] | None = None
    concurrency: int = Field(default=128, ge=1)
    rpm: int | None = Field(default=None, ge=1)
    tpm: int | None = Field(default=None, ge=1)
    timeout: float = Field(default=60.0, gt=0)
    retries: int = Field(default=6, ge=0)
    cache_dir: str | None = None
    max_cost: float | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    price: str | dict[str, str] | None = None

    def models(self) -> RunModels:
        """Returns what makes the models by name; nothing is connected yet."""
        return RunModels(
            ModelOptions(
                api_base=self.api_base,
                api_key_env=self.api_key_env,
                concurrency=self.concurrency,
                rpm=self.rpm,
                tpm=self.tpm,
                timeout=self.timeout,
                retries=self.retries,
                cache_dir=None if self.cache_dir is None else Path(self.cache_dir),
                max_cost=self.max_cost,
                max_tokens=self.max_tokens,
                price=self._prices(),
            )
        )

    def _prices(self) -> dict[str, Price] | None:
        if self.price is None:
            return None
        given = {"": self.price} if isinstance(self.price, str) else self.price
        return parse_prices([f"{model}={text}" if model else text for model, text in given.items()])


@asynccontextmanager
async def opened(models: RunModels, directory: Path) -> AsyncIterator[RunModels]:
    """Finds out whether every model is there, keeps the ledger in ``directory``, and closes all in the end.

    Raises:
        InvalidValueError: nothing answers at a base URL, or a key is not accepted.
        UnknownNameError: a server does not have a model.
        BudgetExceededError: the limit was reached before.
    """
    try:
        await models.check()
        models.open(directory)
        yield models
    finally:
        await models.close()


__all__ = ["ModelAccess", "opened"]
