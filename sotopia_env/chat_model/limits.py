"""How many requests, and how many tokens, may go to one model: at once and per minute."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.errors import InvalidValueError

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
BYTES_PER_TOKEN = 2
"""Of UTF-8 text, at least: about twice as many tokens as tokenizers find in English."""
_FRAME = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What one model may be asked.

    Attributes:
        concurrency: requests in flight at once.
        rpm: requests per minute; ``None`` for no limit.
        tpm: tokens per minute, prompt and answer; ``None`` for no limit.
    """

    concurrency: int = 128
    rpm: int | None = None
    tpm: int | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "rpm", "tpm"):
            value = getattr(self, name)
            if value is None and name != "concurrency":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidValueError(f"{name}: expected a whole number, 1 or more, got {value!r}")
        if self.rpm and self.tpm and self.tpm < self.rpm:
            raise InvalidValueError(
                f"limits contradict each other: tpm {self.tpm} is less than a token for each of rpm {self.rpm} requests"
            )

    def check_answer(self, max_tokens: int | None) -> None:
        """Raises :class:`InvalidValueError` if one answer may be longer than a minute's tokens."""
        if max_tokens is not None and self.tpm is not None and max_tokens > self.tpm:
            raise InvalidValueError(
                f"limits contradict each other: an answer of max_tokens {max_tokens} is more than tpm {self.tpm} allows"
            )


class Bucket:
    """A token bucket that may go into debt: what is taken is paid back at ``per_minute / 60`` a second.

    Whoever finds it in debt waits until it is paid. It never holds a surplus, so no minute sees more than
    ``per_minute`` requests (or tokens, plus one request's), and waiters come out in the order they came in.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60.0
        self._clock = clock
        self._paid_at = clock()

    def take(self, amount: float) -> float:
        """Takes ``amount`` and returns the seconds to wait before using it."""
        now = self._clock()
        start = max(now, self._paid_at)
        self._paid_at = start + amount / self._rate
        return start - now

    def give_back(self, amount: float) -> None:
        """Returns what was taken too much; a negative amount takes more."""
        self._paid_at -= amount / self._rate


@dataclass(slots=True)
class Slot:
    """A place for one request in flight; tells the limiter what the answer used."""

    tokens: Bucket | None
    estimate: int

    def used(self, reply: ChatReply) -> None:
        """Replaces the estimate by the server's count."""
        if self.tokens is not None:
            self.tokens.give_back(self.estimate - reply.prompt_tokens - reply.completion_tokens)


class _Place:
    """A place where no minute has a limit: by far the most, so it costs as little as it can."""

    __slots__ = ("_places",)

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places

    async def __aenter__(self) -> Slot:
        await self._places.acquire()
        return _UNCOUNTED

    async def __aexit__(self, *_: object) -> None:
        self._places.release()


_UNCOUNTED = Slot(None, 0)


class Limiter:
    """Holds requests back until they are within the limits."""

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
        self._places: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def slot(self, request: ChatRequest) -> AbstractAsyncContextManager[Slot]:
        """Waits for a place and for the minute's limits, and holds the place.

        An attempt that fails keeps what it took of the minute: servers count it too.
        """
        return self._paced(request) if self._requests or self._tokens else _Place(self._semaphore())

    @asynccontextmanager
    async def _paced(self, request: ChatRequest) -> AsyncIterator[Slot]:
        async with self._semaphore():
            estimate = estimate_tokens(request) if self._tokens else 0
            if self._limits.tpm is not None and estimate > self._limits.tpm:
                raise InvalidValueError(
                    f"tpm: expected at least the tokens of one prompt (about {estimate}), got {self._limits.tpm}"
                )
            await self._pace(estimate)
            yield Slot(self._tokens, estimate)

    async def _pace(self, estimate: int) -> None:
        taken = [(bucket, amount) for bucket, amount in ((self._requests, 1), (self._tokens, estimate)) if bucket]
        wait = max(bucket.take(amount) for bucket, amount in taken)
        if wait <= 0:
            return
        try:
            await self._sleep(wait)
        except asyncio.CancelledError:
            for bucket, amount in taken:
                bucket.give_back(amount)
            raise

    def _semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._places is None or self._loop is not loop:
            self._places, self._loop = asyncio.Semaphore(self._limits.concurrency), loop
        return self._places


def estimate_tokens(request: ChatRequest) -> int:
    """Returns roughly how many tokens the prompt has: a quarter of its characters, and a few for each message."""
    characters = sum(len(message["content"]) for message in request.messages)
    return characters // _CHARACTERS_PER_TOKEN + _TOKENS_PER_MESSAGE * len(request.messages)


def most_tokens(request: ChatRequest) -> int:
    """Returns more tokens than the prompt has in nearly any text: one for every two bytes, and a few per message."""
    size = sum(
        len(text) if (text := message["content"]).isascii() else len(text.encode("utf-8", "replace"))
        for message in request.messages
    )
    size += 0 if request.schema is None else len(json.dumps(request.schema))  # some providers count it
    return size // BYTES_PER_TOKEN + _FRAME * len(request.messages)
