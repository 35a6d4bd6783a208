"""The answers of the steps from a script to a template, in the formats that the model writes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sotopia_env.records import Line
from sotopia_env.world.interview import Domain, GoalType, Role
from sotopia_env.world.scenario import RelationshipKind

Sentence = Annotated[Line, Field(min_length=2, max_length=400)]
Paragraph = Annotated[Line, Field(min_length=40, max_length=2000)]


class Form(BaseModel):
    """Base of the forms."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scene(Form):
    """Lines of a script that belong together; ``turns`` counts how many times somebody speaks."""

    first: int
    last: int
    summary: Sentence
    speakers: tuple[Sentence, ...]
    turns: int


class Scenes(Form):
    """The scenes of a part of the script."""

    scenes: tuple[Scene, ...] = Field(min_length=1)


class Person(Form):
    """Somebody who matters in a scene."""

    name: Sentence
    about: Sentence


class Background(Form):
    """What must be known to play a scene."""

    background: Paragraph
    people: tuple[Person, ...] = Field(min_length=3, max_length=5)


class Wishes(Form):
    """The goals of one person."""

    name: Sentence
    goals: tuple[Sentence, ...] = Field(min_length=1, max_length=3)


class Goals(Form):
    """The goals of all."""

    people: tuple[Wishes, ...]


class Situation(Goals):
    """A situation that can be played afresh."""

    context: Paragraph


class FilteredGoal(Form):
    """A goal that is fit for play, or an empty text."""

    examination: str
    goal: Annotated[Line, Field(max_length=400)]
    type: GoalType


class Fact(Form):
    """What one person alone knows, with a question to the others."""

    name: Sentence
    fact: Sentence
    question: Sentence
    answer: Sentence


class Facts(Form):
    """The private information of a situation."""

    facts: tuple[Fact, ...]


class Negatives(Form):
    """Wrong answers to one question."""

    wrong: Annotated[tuple[Sentence, ...], Field(min_length=3, max_length=3)]


class Replacement(Form):
    """What stands for something that points to the script."""

    original: Sentence
    replacement: Sentence


class Traces(Form):
    """How the people are mentioned, by seat, and what else points to the script."""

    mentions: tuple[tuple[Sentence, ...], ...]
    replacements: tuple[Replacement, ...]


class SlotRules(Form):
    """Who can be in a seat."""

    role: Role
    ages: tuple[int, int]
    occupations: tuple[Sentence, ...] = Field(min_length=3)


class TieRules(Form):
    """How two seats stand to each other."""

    seats: tuple[int, int]
    kind: RelationshipKind
    backstory: Annotated[Line, Field(max_length=400)] = ""
    age_gap: tuple[int, int] | None = None


class Slots(Form):
    """Everything of a template that its texts do not say."""

    domain: Domain
    seats: tuple[SlotRules, ...]
    ties: tuple[TieRules, ...]
