"""Stand-ins for the models of a run, which record the requests and send nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.chat_model import ChatModel, ChatReply, ChatRequest, Limits, Price, RemoteModel, Role
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool

_ECHO = 4_000
"""Tokens of a stand-in's answer, at most."""


@dataclass
class Rehearsal:
    """Stand-in for a model that records its requests and gives no usable answer.

    Attributes:
        model: that it stands for.
        limits: on the model's requests.
        requests: those it got.
    """

    model: ChatModel
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    requests: list[ChatRequest] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's, so that plans have the same keys."""
        return self.model.parameters

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Records the request.

        Raises:
            BudgetExceededError: its prompt has more than a minute's tokens; re-asks, which repeat an answer that is
                longer here than any, are not held to that.
        """
        if not request.reask:
            self.limits.check_prompt(request)
        self.requests.append(request)
        length = _ECHO if request.max_tokens is None else min(_ECHO, request.max_tokens)
        return ChatReply(text="é" * length)  # counts as one token each

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()

    @property
    def ways(self) -> tuple[Way, ...]:
        """The model itself, and then its fallbacks."""
        if not isinstance(self.model, RemoteModel):
            return (Way(self.name, None, 1, None, None),)
        return tuple(
            Way(
                route.transport.name,
                route.price,
                1 + route.retries.retries,
                route.transport.longest_prompt,
                route.transport.longest_answer,
            )
            for route in self.model.routes
        )


@dataclass(frozen=True, slots=True)
class Way:
    """A model that may come to answer.

    Attributes:
        name: the model's.
        price: of its tokens, where it is known.
        attempts: how often one call may be sent to it.
        longest_prompt: tokens a prompt can have, where that is known.
        longest_answer: tokens an answer can have, where that is known.
    """

    name: str
    price: Price | None
    attempts: int
    longest_prompt: int | None
    longest_answer: int | None


class RehearsedModels(ModelPool):
    """A pool of stand-ins for the models of a run."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__(options)
        self.rehearsals: list[Rehearsal] = []

    def __call__(self, spec: str, role: Role = "agent", *, api_base: str | None = None) -> ChatModel:
        """Returns a stand-in for the model that ``spec`` names."""
        limits = Limits(tpm=self.options.tpm)
        self.rehearsals.append(Rehearsal(super().__call__(spec, "agent", api_base=api_base), limits))
        return self.rehearsals[-1]
