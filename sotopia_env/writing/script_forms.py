"""The formats of the model's answers in the steps from a script to a template."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sotopia_env.foundation.records import Line
from sotopia_env.world.interview import Domain, GoalType, Role
from sotopia_env.world.scenario import RelationshipKind

Sentence = Annotated[Line, Field(min_length=2, max_length=400)]
Paragraph = Annotated[Line, Field(min_length=40, max_length=2000)]


class ScriptForm(BaseModel):
    """Base class of the forms."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SceneForm(ScriptForm):
    """Consecutive lines of a script that form a scene; ``turns`` is the number of spoken turns."""

    first: int
    last: int
    summary: Sentence
    speakers: tuple[Sentence, ...]
    turns: int


class Scenes(ScriptForm):
    """The scenes of a part of the script."""

    scenes: tuple[SceneForm, ...] = Field(min_length=1)


class Person(ScriptForm):
    """An important person in a scene."""

    name: Sentence
    about: Sentence


class Background(ScriptForm):
    """The information that is needed to play a scene."""

    background: Paragraph
    people: tuple[Person, ...] = Field(min_length=3, max_length=5)


class Wishes(ScriptForm):
    """The goals of one person."""

    name: Sentence
    goals: tuple[Sentence, ...] = Field(min_length=1, max_length=3)


class Goals(ScriptForm):
    """The goals of all people in a scene."""

    people: tuple[Wishes, ...]


class SituationForm(Goals):
    """A situation that can be played anew."""

    context: Paragraph


class FilteredGoal(ScriptForm):
    """A goal that is suitable for play, or an empty text."""

    examination: str
    goal: Annotated[Line, Field(max_length=400)]
    type: GoalType


class FactForm(ScriptForm):
    """A fact that only one person knows, with a question to the others."""

    name: Sentence
    fact: Sentence
    question: Sentence
    answer: Sentence


class PrivateFacts(ScriptForm):
    """The private information of a situation."""

    facts: tuple[FactForm, ...]


class Negatives(ScriptForm):
    """Wrong answers to one question."""

    wrong: Annotated[tuple[Sentence, ...], Field(min_length=3, max_length=3)]


class Replacement(ScriptForm):
    """A replacement for a text that refers to the script."""

    original: Sentence
    replacement: Sentence


class Traces(ScriptForm):
    """The mentions of people, by seat, and replacements of other texts that refer to the script."""

    mentions: tuple[tuple[Sentence, ...], ...]
    replacements: tuple[Replacement, ...]


class SlotRules(ScriptForm):
    """The people who can take a seat."""

    role: Role
    ages: tuple[int, int]
    occupations: tuple[Sentence, ...] = Field(min_length=3)


class TieRules(ScriptForm):
    """The relationship between two seats."""

    seats: tuple[int, int]
    kind: RelationshipKind
    backstory: Annotated[Line, Field(max_length=400)] = ""
    age_gap: tuple[int, int] | None = None


class Slots(ScriptForm):
    """The parts of a template other than its texts."""

    domain: Domain
    seats: tuple[SlotRules, ...]
    ties: tuple[TieRules, ...]
