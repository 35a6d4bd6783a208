"""The budget of a run: limits on cost and tokens that concurrent calls cannot exceed together.

Before a request is sent, its expected maximum usage is reserved. A request whose reservation does not fit waits until
another request ends. The reservation of a request without a complete answer (timeout, broken connection, unreadable
body, cancellation) counts as spent, since the server may bill it; so does that of an answer whose tokens the server
does not count. A limit can be exceeded in two cases only: by a prompt with more than one token for every two bytes,
before an answer has shown the real ratio, and by an answer longer than its own limit or, without a limit, longer than
all earlier answers.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sotopia_env.chat_model.limits import most_tokens
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.foundation.errors import BudgetExceededError, InvalidValueError, Verbatim

_FIRST_ANSWER = 1024
"""Expected tokens of an answer without a limit, before the first answer."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of tokens, and its cost in US dollars."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.cost + other.cost)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Requirement:
    """The amount of tokens and dollars that a request may use.

    Attributes:
        most: the amount to reserve.
        least: the amount that suffices to send the request when no other request is in flight; less than ``most`` while
            the length of answers is unknown.
    """

    most: Amount
    least: Amount


class UsageEstimator:
    """Estimates the usage of requests to one model, and adjusts the estimate to its answers."""

    def __init__(self, price: Price | None) -> None:
        self._price = price
        self._factor = 1.0
        self._longest = 0

    def of(self, request: ChatRequest) -> Requirement:
        """Returns the requirement for the prompt and an answer of maximum length, or as long as the longest so far."""
        prompt = math.ceil(most_tokens(request) * self._factor)
        if request.max_tokens is None and not self._longest:
            return Requirement(self._amount(prompt, _FIRST_ANSWER), self._amount(prompt, 0))
        most = self._amount(prompt, request.max_tokens or self._longest)
        return Requirement(most, most)

    def _amount(self, prompt: int, answer: int) -> Amount:
        return Amount(prompt + answer, self._price.of(prompt, answer) if self._price else 0.0)

    def learn(self, request: ChatRequest, reply: ChatReply) -> None:
        """Adjusts the estimate to an answer whose tokens the server counted."""
        # The factor only grows: an estimate that is too low for one text would let a limit be exceeded.
        self._factor = max(self._factor, (reply.prompt_tokens or 0) / max(1, most_tokens(request)))
        self._longest = max(self._longest, reply.completion_tokens or 0)


