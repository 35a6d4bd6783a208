"""The way to one model: its limits, its retries, its transport."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Literal

from sotopia_env.chat_model.limits import Limiter, Limits
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.budget import Need, Price, Usage
from sotopia_env.chat_model.spending.call import Call
from sotopia_env.chat_model.transports.attempt import FailedAttempt, Transport
from sotopia_env.errors import InvalidValueError, ModelCallError, ModelFailure, ModelRefusedError

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
        self.retries = retries
        self._limiter = Limiter(limits)
        self._usage = Usage(self.price)
        self._timeout = timeout
        self._support = SchemaSupport(structured)
        self._rng = rng or random.Random()
        self._refusals, self._refusal = 0, FailedAttempt("auth", "")  # how many there were, and the latest
        self._answered = False

    async def ask(self, request: ChatRequest, call: Call) -> ChatReply:
        """Returns the answer; ``call`` books every attempt, whatever comes of it.

        Requests that wait for their turn while the model refuses another for good are not sent any more.

        Raises:
            ContextLengthError: the conversation does not fit.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses this request as it would every other.
            ModelCallError: no attempt brought a usable answer.
        """
        before, retry, empty, refusals = call.attempts, 0, 0, self._refusals
        survived: list[tuple[ModelFailure, str]] = []
        while True:
            try:
                reply = await self._attempt(request, call, refusals)
                return replace(reply, failures=tuple(survived)) if survived else reply
            except FailedAttempt as failure:
                survived.append((failure.kind, str(failure)))
                empty += failure.kind == "empty"
                delay = self._delay(failure, retry, empty)
                if delay is None:
                    raise self._given_up(failure, call.attempts - before) from None
                logger.debug("%s: %s; again in %.2f s", self.transport.name, failure, delay)
            await asyncio.sleep(delay)
            retry += 1

    def _delay(self, failure: FailedAttempt, retry: int, empty: int) -> float | None:
        spent = retry >= self.retries.retries or empty > self.retries.empty_retries
        if spent or not failure.retryable:
            return None
        return self.retries.delay(retry, failure.wait, self._rng)

    def _given_up(self, failure: FailedAttempt, attempts: int) -> ModelCallError:
        asked = f"; the server asks to wait {failure.wait:g} s" if failure.wait is not None else ""
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        message = f"model {self.transport.name!r}: {failure} ({failure.kind}, after {times}{asked})"
        error = ModelRefusedError if failure.final else ModelCallError
        return error(message, kind=failure.kind, attempts=attempts, status=failure.status)

    async def _attempt(self, request: ChatRequest, call: Call, refusals: int) -> ChatReply:
        async with self._limiter.slot(request) as slot:
            if self._refusals > refusals:
                raise self._refusal.with_traceback(None)
            async with self._within_budget(request, call):  # here, not earlier: others may have spent it meanwhile
                reply = self._priced(await self._answer(request, call))
                call.bill(reply)
                if call.ledger.budget.limited:
                    self._usage.learn(request, reply)
            slot.used(reply)
        if not reply.text.strip():
            raise FailedAttempt("empty", _why_empty(reply), status=200)
        return reply

    def _within_budget(self, request: ChatRequest, call: Call) -> AbstractAsyncContextManager[None]:
        if not call.ledger.budget.limited:
            return nullcontext()

        def need() -> Need:
            found = self._usage.of(request)
            call.most = found.most
            return found

        return call.ledger.budget.reserved(need)

    def _priced(self, reply: ChatReply) -> ChatReply:
        if self.price is None or (self._declared is None and reply.cost is not None):
            return reply
        return replace(reply, cost=self.price.of(reply.prompt_tokens, reply.completion_tokens))

    async def _answer(self, request: ChatRequest, call: Call) -> ChatReply:
        """Notes whether the model answers, or refuses for good."""
        try:
            reply = await self._with_schema(request, call)
        except FailedAttempt as failure:
            if failure.status == 404 and self._answered and not failure.named:
                failure.final = False  # the model was there: a gateway in front of it may be what is not
            if failure.final:
                self._refusals, self._refusal = self._refusals + 1, failure
            raise
        self._answered = True
        return reply

    async def _with_schema(self, request: ChatRequest, call: Call) -> ChatReply:
        """Asks for the schema to be enforced where that may work, and at once without where the server refuses."""
        structured = request.schema is not None and self._support.wanted
        try:
            return await self._send(request, structured, call)
        except FailedAttempt as failure:
            if not structured or not self._support.refused_by(failure):
                raise
        return await self._send(request, False, call)

    async def _send(self, request: ChatRequest, structured: bool, call: Call) -> ChatReply:
        mark = call.sending()
        try:
            async with asyncio.timeout(self._timeout):
                return await self.transport.attempt(request, structured, mark)
        except TimeoutError:
            call.doubt()
            raise FailedAttempt("timeout", f"no answer within {self._timeout:g} seconds", doubtful=True) from None
        except asyncio.CancelledError:
            call.doubt()
            raise
        except FailedAttempt as failure:
            if failure.doubtful:
                call.doubt()
            raise


def _why_empty(reply: ChatReply) -> str:
    said = f"the answer has no text (finish reason {reply.finish_reason!r})"
    if reply.reasoning and reply.finish_reason == "length":
        return f"{said}: max_tokens was spent on reasoning"
    return said


logger = logging.getLogger(__name__)


Structured = Literal["auto", "on", "off"]
"""Ask for it and go without where the server refuses; insist; never ask."""


_MODES = ("auto", "on", "off")


_ABOUT = re.compile(
    r"response[_ ]?format|json[_ ]?schema|guided|structured output|grammar|requested parameters", re.IGNORECASE
)


class SchemaSupport:
    """Remembers whether a server takes ``response_format``."""

    def __init__(self, mode: Structured) -> None:
        """Begins with the benefit of the doubt.

        Raises:
            InvalidValueError: there is no such mode.
        """
        if mode not in _MODES:
            raise InvalidValueError(f"structured: expected one of {', '.join(map(repr, _MODES))}, got {mode!r}")
        self.mode = mode
        self._refused = False

    @property
    def wanted(self) -> bool:
        """Whether to ask for it now."""
        return self.mode != "off" and not self._refused

    def refused_by(self, failure: FailedAttempt) -> bool:
        """Notes a failure, and returns whether the request shall be sent again without the schema."""
        about = failure.status in (400, 404, 422) and _ABOUT.search(str(failure)) is not None
        if self.mode != "auto" or not about:
            return False
        if not self._refused:
            logger.info("the server enforces no schemas; answers are parsed without: %s", failure)
        self._refused = True
        return True
