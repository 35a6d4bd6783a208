"""Drafting with a language model: a prompt, the form of the answer, its check, and a record of every question.

An answer is read as one JSON object of the form, and checked. If it is refused, the model is asked again with the
reason, a limited number of times; then the refusal is recorded. Answers are not repaired. Every question is appended to
a file as soon as it is answered, so that the same call continues a killed one without repeating answered questions.
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
from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.concurrency.workers import work_through
from sotopia_env.evaluators.judge.question import Manner
from sotopia_env.evaluators.judge.verdict import Refusal, read_object
from sotopia_env.foundation.answer_text import ending_problem
from sotopia_env.foundation.errors import ContextLengthError, InvalidValueError, ModelCallError, ModelRefusedError
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape, quote
from sotopia_env.foundation.records import JsonObject, Record
from sotopia_env.foundation.validation import explain
from sotopia_env.storage import Journal
from sotopia_env.world.observation import ChatMessage

load = reader(__package__)

logger = logging.getLogger(__name__)
MANNER = Manner(temperature=1.0, reasks=2)
_ECHO, _REASON = 4000, 500  # maximum characters of a refused answer, and of the reason, in a re-ask
_T = TypeVar("_T")
_AnswerT = TypeVar("_AnswerT", bound=BaseModel)


class Written(Record):
    """A question to the model and its result; one line of a file.

    Attributes:
        source: the origin of the question's subject, such as the source of an inspiration.
        text: the subject of the question, such as an inspiration; different for every line.
        result: the accepted result, as JSON; ``None`` if no answer was accepted.
        refusal: why the last answer was refused; empty if it was accepted.
        reasks: the number of further requests after the first one.
        model: the name of the model in the server's answer.
    """

    source: str
    text: str
    result: JsonObject | None = None
    refusal: str = ""
    reasks: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class DraftQuestion(Generic[_AnswerT]):
    """A question to the model, with the form and the check of its answer.

    Attributes:
        source: see :class:`Written`.
        text: see :class:`Written`.
        prompt: the name of the prompt file.
        form: the form of the answer.
        accept: returns the result of an answer as JSON, or raises :class:`InvalidValueError` with the problem.
        values: the values of the prompt's placeholders; all except ``Trusted`` texts are quoted.
    """

    source: str
    text: str
    prompt: str
    form: type[_AnswerT]
    accept: Callable[[_AnswerT], Mapping[str, Any]]
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> ChatMessage:
        """The first message of the conversation."""
        values = {name: _prompt_text(value) for name, value in self.values.items()}
        return {"role": "user", "content": fill(load(self.prompt), **values)}

    def read(self, reply: ChatReply) -> Mapping[str, Any] | Refusal:
        """Returns the result of an answer, or the reason for its refusal."""
        if problem := ending_problem(reply.text, reply.finish_reason):
            return Refusal(problem)
        item = read_object(reply.text)
        if isinstance(item, Refusal):
            return item
        # JSON escapes can contain half a surrogate pair, which could not be written to a file.
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
    """Text from the package itself, which is inserted into a prompt without quoting."""


def _prompt_text(value: Any) -> str:
    if isinstance(value, Trusted):
        return value
    if isinstance(value, str):
        return quote(" ".join(value.split()))
    return escape(json.dumps(value, ensure_ascii=False))  # in JSON, every text of a list or object is quoted


@cache
def _names(form: Any) -> tuple[str, ...]:
    """Returns the field names of a form and of the forms within it, for hints."""
    parts = [part for info in form.model_fields.values() for part in _forms(info.annotation)]
    return (*form.model_fields, *(name for part in parts for name in _names(part)))


def _forms(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [form for part in get_args(annotation) for form in _forms(part)]


def _complaint(text: str, reason: str) -> list[ChatMessage]:
    echo = escape(text if len(text) <= _ECHO else f"{text[:_ECHO]}…").strip() or "(no text)"
    request = fill(load("write_reask"), reason=quote(reason[:_REASON]))
    return [{"role": "assistant", "content": echo}, {"role": "user", "content": request}]


@dataclass
class Drafter:
    """Asks a model, and records its answers.

    Attributes:
        model: the writing model.
        manner: the sampling settings and the number of re-asks.
        concurrency: the number of questions, or scenes of a script, in progress at once.
        stop: ends the work early; questions answered until then are kept.
        watch: called before each request of a question, with the number of answers that were refused and the reason of
            the last refusal.
    """

    model: ChatModel
    manner: Manner = MANNER
    concurrency: int = 16
    stop: Stop = field(default_factory=Stop)
    watch: Callable[[int, str], None] = lambda _refused, _reason: None

    async def ask(self, question: DraftQuestion[Any]) -> Written | None:
        """Returns the result of one question; ``None`` if the model gave no answer.

        Raises:
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached.
        """

        def read(reply: ChatReply) -> tuple[Mapping[str, Any] | None, str]:
            result = question.read(reply)
            return (None, result.reason) if isinstance(result, Refusal) else (result, "")

        def prompt(_: int, complaints: Sequence[Complaint]) -> ShortenedRequest:
            self.watch(len(complaints), complaints[-1].reason if complaints else "")
            # Only the latest refused answer is repeated, so that the prompt does not grow with every re-ask.
            echo = _complaint(complaints[-1].text, complaints[-1].reason) if complaints else []
            return ShortenedRequest(self._request([question.message, *echo], question))

        try:
            result = await ask(self.model, prompt, read, reasks=self.manner.reasks)
        except ModelRefusedError:
            raise  # every other request would be refused, too
        except (ModelCallError, ContextLengthError) as error:
            logger.warning("%s: %r got no answer: %s", question.source, question.text, error)
            return None
        return Written(
            source=question.source,
            text=question.text,
            result=None if result.value is None else dict(result.value),
            refusal=result.reason,
            reasks=len(result.replies) - 1,
            model=result.reply.model,
        )

    async def work_through(self, items: Sequence[_T], work: Callable[[_T], Awaitable[bool]], unit: str) -> None:
        """Calls ``work`` for all items, several at a time; see :func:`sotopia_env.concurrency.workers.work_through`.

        Raises:
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached.
        """
        await work_through(items, work, self.stop, Progress(len(items), 0, None, unit), self.concurrency)
        if self.stop.failure is not None:
            raise self.stop.failure

    async def record(self, question: DraftQuestion[Any], journal: Journal[Written]) -> Written | None:
        """Does the same as :meth:`ask`, and appends the result to the journal before it is returned.

        Raises:
            Dropped: the end of the work was requested before the question was asked.
        """
        self.stop.check()
        answer = await self.ask(question)
        if answer is not None:
            journal.append(answer)
        return answer

    def _request(self, messages: Sequence[ChatMessage], question: DraftQuestion[Any]) -> ChatRequest:
        return ChatRequest(
            messages=tuple(messages),
            temperature=self.manner.temperature,
            max_tokens=self.manner.max_tokens,
            schema=question.form.model_json_schema(),
            label=f"{question.prompt}: {question.text[:60]}",
        )


def open_written(path: Path) -> Journal[Written]:
    """Opens a file of questions, with their texts as keys; see :class:`~sotopia_env.storage.Journal`."""
    return Journal(path, Written, lambda written: written.text)
