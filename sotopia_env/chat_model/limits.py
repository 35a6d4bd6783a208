"""Limits on the concurrent requests of one model and its requests and tokens per minute, and their limiter."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Self

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.window import Window
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


class RequestSlot:
    """Permission for one request in flight; reports its outcome to the limiter."""

    __slots__ = ("_estimate", "_is_repeated", "_limiter", "_request", "_sent")

    def __init__(self, limiter: Limiter, request: ChatRequest, is_repeated: bool) -> None:
        self._limiter, self._request, self._is_repeated = limiter, request, is_repeated
        self._sent, self._estimate = 0.0, 0

    # A class instead of a generator-based context manager, which is slower: every request enters one.
    async def __aenter__(self) -> Self:
        self._sent = await self._limiter.window.enter(self._is_repeated)
        if self._limiter.has_rates:
            try:
                self._estimate = await self._limiter.wait_for_rate(self._request)
                self._sent = self._limiter.clock()
            except BaseException:
                self._limiter.window.leave()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._limiter.window.leave()

    def settle(self, reply: ChatReply) -> None:
        """Replaces the estimate by the server's count; tokens that the server does not count stay estimated."""
        self._limiter.window.note_answer(self._sent)
        self._limiter.settle(reply, self._estimate)

    def reject(self, wait: float | None) -> None:
        """Reports that the provider took no further request; ``wait`` is the seconds that it asks to wait."""
        self._limiter.window.note_rejection(self._sent, wait)


class Limiter:
    """Delays requests until they are within the limits.

    Attributes:
        window: the number of requests in flight, adapted to rejections.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        retries: RetryPolicy | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Creates a limiter.

        Args:
            limits: the limits.
            clock: returns the time in seconds.
            sleep: waits for a number of seconds.
            retries: the policy with the pauses after a rejection.
            rng: the source of random jitter.
        """
        retries = retries or RetryPolicy()
        self.window = Window(limits.concurrency, base=retries.base, cap=retries.cap, rng=rng, clock=clock, sleep=sleep)
        self._limits, self.clock = limits, clock
        self._requests = Bucket(limits.rpm, clock) if limits.rpm else None
        self._tokens = Bucket(limits.tpm, clock) if limits.tpm else None
        self._sleep = sleep

    @property
    def has_rates(self) -> bool:
        """Whether requests or tokens per minute are limited."""
        return self._requests is not None or self._tokens is not None

    def slot(self, request: ChatRequest, is_repeated: bool = False) -> AbstractAsyncContextManager[RequestSlot]:
        """Waits for a free slot and for the limits per minute, and occupies the slot.

        A failed attempt counts towards the limits per minute, as it does on servers.

        Args:
            request: the request.
            is_repeated: whether the provider rejected the request before; see :meth:`Window.enter`.
        """
        return RequestSlot(self, request, is_repeated)

    async def wait_for_rate(self, request: ChatRequest) -> int:
        """Waits for the limits per minute, and returns the estimated number of tokens in the prompt."""
        estimate = self._limits.check_prompt(request)
        amounts = [(bucket, amount) for bucket, amount in ((self._requests, 1), (self._tokens, estimate)) if bucket]
        wait = max(bucket.take(amount) for bucket, amount in amounts)
        if wait > 0:
            try:
                await self._sleep(wait)
            except asyncio.CancelledError:
                for bucket, amount in amounts:
                    bucket.give_back(amount)
                raise
        return estimate

    def settle(self, reply: ChatReply, estimate: int) -> None:
        """Replaces an estimate of tokens by the server's count."""
        if self._tokens is not None:
            prompt = estimate if reply.prompt_tokens is None else reply.prompt_tokens
            answer = -(-len(reply.reasoning + reply.text) // _CHARACTERS_PER_TOKEN)
            answer = answer if reply.completion_tokens is None else reply.completion_tokens
            self._tokens.give_back(estimate - prompt - answer)


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
