"""Access of a stage to language models on servers: addresses and limits as in ``sotopia rollout``, as settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field

from sotopia_env.chat_model import PATIENCE, ModelOptions, ModelPool, Price, read_patience
from sotopia_env.concurrency import Progress, Stop, stop_on_signals, work_through
from sotopia_env.errors import BudgetExceededError
from training.stage.settings import Settings

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


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


def work_with_models(
    items: Iterable[_T],
    work: Callable[[_T], Awaitable[bool]],
    models: ModelPool,
    directory: Path,
    progress: Progress,
    concurrency: int,
) -> None:
    """Does :func:`~sotopia_env.concurrency.work_through` with the models opened; what is done by then is kept.

    Raises:
        BudgetExceededError: the limit is reached.
        ModelRefusedError: a model refuses every request.
        KeyboardInterrupt: a signal asked for the end.
    """
    stop = Stop()

    async def open_work_close() -> None:
        async with opened(models, directory):
            await work_through(items, work, stop, progress, concurrency)

    with stop_on_signals(stop, logger.warning):
        asyncio.run(open_work_close())
    if isinstance(stop.failure, BudgetExceededError):
        raise BudgetExceededError(f"{stop.failure}; what was done is kept; run it again with a higher limit")
    if stop.failure is not None:
        raise stop.failure
    if stop.reason:
        raise stop.interruption
