"""A model behind a network: routes, ledger and cache together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from sotopia_env.chat_model.cache import ResponseCache
from sotopia_env.chat_model.fallback import first_answer
from sotopia_env.chat_model.ledger import Ledger, LedgerEntry, Tally
from sotopia_env.chat_model.price import Price
from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest
from sotopia_env.chat_model.route import Route
from sotopia_env.errors import InvalidValueError


class RemoteModel:
    """A :class:`~sotopia_env.chat_model.protocol.ChatModel` on a server; made by ``make_model``.

    It belongs to one event loop at a time; a new loop gets new connections.
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
        """Puts the parts together.

        Args:
            routes: to the model itself, then to its fallbacks.
            max_tokens: limit on answers for requests that name none.
            structured: whether schemas are enforced by the server; see ``make_model``.
            ledger: counts every call, and may refuse it.
            cache: keeps answers.

        Raises:
            InvalidValueError: the ledger limits the cost, and the price of a model is not known.
        """
        self.routes = tuple(routes)
        self._max_tokens = max_tokens
        self._structured = structured
        self._ledger = ledger
        self._cache = cache
        self._check_prices()

    def _check_prices(self) -> None:
        if self._ledger is None or self._ledger.max_cost is None:
            return
        unknown = [route.transport.name for route in self.routes if route.price is None]
        if unknown:
            raise InvalidValueError(
                f"max_cost: expected a model whose price is known, got {', '.join(map(repr, unknown))}; "
                "declare its price (zero for a server of your own), or limit max_tokens instead"
            )

    @property
    def name(self) -> str:
        """The model as the user named it."""
        return self.routes[0].transport.name

    @property
    def price(self) -> Price | None:
        """What its tokens cost; ``None`` when that is not known."""
        return self.routes[0].price

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Model, fallbacks and what else changes answers.

        The server's address is not among them: the same model answers the same from another machine, and a run must
        be resumable when the cluster has put the server elsewhere.
        """
        return {
            "model": self.name,
            "max_tokens": self._max_tokens,
            "structured": self._structured,
            "fallbacks": [route.transport.name for route in self.routes[1:]],
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
        kept = self._cache.get(key)
        if kept is not None:
            self._record(request, Tally(), kept)
            return kept
        reply = await self._ask(request)
        if not reply.fallback:  # or the primary model would never be asked again
            self._cache.put(key, reply)
        return reply

    async def _ask(self, request: ChatRequest) -> ChatReply:
        tally, reply = Tally(), None
        try:
            reply = await first_answer(self.routes, request, tally, self._ledger)
            return reply
        finally:
            if tally.attempts:  # also when it failed or was cancelled: what was sent is counted
                self._record(request, tally, reply)

    def _record(self, request: ChatRequest, tally: Tally, reply: ChatReply | None) -> None:
        if self._ledger is None:
            return
        entry = LedgerEntry(
            role=request.role,
            asked=self.name,
            model=reply.model if reply else "",
            outcome="answered" if reply else "failed",
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
            cost=tally.cost,
            attempts=tally.attempts,
            fallback=bool(reply and reply.fallback),
            cached=bool(reply and reply.cached),
            label=request.label,
        )
        self._ledger.record(entry)

    async def check(self) -> None:
        """Raises :class:`InvalidValueError` if a server or a model can be seen not to be there."""
        for route in self.routes:
            await route.transport.check()

    async def close(self) -> None:
        """Releases connections and the cache; the ledger belongs to whoever opened it."""
        for route in self.routes:
            await route.transport.close()
        if self._cache is not None:
            self._cache.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def check(model: ChatModel) -> None:
    """Finds out, before any episode starts, whether a model is there: one cheap request to a server of the user's own.

    Raises:
        InvalidValueError: nothing answers at the base URL, or the server does not accept the key.
        UnknownNameError: the server does not have the model; the message offers the nearest name.
    """
    if isinstance(model, RemoteModel):
        await model.check()
