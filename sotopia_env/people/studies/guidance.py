"""The annotators' instructions: the dimensions, good and bad rationales, and a finished annotation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.records import Record
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.people.sheet import DimensionGuide, dimension_guides
from sotopia_env.people.studies.settings import AnnotateStudy

_HERE = Path(__file__).parent


class ExampleSeat(Record):
    """A character of the worked example."""

    name: str
    profile: str
    secret: str
    goal: str


class ExampleTurn(Record):
    """A turn of the worked example: the words or the action of the character in a seat."""

    seat: int
    text: str = ""
    act: str = ""


class ExampleScore(Record):
    """A score of the worked example with its rationale."""

    score: int
    rationale: str


class WorkedExample(Record):
    """An invented episode with a finished annotation.

    Attributes:
        situation: the context.
        seats: the characters.
        transcript: the conversation.
        scores: by dimension, one for each seat.
    """

    situation: str
    seats: tuple[ExampleSeat, ...]
    transcript: tuple[ExampleTurn, ...]
    scores: dict[str, tuple[ExampleScore, ...]]

    @model_validator(mode="after")
    def _check(self) -> WorkedExample:
        guides = dimension_guides()
        for name, scores in self.scores.items():
            if name not in guides:
                raise InvalidValueError(field=f"scores.{name}", got=name, valid=guides)
            guide = guides[name]
            if len(scores) != len(self.seats) or not all(guide.low <= item.score <= guide.high for item in scores):
                expected = f"a score from {guide.low} to {guide.high} for each seat"
                raise InvalidValueError(field=f"scores.{name}", expected=expected, got=[item.score for item in scores])
        return self


@dataclass(frozen=True, slots=True)
class Guidance:
    """The instructions of an annotation study.

    Attributes:
        dimensions: by name, the range and the meaning of the points.
        rationales: by name, a ``good`` and a ``bad`` rationale; none for a study's own dimensions.
        example: a finished annotation, whose scores are on the study's dimensions only.
    """

    dimensions: Mapping[str, DimensionGuide]
    rationales: Mapping[str, Mapping[str, str]]
    example: WorkedExample


def guidance(study: AnnotateStudy) -> Guidance:
    """Returns the instructions for the dimensions of a study."""
    guides = {
        name: guide
        for name, guide in dimension_guides(study.custom).items()
        if not study.dimensions or name in study.dimensions
    }
    example = worked_example()
    scores = {name: scores for name, scores in example.scores.items() if name in guides}
    return Guidance(
        dimensions=guides,
        rationales={name: texts for name, texts in rationales().items() if name in guides},
        example=example.model_copy(update={"scores": scores}),
    )


@cache
def rationales() -> dict[str, dict[str, str]]:
    """Returns for each of the seven dimensions a good and a bad rationale."""
    texts: dict[str, dict[str, str]] = _read("rationales.yaml")
    return texts


@cache
def worked_example() -> WorkedExample:
    """Returns the finished annotation of an invented episode, on all seven dimensions."""
    return WorkedExample.model_validate(_read("worked_example.yaml"))


def _read(name: str) -> Any:
    return read_yaml(_HERE / name)


def rationale_note(name: str) -> str:
    """Returns the hint for a rationale, with a good and a bad example."""
    example = rationales().get(name)
    rule = "Refer to something that a character said or did."
    return rule if example is None else f"{rule} Good: “{example['good']}” Not helpful: “{example['bad']}”"


def title(name: str) -> str:
    """Returns a dimension's name as a heading."""
    return name.replace("_", " ").capitalize()
