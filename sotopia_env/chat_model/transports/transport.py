"""The interface of a transport, which sends requests to one model on one server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.transports.form import RequestForm


@dataclass(frozen=True, slots=True)
class Extras:
    """Additions to every request of a model.

    Attributes:
        body: more fields of the body.
        headers: more headers; their values may be secret.
        query: parameters of the URL's query.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """Sends one request to one model on one server, once."""

    @property
    def name(self) -> str:
        """The model as the user named it."""
        ...

    @property
    def identity(self) -> str:
        """Model and server, for the response cache; no secrets."""
        ...

    @property
    def price(self) -> Price | None:
        """The price of tokens; ``None`` if unknown."""
        ...

    @property
    def longest_prompt(self) -> int | None:
        """The maximum number of tokens in a prompt; ``None`` if unknown."""
        ...

    @property
    def longest_answer(self) -> int | None:
        """The maximum number of tokens in an answer; ``None`` if unknown."""
        ...

    async def attempt(self, request: ChatRequest, form: RequestForm, mark: str) -> ChatReply:
        """Returns the server's answer.

        Args:
            request: the request.
            form: the form of the request for this server.
            mark: the id of this attempt, sent in a header that servers may log.

        Raises:
            FailedAttempt: the attempt returned no usable answer.
            ContextLengthError: the conversation does not fit the model.
        """
        ...

    async def check(self) -> None:
        """Raises :class:`InvalidValueError` if the server or the model is found to be missing."""
        ...

    async def close(self) -> None:
        """Releases connections."""
        ...
