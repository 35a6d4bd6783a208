"""Limits on the concurrent requests of one model and its requests and tokens per minute, and their limiter."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.foundation.errors import BudgetExceededError, InvalidValueError, check_whole

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
# The upper bound on a prompt counts a token for every two bytes of UTF-8, about twice what tokenizers give for English.
BYTES_PER_TOKEN = 2
_FRAME = 8  # upper bound on the tokens of a chat template around one message


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the requests to one model.

    Attributes:
        concurrency: the number of requests in flight at once.
        rpm: requests per minute; ``None`` for no limit.
        tpm: tokens per minute, of prompts and answers; ``None`` for no limit.
    """

    concurrency: int = 128
    rpm: int | None = None
    tpm: int | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "rpm", "tpm"):
            value = getattr(self, name)
            if value is not None or name == "concurrency":
                check_whole(name, value, 1)
        if self.rpm and self.tpm and self.tpm < self.rpm:
            raise InvalidValueError(
                field="tpm", expected=f"at least a token for each of rpm {self.rpm} requests", got=self.tpm
            )

    def check_answer(self, max_tokens: int | None) -> None:
        """Raises :class:`InvalidValueError` if one answer may have more tokens than the limit per minute."""
        if max_tokens is not None and self.tpm is not None and max_tokens > self.tpm:
            raise InvalidValueError(
                field="max_tokens", expected=f"an answer of no more than tpm {self.tpm} allows", got=max_tokens
            )

    def check_prompt(self, request: ChatRequest) -> int:
        """Returns the approximate number of tokens in a prompt, or 0 without a limit on tokens per minute.

        Raises:
            BudgetExceededError: the prompt has more tokens than the limit per minute.
        """
        estimate = 0 if self.tpm is None else estimate_tokens(request)
        if self.tpm is not None and estimate > self.tpm:
            raise BudgetExceededError(
                f"tpm: one prompt has about {estimate} tokens, more than {self.tpm}; nothing is sent"
            )
        return estimate


class Bucket:
    """A token bucket that may go into debt, which shrinks by ``per_minute / 60`` per second.

    A caller waits until all earlier debt is paid, first come, first served. Unused capacity is not saved up: no minute
    has more than ``per_minute`` requests (or tokens, plus the tokens of one request).
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60.0
        self._clock = clock
        self._paid_at = clock()

    def take(self, amount: float) -> float:
        """Takes ``amount`` and returns the seconds to wait before using it."""
        now = self._clock()
        # ``_paid_at`` in the past is unused capacity; ``max`` discards it, so that no burst can follow an idle time.
        start = max(now, self._paid_at)
        self._paid_at = start + amount / self._rate
        return start - now

    def give_back(self, amount: float) -> None:
        """Returns an amount that was not needed; a negative one takes more."""
        self._paid_at -= amount / self._rate


@dataclass(slots=True)
class RequestSlot:
    """Permission for one request in flight; reports the tokens of the answer to the limiter."""

    tokens: Bucket | None
    estimate: int

    def settle(self, reply: ChatReply) -> None:
        """Replaces the estimate by the server's count; tokens that the server does not count stay estimated."""
        if self.tokens is not None:
            prompt = self.estimate if reply.prompt_tokens is None else reply.prompt_tokens
            answer = -(-len(reply.reasoning + reply.text) // _CHARACTERS_PER_TOKEN)
            answer = answer if reply.completion_tokens is None else reply.completion_tokens
            self.tokens.give_back(self.estimate - prompt - answer)


class _PlainSlot:
    """A slot without limits per minute. This is the common case, so it avoids a generator-based context manager."""

    __slots__ = ("_semaphore",)

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore = semaphore

    async def __aenter__(self) -> RequestSlot:
        await self._semaphore.acquire()
        return _NO_ESTIMATE

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()


_NO_ESTIMATE = RequestSlot(None, 0)


class Limiter:
    """Delays requests until they are within the limits."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limits = limits
        self._requests = Bucket(limits.rpm, clock) if limits.rpm else None
        self._tokens = Bucket(limits.tpm, clock) if limits.tpm else None
        self._sleep = sleep
        self._semaphore: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def slot(self, request: ChatRequest) -> AbstractAsyncContextManager[RequestSlot]:
        """Waits for a free slot and for the limits per minute, and occupies the slot.

        A failed attempt counts towards the limits per minute, as it does on servers.
        """
        return self._slot_with_rate(request) if self._requests or self._tokens else _PlainSlot(self._slots())

    @asynccontextmanager
    async def _slot_with_rate(self, request: ChatRequest) -> AsyncIterator[RequestSlot]:
        async with self._slots():
            estimate = self._limits.check_prompt(request)
            await self._wait_for_rate(estimate)
            yield RequestSlot(self._tokens, estimate)

    async def _wait_for_rate(self, estimate: int) -> None:
        amounts = [(bucket, amount) for bucket, amount in ((self._requests, 1), (self._tokens, estimate)) if bucket]
        wait = max(bucket.take(amount) for bucket, amount in amounts)
        if wait <= 0:
            return
        try:
            await self._sleep(wait)
        except asyncio.CancelledError:
            for bucket, amount in amounts:
                bucket.give_back(amount)
            raise

    def _slots(self) -> asyncio.Semaphore:
        # An asyncio semaphore belongs to one event loop, but a model may be used in several loops one after another.
        loop = asyncio.get_running_loop()
        if self._semaphore is None or self._loop is not loop:
            self._semaphore, self._loop = asyncio.Semaphore(self._limits.concurrency), loop
        return self._semaphore


def estimate_tokens(request: ChatRequest) -> int:
    """Returns an estimate of the tokens in the prompt: a quarter of its characters, plus 4 for each message."""
    characters = sum(len(text) for text in _texts(request))
    return characters // _CHARACTERS_PER_TOKEN + _TOKENS_PER_MESSAGE * len(request.messages)


def most_tokens(request: ChatRequest) -> int:
    """Returns an upper bound on the tokens in nearly any prompt: one for every two bytes, plus 8 for each message."""
    size = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in _texts(request))
    # Some providers bill the schema as part of the prompt.
    size += 0 if request.schema is None else len(json.dumps(request.schema))
    return size // BYTES_PER_TOKEN + _FRAME * len(request.messages)


def _texts(request: ChatRequest) -> Iterator[str]:
    """Yields all texts of a request that are billed as part of the prompt."""
    for message in request.messages:
        yield message["content"]
        yield from (call["function"]["arguments"] for call in message.get("tool_calls", ()))
    if request.tools:
        yield json.dumps(request.tools)
