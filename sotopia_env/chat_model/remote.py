"""A model on a server, with its fallbacks, its ledger and its response cache."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from sotopia_env.chat_model.cache import ResponseCache
from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest, Failure
from sotopia_env.chat_model.route import Route
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.spending.call import Call
from sotopia_env.chat_model.spending.ledger import Ledger, Outcome
from sotopia_env.foundation.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
    ModelUnavailableError,
    Verbatim,
)

logger = logging.getLogger(__name__)


class RemoteModel:
    """A :class:`~sotopia_env.chat_model.protocol.ChatModel` on a server; made by ``make_model``.

    It can be used in one event loop at a time; a new loop gets new connections.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        max_tokens: int | None = None,
        structured: str = "auto",
        ledger: Ledger | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        """Creates a model.

        Args:
            routes: the route to the model itself, then those to its fallbacks.
            max_tokens: the limit on answers, in tokens, for requests without their own limit.
            structured: whether servers are asked to enforce schemas; see ``make_model``.
            ledger: records every call, and refuses calls beyond its limits.
            cache: stores answers; ``None`` for no cache.

        Raises:
            InvalidValueError: the ledger limits the cost, but the price of a model is unknown.
        """
        self.routes = tuple(routes)
        self._max_tokens = max_tokens
        self._structured = structured
        self._ledger = ledger if ledger is not None else Ledger()
        self._cache = cache
        self._check_prices()

    def _check_prices(self) -> None:
        if self._ledger.max_cost is None:
            return
        unknown = [route.transport.name for route in self.routes if route.price is None]
        if unknown:
            raise InvalidValueError(
                field="max_cost",
                expected="a model with a known price",
                got=Verbatim(", ".join(map(repr, unknown))),
                hint="declare its price (zero for your own server), or limit max_tokens instead",
            )

    @property
    def name(self) -> str:
        """The model as the user named it."""
        return self.routes[0].transport.name

    @property
    def price(self) -> Price | None:
        """The price of the model's tokens; ``None`` if unknown."""
        return self.routes[0].price

    @property
    def parameters(self) -> Mapping[str, Any]:
        """All settings that influence answers: model, fallbacks, limits.

        The server's address is not included, so that a run can be resumed after the server has moved.
        """
        return {
            "model": self.name,
            "max_tokens": self._max_tokens,
            "structured": self._structured,
            "fallbacks": [route.transport.name for route in self.routes[1:]],
            # Only those that are set, so that earlier runs and cached answers keep their identity.
            **self.routes[0].extras,
        }

    def __repr__(self) -> str:
        return f"RemoteModel({self.name!r})"

    async def complete(self, request: ChatRequest) -> ChatReply:
        """See :class:`~sotopia_env.chat_model.protocol.ChatModel`."""
        if self._max_tokens is not None and request.max_tokens is None:
            request = replace(request, max_tokens=self._max_tokens)
        if self._cache is None:
            return await self._ask(request)
        key = self._cache.key(self.routes[0].transport.identity, dict(self.parameters), request)
        hit = self._cache.get(key)
        if hit is not None and request.is_usable(hit):
            Call(self._ledger, self.name, request).end(hit)
            return hit
        reply = await self._ask(request)
        # The key names the model itself, so the answer of a fallback is not stored under it.
        if not reply.fallback and request.is_usable(reply):
            self._cache.store(key, reply)
        return reply

    async def _ask(self, request: ChatRequest) -> ChatReply:
        call, reply = Call(self._ledger, self.name, request), None
        outcome: Outcome = "failed"
        try:
            reply = await first_answer(self.routes, request, call)
            return reply
        except ContextLengthError:
            outcome = "too_long"
            raise
        finally:
            # Also after a failure or cancellation, since requests that were sent may be billed.
            call.end(reply, outcome)

    async def check(self) -> None:
        """Checks the servers and models of all routes; see :func:`check`."""
        for route in self.routes:
            await route.transport.check()

    async def close(self) -> None:
        """Releases connections and the cache; the caller closes the ledger."""
        for route in self.routes:
            await route.transport.close()
        if self._cache is not None:
            self._cache.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def check(model: ChatModel) -> None:
    """Checks, before any episode starts, that a model is available, with one cheap request to a self-hosted server.

    Raises:
        InvalidValueError: no server responds at the base URL, or the server does not accept the key.
        UnknownNameError: the server does not have the model; the message offers the nearest name.
    """
    if isinstance(model, RemoteModel):
        await model.check()


async def first_answer(routes: Sequence[Route], request: ChatRequest, call: Call) -> ChatReply:
    """Returns the answer of the first model that does not fail for good; ``fallback`` is set if it is not the first.

    A conversation that is too long, or a spent budget, is not a failure of the model and ends the call at once. Only
    the last model is waited for while it is unresponsive.

    Raises:
        ContextLengthError: the conversation does not fit the model.
        BudgetExceededError: the ledger's limit is reached.
        ModelRefusedError: every model refuses this and every other request.
        ModelUnavailableError: the last model did not respond in time.
        ModelCallError: every model failed; the error is that of the last one.
    """
    failures: list[Failure] = []
    all_final = True
    for index, route in enumerate(routes):
        try:
            reply = await route.ask(request, call, patient=route is routes[-1])
        except ModelUnavailableError:
            raise
        except ModelCallError as error:
            all_final = all_final and isinstance(error, ModelRefusedError)
            if route is routes[-1]:
                error_type = ModelRefusedError if all_final else ModelCallError
                raise error_type(str(error), kind=error.kind, attempts=call.attempts, status=error.status) from None
            failures.append((error.kind, str(error)))
            logger.warning("%s; falling back to %r", error, routes[index + 1].transport.name)
        else:
            # Nearly every call succeeds at the first attempt; its reply needs no copy.
            if call.attempts == 1:
                return reply
            failures += reply.failures
            return replace(reply, attempts=call.attempts, fallback=index > 0, failures=tuple(failures))
    raise AssertionError("unreachable: there is at least one route")
