"""Forms for people: questions, and reading the answers that a browser sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings

LONGEST_ANSWER = 10_000
"""The maximum length of a text, in characters."""


class FormQuestion(Settings):
    """One question.

    Attributes:
        name: name of the answer in exports.
        text: the question.
        kind: ``text``, ``choice`` (one of ``options``), ``scale`` (a whole number from ``low`` to ``high``), or
            ``check`` (a box that must be ticked if the answer is required).
        note: a hint below the question.
        options: the answers of a choice.
        low: the lowest number of a scale.
        high: the highest number of a scale.
        required: whether an answer is needed.
        min_words: the fewest words of a text.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")
    text: str
    kind: Literal["text", "choice", "scale", "check"] = "text"
    note: str = ""
    options: tuple[str, ...] = ()
    low: int = 0
    high: int = 10
    required: bool = True
    min_words: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "choice" and len(self.options) < 2:
            raise InvalidValueError(field="options", expected="two or more, for a choice", got=len(self.options))
        for number, option in enumerate(self.options):
            # What a browser sends back is compared with the option, without the spaces around it.
            if option in self.options[:number] or option != option.strip() or len(option.splitlines()) != 1:
                raise InvalidValueError(field="options", expected="different texts of one line each", got=option)
        if self.kind == "scale" and not self.low < self.high <= self.low + 100:
            raise InvalidValueError(field="high", expected=f"{self.low + 1} to {self.low + 100}", got=self.high)
        return self

    @property
    def points(self) -> tuple[int, ...]:
        """The numbers of a scale."""
        return tuple(range(self.low, self.high + 1))

    def read(self, text: str) -> tuple[str | int | bool | None, str]:
        """Returns the answer in the text of a form field, and a message about its problem; empty if it is valid."""
        text = text.strip()
        if not text:
            return (False if self.kind == "check" else None), (_MISSING[self.kind] if self.required else "")
        if self.kind == "check":
            # Browsers send a ticked box as any text, and nothing for an empty one.
            return True, ""
        if self.kind == "scale":
            # `int` accepts underscores and spaces, and a very long text of digits is slow to convert: both are refused
            # here.
            number = int(text) if text.lstrip("-").isdecimal() and len(text) < 6 else None
            is_point = number is not None and self.low <= number <= self.high
            return (number, "") if is_point else (None, f"Choose a number from {self.low} to {self.high}.")
        if self.kind == "choice":
            return (text, "") if text in self.options else (None, "Choose one of the answers.")
        if len(text) > LONGEST_ANSWER:
            return None, f"Use at most {LONGEST_ANSWER:,} characters."
        words = len(text.split())
        return text, f"Use at least {self.min_words} words; you have written {words}." if words < self.min_words else ""


_MISSING = {
    "text": "Please answer.",
    "choice": "Choose one of the answers.",
    "scale": "Choose a number.",
    "check": "Please tick the box to continue.",
}


class Section(Settings):
    """Questions under a heading.

    Attributes:
        title: the heading.
        note: a text below the title.
        questions: in order.
    """

    title: str = ""
    note: str = ""
    questions: tuple[FormQuestion, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers read from a form.

    Attributes:
        values: answers by the name of the question; ``None`` for a question without an answer.
        problems: messages for the person by the name of the question; empty when the form is complete.
        raw: the fields as the browser sent them, to fill the form in again.
    """

    values: Mapping[str, str | int | bool | None]
    problems: Mapping[str, str]
    raw: Mapping[str, str]


def read_form(sections: tuple[Section, ...], sent: Mapping[str, str]) -> Answers:
    """Reads the answers to all questions; other fields are ignored."""
    values: dict[str, str | int | bool | None] = {}
    problems: dict[str, str] = {}
    for question in (question for section in sections for question in section.questions):
        values[question.name], problem = question.read(str(sent.get(question.name, "")))
        if problem:
            problems[question.name] = problem
    return Answers(values, problems, {name: str(value) for name, value in sent.items()})


def check_names(sections: tuple[Section, ...]) -> None:
    """Raises :class:`InvalidValueError` if two questions have the same name."""
    names = [question.name for section in sections for question in section.questions]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValueError("two questions have this name", field="questions", got=name)
