"""Drafting with a language model: a prompt, the form of the answer, its check, and a record of every question.

An answer is read as one JSON object of the form, and checked. One that is refused is asked for again with the reason, a
bounded number of times, and then recorded as refused; nothing is repaired. Every question gets its line in a file as
soon as it is answered, so that the same call continues a killed one and asks no answered question again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from sotopia_env.chat_model import ChatModel, ChatReply, ChatRequest
from sotopia_env.chat_model.asking import Complaint, ShortenedRequest, ask
from sotopia_env.concurrency import Progress, Stop, work_through
from sotopia_env.errors import ContextLengthError, InvalidValueError, ModelCallError, ModelRefusedError
from sotopia_env.evaluators import Manner, Refusal, read_object
from sotopia_env.files import read_lines
from sotopia_env.prompts import fill, load
from sotopia_env.quoting import disarm, quote
from sotopia_env.records import JsonObject, Record, explain, read_record
from sotopia_env.storage import Journal
from sotopia_env.world.observation import ChatMessage

logger = logging.getLogger(__name__)
MANNER = Manner(temperature=1.0, reasks=2)
_ECHO, _REASON = 4000, 500
_T = TypeVar("_T")
_AnswerT = TypeVar("_AnswerT", bound=BaseModel)


class Written(Record):
    """A question to the model and its result; a line of a file.

    Attributes:
        source: where what it is about comes from, such as the source of an inspiration.
        text: what it is about, such as an inspiration; different for every line.
        result: what was accepted, as JSON; ``None`` if no answer was.
        refusal: why the last answer was refused, if it was.
        reasks: number of further requests.
        model: name of the model in the server's answer.
    """

    source: str
    text: str
    result: JsonObject | None = None
    refusal: str = ""
    reasks: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Question(Generic[_AnswerT]):
    """What the model is asked.

    Attributes:
        source: see :class:`Written`.
        text: see :class:`Written`.
        prompt: name of the prompt file.
        form: of the answer.
        accept: returns the result of an answer as JSON, or raises :class:`InvalidValueError` with what is wrong.
        values: of the prompt's placeholders; anything but ``Trusted`` text is quoted.
    """

    source: str
    text: str
    prompt: str
    form: type[_AnswerT]
    accept: Callable[[_AnswerT], Mapping[str, Any]]
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> ChatMessage:
        """The first message."""
        values = {name: _shown(value) for name, value in self.values.items()}
        return {"role": "user", "content": fill(load(self.prompt), **values)}

    def read(self, reply: ChatReply) -> Mapping[str, Any] | Refusal:
        """Returns the result of an answer, or why it is refused."""
        if reply.finish_reason == "length":
            return Refusal("the answer was cut off; be brief")
        item = read_object(reply.text)
        if isinstance(item, Refusal):
            return item
        try:
            json.dumps(item, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return Refusal("a text holds half of a surrogate pair; write whole characters")
        try:
            return self.accept(self.form.model_validate(item))
        except ValidationError as error:
            return Refusal(explain(error, _names(self.form), item))
        except InvalidValueError as error:
            return Refusal(str(error))


class Trusted(str):
    """Text of the package's own, which stands in a prompt as it is."""


def _shown(value: Any) -> str:
    if isinstance(value, Trusted):
        return value
    if isinstance(value, str):
        return quote(" ".join(value.split()))
    return disarm(json.dumps(value, ensure_ascii=False))  # JSON of lists and objects is quoted text by text


@cache
def _names(form: Any) -> tuple[str, ...]:
    """The field names of a form and of the forms within it, for hints."""
    parts = [part for info in form.model_fields.values() for part in _forms(info.annotation)]
    return (*form.model_fields, *(name for part in parts for name in _names(part)))


def _forms(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [form for part in get_args(annotation) for form in _forms(part)]


def _complaint(text: str, reason: str) -> list[ChatMessage]:
    echo = disarm(text if len(text) <= _ECHO else f"{text[:_ECHO]}…").strip() or "(no text)"
    request = fill(load("write_reask"), reason=quote(reason[:_REASON]))
    return [{"role": "assistant", "content": echo}, {"role": "user", "content": request}]


@dataclass
class Drafter:
    """Asks a model, and records what it answers.

    Attributes:
        model: that writes.
        manner: of the questions.
        concurrency: questions, or scenes of a script, in progress at once.
        stop: ends the work early; what was answered by then is kept.
    """

    model: ChatModel
    manner: Manner = MANNER
    concurrency: int = 16
    stop: Stop = field(default_factory=Stop)

    async def ask(self, question: Question[Any]) -> Written | None:
        """Returns the result of one question; ``None`` if the model gave no answer.

        Raises:
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached.
        """

        def read(reply: ChatReply) -> tuple[Mapping[str, Any] | None, str]:
            result = question.read(reply)
            return (None, result.reason) if isinstance(result, Refusal) else (result, "")

        def prompt(_: int, complaints: Sequence[Complaint]) -> ShortenedRequest:
            echo = _complaint(complaints[-1].text, complaints[-1].reason) if complaints else []
            return ShortenedRequest(self._request([question.message, *echo], question))

        try:
            asked = await ask(self.model, prompt, read, reasks=self.manner.reasks)
        except ModelRefusedError:
            raise  # every other request would be refused too
        except (ModelCallError, ContextLengthError) as error:
            logger.warning("%s: %r got no answer: %s", question.source, question.text, error)
            return None
        return Written(
            source=question.source,
            text=question.text,
            result=None if asked.value is None else dict(asked.value),
            refusal=asked.reason,
            reasks=len(asked.replies) - 1,
            model=asked.reply.model,
        )

    async def work_through(self, items: Sequence[_T], work: Callable[[_T], Awaitable[bool]], unit: str) -> None:
        """Does ``work`` on all items, several at a time; see :func:`sotopia_env.concurrency.work_through`.

        Raises:
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached.
        """
        await work_through(items, work, self.stop, Progress(len(items), 0, None, unit), self.concurrency)
        if self.stop.failure is not None:
            raise self.stop.failure

    async def record(self, question: Question[Any], journal: Journal[Written]) -> Written | None:
        """As :meth:`ask`; the result is in the journal when it is returned.

        Raises:
            Dropped: the end of the work was requested before the question was asked.
        """
        self.stop.check()
        written = await self.ask(question)
        if written is not None:
            journal.append(written)
        return written

    def _request(self, messages: Sequence[ChatMessage], question: Question[Any]) -> ChatRequest:
        return ChatRequest(
            messages=tuple(messages),
            temperature=self.manner.temperature,
            max_tokens=self.manner.max_tokens,
            schema=question.form.model_json_schema(),
            label=f"{question.prompt}: {question.text[:60]}",
        )


def open_written(path: Path) -> Journal[Written]:
    """Opens a file of questions, by their texts; see :class:`~sotopia_env.storage.Journal`."""
    return Journal(path, Written, lambda written: written.text)


def read_written(path: Path) -> list[Written]:
    """Returns the lines of a file of questions, none for a file that is not there.

    Raises:
        DamagedRecordError: a line cannot be read; says which.
    """
    return [read_record(Written, line, origin) for origin, line in (read_lines(path) if path.exists() else ())]
