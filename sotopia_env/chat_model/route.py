"""The route to one model: its limits, its retries, its transport."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from sotopia_env.chat_model.limits import Limiter, Limits
from sotopia_env.chat_model.outage import Gate, is_silence
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.budget import Price, Requirement, Usage
from sotopia_env.chat_model.spending.call import Call
from sotopia_env.chat_model.transports.attempt import FailedAttempt
from sotopia_env.chat_model.transports.form import Capabilities, Form, Structured
from sotopia_env.chat_model.transports.keys import redact_reply, secrets
from sotopia_env.chat_model.transports.transport import Transport
from sotopia_env.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelCallError,
    ModelFailure,
    ModelRefusedError,
    ModelUnavailableError,
)

logger = logging.getLogger(__name__)

_REFUSED_CALLS = 3
"""Calls in a row that a model which has never answered may refuse, before it is believed to refuse them all."""


class _GateClosed(Exception):  # noqa: N818 - an event
    """The gate was closed while a request waited for its slot."""


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
        """Makes the route of its parts.

        Args:
            transport: sends one request.
            limits: of the requests.
            retries: the policy for failed requests.
            timeout: seconds one attempt may take.
            structured: whether schemas are enforced by the server.
            price: cost of tokens as the user declares it; ``None`` takes the transport's.
            rng: source of the jitter; by default a generator of its own, seeded by the system.
        """
        if not 0 < timeout < float("inf"):
            raise InvalidValueError(field="timeout", expected="seconds, above zero", got=timeout)
        self.transport = transport
        self.price = price if price is not None else transport.price
        self._declared_price = price
        self.retries = retries
        self._limiter = Limiter(limits)
        self._usage = Usage(self.price)
        self._timeout = timeout
        self._capabilities = Capabilities(transport.name, structured)
        self._rng = rng or random.Random()
        self._gate = Gate(transport.name, retries, self._rng)
        self._refusals = 0  # number of final failures
        self._refused_calls = 0  # in a row, by a model that has never answered
        self._refusal: FailedAttempt | ModelUnavailableError = FailedAttempt("auth", "")  # the latest
        self._has_answered = False
        self._keys = secrets()

    async def ask(self, request: ChatRequest, call: Call, patient: bool = True) -> ChatReply:
        """Returns the answer; ``call`` records every attempt.

        Requests that wait for a slot while the model refuses another for good are not sent.

        Args:
            request: the question.
            call: its record.
            patient: whether to wait for a model that answers nobody; there may be another one to ask.

        Raises:
            ContextLengthError: the conversation does not fit.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses this request as it would every other.
            ModelUnavailableError: the model was waited for in vain.
            ModelCallError: no attempt brought a usable answer.
        """
        before, retry, empty, refusals = call.attempts, 0, 0, self._refusals
        patient = patient and self.retries.patience > 0
        latest = math.inf  # time of the call's latest failure
        failures: list[tuple[ModelFailure, str]] = []
        while True:
            delay: float | None = 0.0
            async with self._gate.passage() as is_probe:
                try:
                    reply = await self._attempt(request, call, refusals, is_probe)
                    return replace(reply, failures=tuple(failures)) if failures else reply
                except _GateClosed:
                    continue
                except FailedAttempt as failure:
                    failures.append((failure.kind, str(failure)))
                    empty += failure.kind == "empty"
                    since, latest = latest, self._gate.clock()
                    attempts = call.attempts - before
                    if patient and self._gate.is_outage(failure, retry >= self.retries.retries, since):
                        if not self._gate.close(failure, is_probe):
                            raise self._give_up(failure, attempts) from None
                        retry = 0
                        continue
                    delay = self._delay(failure, retry, empty)
                    if delay is None:
                        raise self._final_error(failure, attempts) from None
                    logger.debug("%s: %s; again in %.2f s", self.transport.name, failure, delay)
            await asyncio.sleep(delay)
            retry += 1

    def _delay(self, failure: FailedAttempt, retry: int, empty: int) -> float | None:
        exhausted = retry >= self.retries.retries or empty > self.retries.empty_retries
        if exhausted or not failure.retryable or self.retries.is_long(failure.wait):
            return None
        return self.retries.delay(retry, failure.wait, self._rng)

    def _give_up(self, failure: FailedAttempt, attempts: int) -> ModelUnavailableError:
        """The end of the patience, for all calls that wait."""
        self._gate.open()
        message = f"no answer within a patience of {self.retries.patience:g} s: {self._reason(failure, attempts)}"
        message = f"model {self.transport.name!r}: {message}"
        self._refusal = ModelUnavailableError(message, kind=failure.kind, attempts=attempts, status=failure.status)
        self._refusals += 1
        return self._refusal

    def _final_error(self, failure: FailedAttempt, attempts: int) -> ModelCallError:
        if not (self._has_answered or failure.final or is_silence(failure)):
            self._refused_calls += 1
            failure.final = self._refused_calls >= _REFUSED_CALLS
            if failure.final:
                self._refusals, self._refusal = self._refusals + 1, failure
        message = f"model {self.transport.name!r}: {self._reason(failure, attempts)}"
        error = ModelRefusedError if failure.final else ModelCallError
        return error(message, kind=failure.kind, attempts=attempts, status=failure.status)

    @staticmethod
    def _reason(failure: FailedAttempt, attempts: int) -> str:
        wait = f"; the server asks to wait {failure.wait:g} s" if failure.wait is not None else ""
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return f"{failure} ({failure.kind}, after {times}{wait})"

    async def _attempt(self, request: ChatRequest, call: Call, refusals: int, is_probe: bool) -> ChatReply:
        async with self._limiter.slot(request) as slot:
            if self._refusals > refusals:
                raise self._refusal.with_traceback(None)
            if self._gate.outage is not None and not is_probe:
                raise _GateClosed
            async with self._reservation(request, call):  # after the wait for a slot: the budget may have changed
                reply = self._with_price(await self._answer(request, call))
                call.bill(reply, lambda: self._usage.of(request).most)
                if call.ledger.budget.limited:
                    self._usage.learn(request, reply)
            slot.settle(reply)
        if not reply.text.strip() and not reply.calls:
            raise FailedAttempt("empty", _empty_reason(reply), status=200)
        return reply

    def _reservation(self, request: ChatRequest, call: Call) -> AbstractAsyncContextManager[None]:
        if not call.ledger.budget.limited:
            return nullcontext()

        def requirement_now() -> Requirement:
            requirement = self._usage.of(request)
            call.most = requirement.most
            return requirement

        return call.ledger.budget.reserve(requirement_now)

    def _with_price(self, reply: ChatReply) -> ChatReply:
        if self.price is None or (self._declared_price is None and reply.cost is not None):
            return reply
        return replace(reply, cost=self.price.of_reply(reply))

    async def _answer(self, request: ChatRequest, call: Call) -> ChatReply:
        """Redacts the answer, and remembers whether the model has answered, or refused for good."""
        sent = self._gate.clock()
        try:
            reply = redact_reply(await self._in_form(request, call), self._keys)
        except ContextLengthError:
            self._gate.note_answer(sent)
            raise
        except FailedAttempt as failure:
            if not is_silence(failure):
                self._gate.note_answer(sent)
            if failure.status not in (401, 402, 429) and self._has_answered and not failure.explicit:
                failure.final = False  # the model has answered before: a gateway may be down
            if failure.final:
                self._refusals, self._refusal = self._refusals + 1, failure
            raise
        self._gate.note_answer(sent)
        self._has_answered = True
        return reply

    async def _in_form(self, request: ChatRequest, call: Call) -> ChatReply:
        """Sends the request; where the server does not take something in it, again in another form."""
        while True:
            form = self._capabilities.form
            try:
                return await self._send(request, form, call)
            except FailedAttempt as failure:
                if not self._capabilities.learn(failure, request, form):
                    raise

    async def _send(self, request: ChatRequest, form: Form, call: Call) -> ChatReply:
        mark = call.record_request()
        try:
            async with asyncio.timeout(self._timeout):
                return await self.transport.attempt(request, form, mark)
        except TimeoutError:
            self._mark_doubtful(request, call)
            raise FailedAttempt("timeout", f"no answer within {self._timeout:g} seconds", doubtful=True) from None
        except asyncio.CancelledError:
            self._mark_doubtful(request, call)
            raise
        except FailedAttempt as failure:
            if failure.doubtful:
                self._mark_doubtful(request, call)
            raise

    def _mark_doubtful(self, request: ChatRequest, call: Call) -> None:
        call.mark_doubtful(self._usage.of(request).most, self.price is not None)


def _empty_reason(reply: ChatReply) -> str:
    reason = f"the answer has no text (finish reason {reply.finish_reason!r})"
    if reply.reasoning and reply.finish_reason == "length":
        return f"{reason}: max_tokens was spent on reasoning"
    return reason
