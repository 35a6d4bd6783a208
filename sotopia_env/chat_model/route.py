"""The route to one model: its transport with limits, retries and outage handling."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

from sotopia_env.chat_model.limits import Limiter, Limits, estimate_tokens
from sotopia_env.chat_model.outage import Gate, is_queued, is_silence
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.budget import Price, Requirement, UsageEstimator
from sotopia_env.chat_model.spending.call import Call
from sotopia_env.chat_model.transports.attempt import FailedAttempt
from sotopia_env.chat_model.transports.completion import empty_reason
from sotopia_env.chat_model.transports.form import Capabilities, RequestForm, Structured, unwrapped
from sotopia_env.chat_model.transports.keys import redact_reply, secrets
from sotopia_env.chat_model.transports.transport import Transport
from sotopia_env.chat_model.truncation import TruncationWatch
from sotopia_env.foundation.answer_text import is_cut_off, is_filtered
from sotopia_env.foundation.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelCallError,
    ModelFailure,
    ModelRefusedError,
    ModelUnavailableError,
)

logger = logging.getLogger(__name__)

_REFUSED_CALLS = 3
"""Number of consecutive refused calls after which a model that has never answered is taken to refuse every call."""


class _GateClosed(Exception):  # noqa: N818 - an event
    """The gate was closed while a request waited for its slot."""


class Route:
    """Sends requests to one model, within its limits, with retries."""

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
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates a route.

        Args:
            transport: sends one request.
            limits: the limits on concurrent requests, and on requests and tokens per minute.
            retries: the policy for failed requests.
            timeout: seconds that one attempt may take.
            structured: whether the server is asked to enforce schemas.
            price: the price of tokens declared by the user; ``None`` uses that of the transport.
            rng: the source of random jitter; by default a new generator seeded by the system.
            extras: the user's additions to every request, for records; without secrets.
        """
        if not 0 < timeout < float("inf"):
            raise InvalidValueError(field="timeout", expected="seconds, above zero", got=timeout)
        self.transport = transport
        self.extras = {name: value for name, value in (extras or {}).items() if value}
        self.price = price if price is not None else transport.price
        self._declared_price = price
        self.retries = retries
        self._usage = UsageEstimator(self.price)
        self._timeout = timeout
        self._capabilities = Capabilities(transport.name, structured)
        self._rng = rng or random.Random()
        self._limiter = Limiter(limits, retries=retries, rng=self._rng)
        self._gate = Gate(transport.name, retries, self._rng)
        self._refusals = 0  # number of failures that every other request would share
        self._refused_calls = 0  # consecutive refused calls while the model has never answered
        self._refusal: FailedAttempt | ModelUnavailableError = FailedAttempt("auth", "")  # the latest refusal
        self._has_answered = False
        self._longest = 0  # estimated tokens of the longest accepted prompt
        self._truncation = TruncationWatch(transport.name)
        self._keys = secrets()

    async def ask(self, request: ChatRequest, call: Call, patient: bool = True) -> ChatReply:
        """Returns the answer; ``call`` records every attempt.

        If the model refuses another request for good, requests that are still waiting for a slot are not sent.

        Args:
            request: the request.
            call: the record of the call.
            patient: whether to wait for an unresponsive model; ``False`` if a fallback can be called instead.

        Raises:
            ContextLengthError: the conversation does not fit the model.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses this and every other request.
            ModelUnavailableError: the model did not respond in time.
            ModelCallError: no attempt returned a usable answer.
        """
        # ``call`` may already contain the attempts at another model, for which this route is the fallback.
        before, retry, empty, refusals = call.attempts, 0, 0, self._refusals
        patient = patient and self.retries.patience > 0
        # Time of this call's previous failure. It is infinite before the first one, so that no answer to another
        # request counts as later: only an answer after a failure shows that the failure concerns this call alone.
        latest = math.inf
        queued_since: float | None = None  # the first of an unbroken series of rejections for the rate
        failures: list[tuple[ModelFailure, str]] = []
        while True:
            delay: float | None = 0.0
            async with self._gate.passage() as is_probe:
                try:
                    reply = await self._attempt(request, call, refusals, is_probe, queued_since is not None)
                    return replace(reply, failures=tuple(failures)) if failures else reply
                except _GateClosed:
                    continue
                except FailedAttempt as failure:
                    failures.append((failure.kind, str(failure)))
                    # Empty answers are billed, so they have their own, lower limit of retries.
                    empty += failure.kind == "empty"
                    since, latest = latest, self._gate.clock()
                    attempts = call.attempts - before
                    is_queueing = patient and is_queued(failure)
                    exhausted = retry >= max(self.retries.retries, is_queueing)
                    if patient and self._gate.is_outage(failure, exhausted, since):
                        if not self._gate.close(failure, is_probe):
                            raise self._give_up(failure, attempts) from None
                        # An outage is not this call's failure: after it, the call has all its retries again.
                        retry, queued_since = 0, None
                        continue
                    if is_queueing:
                        # The limiter delays the call, together with all others. Rejections end it only after the
                        # whole patience: a provider may reject one request for ever, such as one above its limits.
                        queued_since = latest if queued_since is None else queued_since
                        if latest - queued_since > self.retries.patience:
                            is_alone = self._gate.has_answered(failure, queued_since)
                            end = self._final_error if is_alone else self._give_up
                            raise end(failure, attempts) from None
                        retry = 0 if self._gate.has_answered(failure, since) else retry + 1
                        continue
                    delay, queued_since = self._delay(failure, retry, empty), None
                    if delay is None:
                        raise self._final_error(failure, attempts) from None
                    logger.debug("%s: %s; again in %.2f s", self.transport.name, failure, delay)
            # Outside the gate's context: a waiting probe would hold the lock and keep other calls from probing.
            await asyncio.sleep(delay)
            retry += 1

    def _delay(self, failure: FailedAttempt, retry: int, empty: int) -> float | None:
        exhausted = retry >= self.retries.retries or empty > self.retries.empty_retries
        if exhausted or not failure.retryable or self.retries.is_long(failure.wait):
            return None
        return self.retries.delay(retry, failure.wait, self._rng)

    def _give_up(self, failure: FailedAttempt, attempts: int) -> ModelUnavailableError:
        """Ends the wait for the model for all waiting calls, and returns their error."""
        # The gate opens so that the waiting calls proceed; ``_attempt`` then raises the refusal in each of them.
        self._gate.open()
        message = f"no answer within a patience of {self.retries.patience:g} s: {self._reason(failure, attempts)}"
        message = f"model {self.transport.name!r}: {message}"
        self._refusal = ModelUnavailableError(message, kind=failure.kind, attempts=attempts, status=failure.status)
        self._refusals += 1
        return self._refusal

    def _final_error(self, failure: FailedAttempt, attempts: int) -> ModelCallError:
        # Servers report a wrong model or key in many ways. Several refusals in a row by a model that has never
        # answered are taken as such, so that a run stops instead of failing in each of its episodes.
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

    async def _attempt(
        self, request: ChatRequest, call: Call, refusals: int, is_probe: bool, is_repeated: bool
    ) -> ChatReply:
        async with self._limiter.slot(request, is_repeated) as slot:
            # While this request waited for its slot, another may have shown that the model refuses or is silent.
            if self._refusals > refusals:
                raise self._refusal.with_traceback(None)
            if self._gate.outage is not None and not is_probe:
                raise _GateClosed
            # The budget is reserved last, since the amount left may have changed during the wait for a slot.
            async with self._reservation(request, call):
                try:
                    reply = self._with_price(await self._answer(request, call))
                except FailedAttempt as failure:
                    # The gate handles a long wait.
                    if is_queued(failure) and not self.retries.is_long(failure.wait):
                        slot.reject(failure.wait)
                    raise
                call.bill(reply, lambda: self._usage.of(request).most)
                if call.ledger.budget.limited:
                    self._usage.learn(request, reply)
            slot.settle(reply)
        # Thoughts alone, and what a filter or a limit withholds, are the answer of a model that works: the reader says
        # so, and may ask again. An answer with nothing at all may come from a server that is failing.
        is_reported = reply.reasoning or is_filtered(reply.finish_reason) or is_cut_off(reply.finish_reason)
        if not reply.text.strip() and not reply.calls and not is_reported:
            raise FailedAttempt("empty", empty_reason(reply), status=200)
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
        # A price declared by the user takes precedence over the transport's cost, and that over the list price.
        if self.price is None or (self._declared_price is None and reply.cost is not None):
            return reply
        return replace(reply, cost=self.price.of_reply(reply))

    async def _answer(self, request: ChatRequest, call: Call) -> ChatReply:
        """Returns the redacted answer, and notes whether the model has answered, or refused for good."""
        sent = self._gate.clock()
        try:
            reply = redact_reply(await self._in_form(request, call), self._keys)
        except ContextLengthError:
            self._gate.note_answer(sent)
            raise
        except FailedAttempt as failure:
            if not is_silence(failure):
                self._gate.note_answer(sent)
            # A model that has answered before exists, so a 404 without an explicit code may come from a gateway whose
            # backend is down. Keys and quotas can be withdrawn at any time.
            if failure.status not in (401, 402, 429) and self._has_answered and not failure.explicit:
                failure.final = False
            if failure.final:
                self._refusals, self._refusal = self._refusals + 1, failure
            raise
        self._gate.note_answer(sent)
        self._has_answered = True
        estimate = estimate_tokens(request)
        self._longest = max(self._longest, estimate)
        self._truncation.note(estimate, reply.prompt_tokens)
        return reply

    async def _in_form(self, request: ChatRequest, call: Call) -> ChatReply:
        """Sends the request, and again in another form if the server does not accept one of its fields."""
        while True:
            form = self._capabilities.form
            try:
                return await self._send(request, form, call)
            except FailedAttempt as failure:
                if self._capabilities.learn(failure, request, form):
                    continue
                # Every provider has its own words for a conversation that is too long, and some have none. A refused
                # request that is longer than all accepted ones is therefore shortened before it counts as refused.
                is_longest = self._longest and estimate_tokens(request) > self._longest
                if failure.status in (400, 413) and not failure.final and is_longest:
                    raise ContextLengthError(f"refused, and longer than all accepted requests: {failure}") from None
                raise

    async def _send(self, request: ChatRequest, form: RequestForm, call: Call) -> ChatReply:
        mark = call.record_request()
        try:
            async with asyncio.timeout(self._timeout):
                reply = await self.transport.attempt(request, form, mark)
            text = unwrapped(reply.text, request, form)
            return reply if text == reply.text else replace(reply, text=text)
        except TimeoutError:
            # The server may still complete the request and bill it.
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
