"""The transport: what sends one request to one model on one server."""

from __future__ import annotations

from typing import Protocol

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.transports.form import Form


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
        """Cost of tokens; ``None`` when it is not known."""
        ...

    @property
    def longest_prompt(self) -> int | None:
        """Most tokens of a prompt; ``None`` when that is not known."""
        ...

    @property
    def longest_answer(self) -> int | None:
        """Most tokens of an answer; ``None`` when that is not known."""
        ...

    async def attempt(self, request: ChatRequest, form: Form, mark: str) -> ChatReply:
        """Returns the server's answer.

        Args:
            request: the question.
            form: how it is written for this server.
            mark: id of this attempt, sent along where the server may log it.

        Raises:
            FailedAttempt: there is no usable answer.
            ContextLengthError: the conversation does not fit the model.
        """
        ...

    async def check(self) -> None:
        """Raises :class:`InvalidValueError` if the server or the model can be seen not to be there."""
        ...

    async def close(self) -> None:
        """Releases connections."""
        ...