@dataclass(slots=True)
class _Queue:
    """The queue of requests of one event loop, the first of which waits until another request ends."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: int = 0


class Budget:
    """Amounts spent and reserved, and the limits on them.

    Attributes:
        max_cost: US dollars; ``None`` for no limit.
        max_tokens: tokens; ``None`` for no limit.
        limited: whether there is a limit.
    """

    def __init__(self, max_cost: float | None = None, max_tokens: int | None = None) -> None:
        """Creates a budget with nothing spent.

        Raises:
            InvalidValueError: a limit is not a positive number.
        """
        for name, value in (("max_cost", max_cost), ("max_tokens", max_tokens)):
            if value is not None and not 0 < value < math.inf:
                raise InvalidValueError(field=name, expected="a number above zero", got=value)
        self.max_cost, self.max_tokens = max_cost, max_tokens
        self.limited = max_cost is not None or max_tokens is not None
        self._tokens, self._cost = 0, 0.0
        self._reserved_tokens, self._reserved_cost = 0, 0.0
        self._in_flight = 0
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = weakref.WeakKeyDictionary()

    def spend(self, tokens: int, cost: float | None) -> None:
        """Adds an amount that was billed, or may have been billed."""
        self._tokens += tokens
        self._cost += cost or 0.0

    def covers(self, more: Amount) -> bool:
        """Whether ``more`` may be spent in addition; ``more`` must include all requests in flight."""
        tokens, cost = self._tokens + more.tokens, self._cost + more.cost
        return (self.max_tokens is None or tokens <= self.max_tokens) and (
            self.max_cost is None or cost <= self.max_cost
        )

    def check(self, more: Amount = NOTHING) -> None:
        """Raises :class:`BudgetExceededError` if a limit is reached, or if ``more`` would exceed it."""
        if self.max_cost is not None and (self._cost >= self.max_cost or self._cost + more.cost > self.max_cost):
            may = "" if self._cost >= self.max_cost else f", and the next call may cost ${more.cost:.4f}"
            raise BudgetExceededError(
                f"cost: ${self._cost:.4f} of max_cost ${self.max_cost:g} is spent{may}; nothing more is sent"
            )
        if self.max_tokens is not None and (
            self._tokens >= self.max_tokens or self._tokens + more.tokens > self.max_tokens
        ):
            may = "" if self._tokens >= self.max_tokens else f", and the next call may use {more.tokens}"
            raise BudgetExceededError(
                f"tokens: {self._tokens} of max_tokens {self.max_tokens} are used{may}; nothing more is sent"
            )

    @asynccontextmanager
    async def reserve(self, requirement_now: Callable[[], Requirement]) -> AsyncIterator[None]:
        """Reserves the amount of a request while it is in flight, after waiting until the amount fits.

        Args:
            requirement_now: returns the requirement of the request by the current estimate.

        Raises:
            BudgetExceededError: the limit is reached, or the request does not fit although no other is in flight.
        """
        queue = self._queues.setdefault(asyncio.get_running_loop(), _Queue())
        # First come, first served: a large request at the head of the queue is not starved by small ones.
        async with queue.lock:
            while not self._fits((requirement := requirement_now()).most):
                self.check(NOTHING if queue.in_flight else requirement.least)
                if not queue.in_flight:
                    break
                queue.release.clear()
                await queue.release.wait()
            self._add_reservation(queue, requirement.most, 1)
        try:
            yield
        finally:
            self._add_reservation(queue, requirement.most, -1)
            queue.release.set()

    def _fits(self, more: Amount) -> bool:
        cost, tokens = self._cost + self._reserved_cost + more.cost, self._tokens + self._reserved_tokens + more.tokens
        return (self.max_cost is None or (cost <= self.max_cost and self._cost < self.max_cost)) and (
            self.max_tokens is None or (tokens <= self.max_tokens and self._tokens < self.max_tokens)
        )

    def _add_reservation(self, queue: _Queue, amount: Amount, sign: int) -> None:
        queue.in_flight += sign
        self._in_flight += sign
        self._reserved_tokens += sign * amount.tokens
        # Set to exactly 0 when nothing is in flight, so that rounding errors do not accumulate.
        self._reserved_cost = self._reserved_cost + sign * amount.cost if self._in_flight else 0.0


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; ``Price(0, 0)`` declares that a model costs nothing."""

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        if not (0 <= self.prompt < float("inf") and 0 <= self.completion < float("inf")):
            raise InvalidValueError(
                field="price",
                expected="dollars per million tokens, zero or more",
                got=Verbatim(f"{self.prompt} and {self.completion}"),
            )

    @classmethod
    def parse(cls, text: str) -> Price:
        """Reads ``PROMPT,COMPLETION``.

        Raises:
            InvalidValueError: ``text`` does not contain two non-negative numbers.
        """
        try:
            prompt, completion = (float(part) for part in text.split(","))
        except ValueError:
            raise InvalidValueError(
                field="price",
                expected="'PROMPT,COMPLETION' in dollars per million tokens, such as '0.15,0.6'",
                got=text,
            ) from None
        return cls(prompt, completion)

    def text(self) -> str:
        """Returns the text that :meth:`parse` reads."""
        return f"{self.prompt!r},{self.completion!r}"

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the cost in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6

    def of_reply(self, reply: ChatReply) -> float | None:
        """Returns the cost of an answer; ``None`` if its number of tokens is unknown and tokens are not free."""
        if reply.prompt_tokens is None or reply.completion_tokens is None:
            return None if self.prompt or self.completion else 0.0
        return self.of(reply.prompt_tokens, reply.completion_tokens)
