"""The loop that asks a model until its answer can be read: send, read, complain and ask again, or shorten the question.

Policies, interviews, judges and writers share this loop. Each has its own questions, its own reader of answers and its
own wording of complaints. The loop decides how often a model is asked again, how a question that is too long is
shortened, and which answer counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest
from sotopia_env.foundation.errors import ContextLengthError

T = TypeVar("T")
# A context variable, so that concurrent tasks of the same process can still call real models.
_stand_in: ContextVar[Callable[[ChatModel], ChatModel] | None] = ContextVar("stand_in", default=None)


@contextmanager
def replacing_models(stand_in: Callable[[ChatModel], ChatModel]) -> Iterator[None]:
    """Calls ``stand_in(model)`` instead of any model within this context, so that nothing is sent or sampled."""
    token = _stand_in.set(stand_in)
    try:
        yield
    finally:
        _stand_in.reset(token)


async def complete(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Returns the answer of the model, or of its replacement within :func:`replacing_models`."""
    stand_in = _stand_in.get()
    return await (model if stand_in is None else stand_in(model)).complete(request)


@dataclass(frozen=True, slots=True)
class Complaint:
    """A refused answer.

    Attributes:
        text: the text of the answer, as the model wrote it.
        reason: why the answer was refused.
    """

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShortenedRequest:
    """A request, and the number of units of the question (such as turns) that it omits."""

    request: ChatRequest
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class AskResult(Generic[T]):
    """The result of asking a question.

    Attributes:
        value: the value read from the last answer.
        reason: why the last answer was refused; empty if it was accepted.
        replies: every answer, at least one.
        omitted: the number of units of the question that the last request omitted.
    """

    value: T
    reason: str
    replies: tuple[ChatReply, ...]
    omitted: int

    @property
    def reply(self) -> ChatReply:
        """The last answer."""
        return self.replies[-1]


def _never(omitted: int) -> int | None:
    return None


async def ask(
    model: ChatModel,
    prompt: Callable[[int, Sequence[Complaint]], ShortenedRequest],
    read: Callable[[ChatReply], tuple[T, str]],
    *,
    reasks: int,
    shorten: Callable[[int], int | None] = _never,
    convert: Callable[[ChatReply], ChatReply] | None = None,
) -> AskResult[T]:
    """Asks until an answer is accepted or the re-asks are used up.

    Args:
        model: the model to ask.
        prompt: returns a request that omits at least the given number of units of the question and includes the given
            complaints. The number of complaints becomes the request's ``reask``.
        read: returns the value of an answer, and the reason to refuse the answer; an empty reason accepts it.
        reasks: how often the model may be asked again.
        shorten: returns the number of units to omit after omitting the given number was not enough; ``None`` if the
            question cannot be shortened further.
        convert: converts a reply before it is read, repeated in complaints and stored, such as function calls to text.

    Raises:
        ContextLengthError: not even the shortest first request fits. If a request with complaints does not fit, the
            last answer is returned instead.
        ModelCallError: a call failed for good.
        BudgetExceededError: the ledger's limit is reached.
    """
    result: AskResult[T] | None = None
    complaints: list[Complaint] = []
    omitted = 0
    while True:
        shortened = prompt(omitted, complaints)
        try:
            reply = await complete(model, replace(shortened.request, reask=len(complaints)))
        except ContextLengthError:
            more = shorten(shortened.omitted)
            # A shorter request repeats this attempt: the model has not answered, so it is not a re-ask.
            if more is not None:
                omitted = more
                continue
            if result is None:
                raise
            return result
        reply = reply if convert is None else convert(reply)
        value, reason = read(reply)
        replies = (*(result.replies if result else ()), reply)
        result = AskResult(value, reason, replies, shortened.omitted)
        if not reason or len(replies) > reasks:
            return result
        complaints.append(Complaint(reply.text, reason))
