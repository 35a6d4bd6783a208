"""What a run may spend, kept so that calls in flight cannot pass it together.

Before a request is sent, the most that it is expected to use is reserved; while that does not fit beside what is spent
and what others have reserved, it waits for one of them to come back. What was reserved for a request that was sent and
brought no whole answer (out of time, cut off, not readable, cancelled) counts as spent, since it may be billed. So the
limit is passed only by a prompt of more tokens than one for every two bytes, until an answer has told so, and by an
answer that is longer than its own limit, or than any before where it has none.
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
from sotopia_env.errors import BudgetExceededError, InvalidValueError

_UNSEEN = 1024
"""Tokens of an answer without a limit, as long as none has come."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens, and what they cost in US dollars."""

    tokens: int = 0
    cost: float = 0.0


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Need:
    """What a request may use.

    Attributes:
        most: reserved for it.
        least: enough to send it when nothing else is in flight; less than ``most`` while nobody knows how long its
            answer can be.
    """

    most: Amount
    least: Amount


class Usage:
    """Says what requests to one model can use, and learns from its answers where they used more."""

    def __init__(self, price: Price | None) -> None:
        self._price = price
        self._factor = 1.0
        self._longest = 0

    def of(self, request: ChatRequest) -> Need:
        """Returns what a request needs: its prompt, and an answer at its limit, or as long as the longest so far."""
        prompt = math.ceil(most_tokens(request) * self._factor)
        if request.max_tokens is None and not self._longest:
            return Need(self._amount(prompt, _UNSEEN), self._amount(prompt, 0))
        most = self._amount(prompt, request.max_tokens or self._longest)
        return Need(most, most)

    def _amount(self, prompt: int, answer: int) -> Amount:
        return Amount(prompt + answer, self._price.of(prompt, answer) if self._price else 0.0)

    def learn(self, request: ChatRequest, reply: ChatReply) -> None:
        """Takes notice of an answer."""
        self._factor = max(self._factor, reply.prompt_tokens / max(1, most_tokens(request)))
        self._longest = max(self._longest, reply.completion_tokens)


@dataclass(slots=True)
class _Gate:
    """Where the requests of one event loop wait: the first in line until another comes back."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    back: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: int = 0


class Budget:
    """What is spent and reserved, beside what may be.

    Attributes:
        max_cost: US dollars; ``None`` for no limit.
        max_tokens: tokens; ``None`` for no limit.
        limited: whether there is a limit.
    """

    def __init__(self, max_cost: float | None = None, max_tokens: int | None = None) -> None:
        """Begins with nothing spent.

        Raises:
            InvalidValueError: a limit is not a positive number.
        """
        for name, value in (("max_cost", max_cost), ("max_tokens", max_tokens)):
            if value is not None and not 0 < value < math.inf:
                raise InvalidValueError(f"{name}: expected a number above zero, got {value!r}")
        self.max_cost, self.max_tokens = max_cost, max_tokens
        self.limited = max_cost is not None or max_tokens is not None
        self._tokens, self._cost = 0, 0.0
        self._held_tokens, self._held_cost = 0, 0.0
        self._in_flight = 0
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Gate] = weakref.WeakKeyDictionary()

    def spend(self, tokens: int, cost: float | None) -> None:
        """Counts what was paid for, or may have been."""
        self._tokens += tokens
        self._cost += cost or 0.0

    def check(self, more: Amount = NOTHING) -> None:
        """Raises :class:`BudgetExceededError` if a limit is reached, or would be passed by ``more``."""
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
    async def reserved(self, need_now: Callable[[], Need]) -> AsyncIterator[None]:
        """Holds what a request may use while it is under way; waits for others to come back where it does not fit.

        Args:
            need_now: what it may use, by what is known by then.

        Raises:
            BudgetExceededError: the limit is reached, or nothing is under way and it does not fit even so.
        """
        gate = self._gates.setdefault(asyncio.get_running_loop(), _Gate())
        async with gate.turn:  # first come, first served
            while not self._fits((need := need_now()).most):
                self.check(NOTHING if gate.in_flight else need.least)
                if not gate.in_flight:
                    break
                gate.back.clear()
                await gate.back.wait()
            self._hold(gate, need.most, 1)
        try:
            yield
        finally:
            self._hold(gate, need.most, -1)
            gate.back.set()

    def _fits(self, more: Amount) -> bool:
        cost, tokens = self._cost + self._held_cost + more.cost, self._tokens + self._held_tokens + more.tokens
        return (self.max_cost is None or (cost <= self.max_cost and self._cost < self.max_cost)) and (
            self.max_tokens is None or (tokens <= self.max_tokens and self._tokens < self.max_tokens)
        )

    def _hold(self, gate: _Gate, amount: Amount, sign: int) -> None:
        gate.in_flight += sign
        self._in_flight += sign
        self._held_tokens += sign * amount.tokens
        self._held_cost = self._held_cost + sign * amount.cost if self._in_flight else 0.0  # no rounding is left over


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; ``Price(0, 0)`` declares that a model costs nothing."""

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        if not (0 <= self.prompt < float("inf") and 0 <= self.completion < float("inf")):
            raise InvalidValueError(
                f"price: expected dollars per million tokens, zero or more, got {self.prompt} and {self.completion}"
            )

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the cost in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6
