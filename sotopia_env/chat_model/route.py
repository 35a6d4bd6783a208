"""The way to one model: its limits, its retries, its transport."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace

from sotopia_env.chat_model.attempt import FailedAttempt, Transport
from sotopia_env.chat_model.ledger import Ledger, Tally
from sotopia_env.chat_model.limits import Limiter, Limits
from sotopia_env.chat_model.price import Price
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.structured import SchemaSupport, Structured
from sotopia_env.errors import InvalidValueError, ModelCallError

logger = logging.getLogger(__name__)


class Route:
    """Sends requests to one model, within its limits, as often as the retry policy allows."""

    def __init__(
        self,
        transport: Transport,
        *,
        limits: Limits,
        retries: RetryPolicy,
        timeout: float,
        structured: Structured = "auto",
        price: Price | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Puts the parts together.

        Args:
            transport: sends one request.
            limits: how much may be asked.
            retries: how often.
            timeout: seconds one attempt may take.
            structured: whether schemas are enforced by the server.
            price: what the user says tokens cost; ``None`` takes what the transport knows.
            rng: jitter comes from it; by default a generator of its own, seeded by the system.
        """
        if not 0 < timeout < float("inf"):
            raise InvalidValueError(f"timeout: expected seconds, above zero, got {timeout!r}")
        self.transport = transport
        self.price = price if price is not None else transport.price
        self._declared = price
        self._limiter = Limiter(limits)
        self._retries = retries
        self._timeout = timeout
        self._support = SchemaSupport(structured)
        self._rng = rng or random.Random()

    async def ask(self, request: ChatRequest, tally: Tally, ledger: Ledger | None) -> ChatReply:
        """Returns the answer; ``tally`` counts every attempt, whatever comes of it.

        Raises:
            ContextLengthError: the conversation does not fit.
            BudgetExceededError: the ledger's limit is reached.
            ModelCallError: no attempt brought a usable answer.
        """
        before, retry, empty = tally.attempts, 0, 0
        while True:
            try:
                return await self._attempt(request, tally, ledger)
            except FailedAttempt as failure:
                empty += failure.kind == "empty"
                delay = self._delay(failure, retry, empty)
                if delay is None:
                    raise self._given_up(failure, tally.attempts - before) from None
                logger.debug("%s: %s; again in %.2f s", self.transport.name, failure, delay)
            await asyncio.sleep(delay)
            retry += 1

    def _delay(self, failure: FailedAttempt, retry: int, empty: int) -> float | None:
        spent = retry >= self._retries.retries or empty > self._retries.empty_retries
        if spent or not failure.retryable:
            return None
        return self._retries.delay(retry, failure.wait, self._rng)

    def _given_up(self, failure: FailedAttempt, attempts: int) -> ModelCallError:
        asked = f"; the server asks to wait {failure.wait:g} s" if failure.wait is not None else ""
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        message = f"model {self.transport.name!r}: {failure} ({failure.kind}, after {times}{asked})"
        return ModelCallError(message, kind=failure.kind, attempts=attempts, status=failure.status)

    async def _attempt(self, request: ChatRequest, tally: Tally, ledger: Ledger | None) -> ChatReply:
        async with self._limiter.slot(request) as slot:
            if ledger is not None:
                ledger.check()  # here, not earlier: the limit may have been reached while this one waited
            reply = await self._with_schema(request, tally)
            slot.used(reply)
        if self._declared is not None:
            reply = replace(reply, cost=self._declared.of(reply.prompt_tokens, reply.completion_tokens))
        tally.bill(reply.prompt_tokens, reply.completion_tokens, reply.cost)
        if not reply.text.strip():
            raise FailedAttempt("empty", _why_empty(reply), status=200)
        return reply

    async def _with_schema(self, request: ChatRequest, tally: Tally) -> ChatReply:
        """Asks for the schema to be enforced where that may work, and at once without where the server refuses."""
        structured = request.schema is not None and self._support.wanted
        try:
            return await self._send(request, structured, tally)
        except FailedAttempt as failure:
            if not structured or not self._support.refused_by(failure):
                raise
        return await self._send(request, False, tally)

    async def _send(self, request: ChatRequest, structured: bool, tally: Tally) -> ChatReply:
        tally.attempts += 1
        try:
            async with asyncio.timeout(self._timeout):
                return await self.transport.attempt(request, structured)
        except TimeoutError:
            raise FailedAttempt("timeout", f"no answer within {self._timeout:g} seconds") from None


def _why_empty(reply: ChatReply) -> str:
    said = f"the answer has no text (finish reason {reply.finish_reason!r})"
    if reply.reasoning and reply.finish_reason == "length":
        return f"{said}: max_tokens was spent on reasoning"
    return said
