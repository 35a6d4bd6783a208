"""The interface of a chat model: requests with messages in, replies with text and cost out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from sotopia_env.foundation.errors import InvalidValueError, ModelFailure, UnknownNameError
from sotopia_env.world.episode import Usage
from sotopia_env.world.observation import ChatMessage, FunctionCall

Role = Literal["agent", "judge"]
"""The account of a call: the ledger sums the calls of agents and of judges separately."""

REQUEST_SETTINGS: Mapping[str, type] = {
    "reasoning_effort": str,
    "verbosity": str,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "repetition_penalty": float,
    "num_ctx": int,
    "chat_template_kwargs": dict,
}
"""Fields of a request's body that a policy's name may set, with their types; none is one that this package sets."""


def check_request(request: Mapping[str, Any]) -> None:
    """Raises :class:`InvalidValueError` unless these are :data:`REQUEST_SETTINGS` of their types."""
    if not isinstance(request, Mapping):
        raise InvalidValueError(field="request", expected='an object such as {"top_p": 0.9}', got=request)
    for name, value in request.items():
        kind = REQUEST_SETTINGS.get(name)
        if kind is None:
            hint = "models.extra_body sets any other field that is not sotopia's own"
            raise UnknownNameError(field="request", got=name, valid=REQUEST_SETTINGS, hint=hint)
        is_valid = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
        if not is_valid:
            raise InvalidValueError(field=f"request.{name}", expected=f"a value of type {kind.__name__}", got=value)


Failure = tuple[ModelFailure | Literal["unconstrained"], str]
"""The kind and message of a failure from which the call recovered."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model.

    Attributes:
        messages: the conversation; the system message comes first.
        role: the account of the call.
        temperature: the sampling temperature; ``None`` leaves it to the server.
        max_tokens: the limit on the answer, in tokens; ``None`` leaves it to the server.
        seed: the sampling seed, for servers that accept one.
        tools: the functions, one of which the answer must call, each with ``name``, ``description`` and ``parameters``
            (a JSON schema); empty for a text answer. A model that cannot call functions answers with text.
        schema: the JSON schema of the answer; ignored by servers that do not enforce schemas (the caller parses and
            validates the answer in any case).
        logprobs: whether to request token ids and log-probabilities, if the server has them.
        alternatives: with ``logprobs``, of how many of the best tokens at each position.
        replicate: distinguishes repeated identical requests, so that a response cache stores their answers separately.
        reask: the number of refused answers to this question; the response cache stores re-asks separately, too.
        extra: more fields of the body, such as ``{"reasoning_effort": "low"}``, for models on servers.
        label: the name of the request in the ledger (an episode's key and turn); never sent to a model.
        accepts: returns whether an answer is usable; a response cache stores and returns usable answers only.
            ``None`` accepts every answer.
    """

    messages: tuple[ChatMessage, ...]
    role: Role = "agent"
    temperature: float | None = 1.0
    max_tokens: int | None = None
    seed: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    schema: Mapping[str, Any] | None = None
    logprobs: bool = False
    alternatives: int = 1
    replicate: int = 0
    reask: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    accepts: Callable[[ChatReply], bool] | None = field(default=None, compare=False, repr=False)

    def is_usable(self, reply: ChatReply) -> bool:
        """Returns whether the caller accepts an answer."""
        return self.accepts is None or self.accepts(reply)


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A token of an answer, and what the model might have written there instead.

    Attributes:
        text: the text of the token.
        probabilities: those of the best tokens at its position, by their texts, as far as the server sends them.
    """

    text: str
    probabilities: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A model's answer, with its cost and origin.

    Attributes:
        text: the utterance, without reasoning.
        reasoning: the reasoning that the server sent in a separate field or in a thinking block.
        finish_reason: why the server stopped, in the server's term (``stop``, ``length``, …).
        prompt_tokens: the server's count of prompt tokens; ``None`` if it does not count them.
        completion_tokens: the server's count of answer tokens, including reasoning; ``None`` if it does not count them.
        cost: the cost in US dollars; ``None`` (never 0) if the price or the number of tokens is unknown.
        latency: the duration of the successful attempt, in seconds.
        model: the name and version that the server reports.
        attempts: the number of attempts.
        fallback: whether a declared fallback model answered.
        cached: whether the answer comes from the response cache, at no cost.
        token_ids: the sampled token ids, if the server sends them.
        logprobs: the log-probabilities of these tokens, if the server sends them.
        alternatives: the tokens of the answer with the best ones at each position, if the server sends several.
        prompt_token_ids: the token ids of the prompt as the server rendered it, if it sends them.
        failures: every failed attempt before this answer, and why decoding could not be constrained to the schema.
        calls: the function calls in the answer, as the model wrote them.
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
    alternatives: tuple[TokenChoice, ...] | None = None
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
        """All settings that influence the answers, as JSON; no secrets."""
        ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Returns the answer.

        Raises:
            ContextLengthError: the conversation does not fit the model.
            BudgetExceededError: the ledger's limit is reached; nothing was sent.
            ModelCallError: the call failed after all permitted retries.
        """
        ...

    async def close(self) -> None:
        """Releases connections; the model cannot be used afterwards."""
        ...


@runtime_checkable
class Described(Protocol):
    """A chat model in this process that can tell what it is made of."""

    def features(self) -> Sequence[tuple[str, Literal["yes", "no"], str]]:
        """Returns rows of a report: the name of a feature, whether the model has it, and details."""
        ...


@runtime_checkable
class WeighsAnswers(Protocol):
    """A chat model that can tell how probable each of a few answers is, without sampling any."""

    async def shares(self, request: ChatRequest, answers: Sequence[Sequence[str]]) -> Sequence[Sequence[float]]:
        """Returns the probabilities of answers to a request if the model must give one of them, for several groups.

        Args:
            request: the request.
            answers: groups of different answers; each group is a question of its own.

        Returns:
            For each group, the probabilities of its answers, which sum to 1.

        Raises:
            ContextLengthError: the conversation does not fit the model.
        """
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A chat model that can count tokens with its tokenizer."""

    def prompt_tokens(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """Returns the number of tokens in a conversation up to the start of the answer, including functions."""
        ...

    def answer_tokens(self, text: str) -> int:
        """Returns the number of tokens in an answer with this text, including the end-of-turn token."""
        ...
