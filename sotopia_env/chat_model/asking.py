"""The one loop that asks a model until its answer can be read: ask, read, complain, ask again, shorten.

Policies, interviews, judges and writers differ in what they ask, in how they read an answer and in how they word a
complaint. How often a model is asked again, what happens to a question that is too long, and which answer counts in the
end is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest
from sotopia_env.errors import ContextLengthError

T = TypeVar("T")
_stand_in: ContextVar[Callable[[ChatModel], ChatModel] | None] = ContextVar("stand_in", default=None)


@contextmanager
def asking_instead(stand_in: Callable[[ChatModel], ChatModel]) -> Iterator[None]:
    """Within this context, ``stand_in(model)`` is asked in the place of a model, so that nothing is sent or sampled."""
    token = _stand_in.set(stand_in)
    try:
        yield
    finally:
        _stand_in.reset(token)


async def complete(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Returns the answer of the model, or of the one that :func:`asking_instead` puts in its place."""
    stand_in = _stand_in.get()
    return await (model if stand_in is None else stand_in(model)).complete(request)


@dataclass(frozen=True, slots=True)
class Complaint:
    """An answer that was refused.

    Attributes:
        text: of the answer, as the model wrote it.
        reason: why it was refused.
    """

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prompted:
    """A request, and how much of the question it leaves out."""

    request: ChatRequest
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The end of a question.

    Attributes:
        value: what the last answer was read as.
        reason: why that answer was refused, too; empty when it was accepted.
        replies: every answer, at least one.
        omitted: how much of the question was left out when the last answer was given.
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
    prompt: Callable[[int, Sequence[Complaint]], Prompted],
    read: Callable[[ChatReply], tuple[T, str]],
    *,
    reasks: int,
    shorten: Callable[[int], int | None] = _never,
    convert: Callable[[ChatReply], ChatReply] | None = None,
) -> Answered[T]:
    """Asks until an answer is accepted or the re-asks are used up.

    Args:
        model: to be asked.
        prompt: returns the request that leaves out at least so much of the question, after these complaints. The
            number of complaints becomes the request's ``reask``.
        read: returns what an answer was read as, and why it is refused; empty to accept it.
        reasks: how often the model is asked again.
        shorten: returns how much to leave out when leaving out so much was not enough; ``None`` when no more may be.
        convert: returns the reply that is read, repeated in complaints and kept, such as function calls as text.

    Raises:
        ContextLengthError: not even the shortest first request fits. Where a request with complaints does not, the
            last answer stands.
        ModelCallError: a call failed for good.
        BudgetExceededError: the ledger's limit is reached.
    """
    answered: Answered[T] | None = None
    complaints: list[Complaint] = []
    omitted = 0
    while True:
        prompted = prompt(omitted, complaints)
        try:
            reply = await complete(model, replace(prompted.request, reask=len(complaints)))
        except ContextLengthError:
            fewer = shorten(prompted.omitted)
            if fewer is not None:
                omitted = fewer
                continue
            if answered is None:
                raise
            return answered
        reply = reply if convert is None else convert(reply)
        value, reason = read(reply)
        replies = (*(answered.replies if answered else ()), reply)
        answered = Answered(value, reason, replies, prompted.omitted)
        if not reason or len(replies) > reasks:
            return answered
        complaints.append(Complaint(reply.text, reason))
