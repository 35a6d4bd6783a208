"""The interface of a chat model: requests with messages in, replies with text and cost out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from sotopia_env.errors import ModelFailure
from sotopia_env.world.episode import Usage
from sotopia_env.world.observation import ChatMessage, FunctionCall

Role = Literal["agent", "judge"]
"""On whose account a call is: the ledger sums agents and judges separately."""

Failure = tuple[ModelFailure | Literal["unconstrained"], str]
"""Kind and message of something that failed and was survived."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a model.

    Attributes:
        messages: the conversation; system first.
        role: on whose account the call goes.
        temperature: sampling temperature; ``None`` leaves it to the server.
        max_tokens: limit on the answer, in tokens; ``None`` leaves it to the server.
        seed: passed to servers that take one.
        tools: functions of which the answer is to be one call, each with ``name``, ``description`` and ``parameters``
            (a JSON schema); empty where the answer is a text. A model that cannot call functions answers with text.
        schema: JSON schema of the answer; used where the server enforces schemas, ignored where not (the answer is
            parsed and validated by the caller in any case).
        logprobs: whether to ask for token ids and log-probabilities, where the server has them.
        replicate: distinguishes repeated identical questions, so that a response cache answers them separately.
        reask: how many answers to this question were refused before; likewise.
        label: name of the question in the ledger (an episode's key and turn); never sent to a model.
        accepts: whether an answer is usable; a response cache stores and returns no other. ``None``: every one.
    """

    messages: tuple[ChatMessage, ...]
    role: Role = "agent"
    temperature: float | None = 1.0
    max_tokens: int | None = None
    seed: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    schema: Mapping[str, Any] | None = None
    logprobs: bool = False
    replicate: int = 0
    reask: int = 0
    label: str = ""
    accepts: Callable[[ChatReply], bool] | None = field(default=None, compare=False, repr=False)

    def is_usable(self, reply: ChatReply) -> bool:
        """Whether an answer is worth storing."""
        return self.accepts is None or self.accepts(reply)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A model's answer, with its cost and origin.

    Attributes:
        text: the utterance, without reasoning.
        reasoning: thinking that the server sent in a field of its own or in a thinking block; never part of ``text``.
        finish_reason: why the server stopped, in its own word (``stop``, ``length``, …).
        prompt_tokens: as counted by the server; ``None`` when it does not count.
        completion_tokens: likewise, reasoning included.
        cost: in US dollars; ``None`` when price or tokens are unknown, never 0 for "unknown".
        latency: seconds of the answered attempt.
        model: name and version as answered by the server.
        attempts: how many attempts it took.
        fallback: whether a declared fallback model answered.
        cached: whether the response cache answered; then nothing was spent.
        token_ids: sampled token ids, where the server gives them.
        logprobs: their log-probabilities, where the server gives them.
        prompt_token_ids: token ids of the prompt as the server rendered it, where it gives them.
        failures: every failed attempt before this answer, and why its decoder could not keep to the schema.
        calls: the functions that the model called, as it wrote them.
    """

    text: str
    reasoning: str = ""
    finish_reason: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    latency: float = 0.0
    model: str = ""
    attempts: int = 1
    fallback: bool = False
    cached: bool = False
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    failures: tuple[Failure, ...] = ()
    calls: tuple[FunctionCall, ...] = ()

    @property
    def usage(self) -> Usage:
        """Tokens and cost."""
        return Usage(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens, cost=self.cost)


@runtime_checkable
class ChatModel(Protocol):
    """Answers chat requests; safe for any number of concurrent calls in one event loop."""

    @property
    def name(self) -> str:
        """The model as the user named it, e.g. ``local/my-model``."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes its answers, as JSON; no secrets."""
        ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Returns the answer.

        Raises:
            ContextLengthError: the conversation does not fit the model.
            BudgetExceededError: the ledger's limit is reached; nothing was sent.
            ModelCallError: the call failed for good, after the retries that are allowed.
        """
        ...

    async def close(self) -> None:
        """Releases connections; the model cannot be used afterwards."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A chat model that knows its own tokenizer."""

    def prompt_tokens(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """Returns the number of tokens of a conversation, up to where the answer begins, functions included."""
        ...

    def answer_tokens(self, text: str) -> int:
        """Returns the number of tokens that an answer of this text takes, its end included."""
        ...
