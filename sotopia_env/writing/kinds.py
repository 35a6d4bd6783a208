"""Kinds of records to write from inspirations: characters, relationships, and scenarios with or without an outcome.

Sources: SOTOPIA (arXiv 2310.11667), C.2; SOTOPIA-π (arXiv 2403.08715), B.1.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.records import Line
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.tasks import check
from sotopia_env.tasks.casting import cast_scenarios
from sotopia_env.tasks.lint.report import lint
from sotopia_env.tasks.lint.texts import GENDERED, PHRASE_LIMIT, PRONOUNS, WORD_LIMIT, gendered_words
from sotopia_env.tasks.open_scenario import OpenScenario
from sotopia_env.world import Character, Relationship, Scenario, Seat, Task
from sotopia_env.world.scenario import ADULT, Constraints, RelationshipKind
from sotopia_env.world.taskset import Cast, TaskSet
from sotopia_env.writing.drafting import DraftQuestion, Trusted
from sotopia_env.writing.inspirations import Inspiration, plain
from sotopia_env.writing.likeness import nearest_text

load = reader(__package__)

_NUMBERED = re.compile(r"\b(agent|person|participant|character|player|speaker)[ _-]?([0-9]|[AB])\b", re.IGNORECASE)
_PRONOUNS = {"woman": "she/her", "man": "he/him", "nonbinary": "they/them"}
WRITTEN_KINDS = (
    RelationshipKind.FAMILY,
    RelationshipKind.FRIEND,
    RelationshipKind.ROMANTIC,
    RelationshipKind.ACQUAINTANCE,
)
"""The kinds of relationships to write; all other pairs are strangers."""


class Writing(Protocol):
    """A kind of records that a model writes, one from each inspiration."""

    def question(self, inspiration: Inspiration) -> DraftQuestion[Any]:
        """Returns the question; a result that it has accepted is not accepted again."""
        ...

    def restore(self, result: Mapping[str, Any]) -> None:
        """Registers a result that an earlier call has accepted.

        Raises:
            ValidationError: ``result`` is not of this kind.
            InvalidValueError: ``result`` is about other people.
        """
        ...


def checked_rules() -> Trusted:
    """Returns the rules that :func:`check_task` applies to texts, as the text for a prompt."""
    shares = {"words": WORD_LIMIT, "phrases": PHRASE_LIMIT}
    values = {name: f"{100 * share:g}" for name, share in shares.items()}
    words = {"gendered": GENDERED, "pronouns": PRONOUNS}
    return Trusted(fill(load("write_rules"), **values, **{name: ", ".join(sorted(ws)) for name, ws in words.items()}))


def check_neutral(*texts: str, words: Collection[str] = PRONOUNS) -> None:
    """Raises :class:`InvalidValueError` if a text numbers people, or contains one of the gendered words."""
    for text in texts:
        if match := _NUMBERED.search(text):
            raise InvalidValueError(
                f"people must not be numbered: describe them by what they do, instead of {match.group()!r}"
            )
        if names := gendered_words(text, words):
            raise InvalidValueError(
                expected="a text that fits people of every gender", got=names[0], hint="use 'they', or say who"
            )


# --- characters ----------------------------------------------------------------------------------------------------
@dataclass
class CharacterWriting:
    """The writing of characters, no two of whom have the same first or last name.

    Attributes:
        names: the names that are taken; accepted characters add theirs.
    """

    names: set[str] = field(default_factory=set)

    def question(self, inspiration: Inspiration) -> DraftQuestion[Character]:
        """See :class:`Writing`."""
        values = {"theme": inspiration.text, "names": sorted(self.names)}
        return DraftQuestion(inspiration.source, inspiration.text, "write_character", Character, self._accept, values)

    def _accept(self, character: Character) -> Mapping[str, Any]:
        for name in (character.first_name, character.last_name):
            if name and plain(name) in self.names:
                raise InvalidValueError("the name is taken", field="first_name, last_name", got=name)
        expected = _PRONOUNS.get(plain(character.gender))
        if expected and plain(character.pronouns) in {*_PRONOUNS.values()} - {expected}:
            raise InvalidValueError(field="pronouns", expected=f"{expected!r} with this gender", got=character.pronouns)
        if not character.secret.strip() or not character.public_info.strip():
            raise InvalidValueError(field="secret, public_info", expected="a sentence in each")
        result = character.model_dump(mode="json")
        self.restore(result)
        return result

    def restore(self, result: Mapping[str, Any]) -> None:
        """See :class:`Writing`."""
        character = Character.model_validate(result)
        self.names |= {plain(name) for name in (character.first_name, character.last_name) if name}


# --- relationships -------------------------------------------------------------------------------------------------
class RelationshipDraft(BaseModel):
    """A relationship in the format of the model's answer."""

    model_config = ConfigDict(extra="forbid")

    kind: RelationshipKind
    backstory: Annotated[Line, Field(min_length=20, max_length=400)]


@dataclass(frozen=True)
class RelationshipWriting:
    """The writing of a cast's relationships; an inspiration has the kind as ``source`` and the pair as text.

    Attributes:
        cast: the characters, with the existing relationships.
    """

    cast: Cast

    def pairs(self, seed: int) -> list[Inspiration]:
        """Returns every pair without a relationship, each with one kind; the pairs are divided evenly among kinds."""
        related = {relationship.seats for relationship in self.cast.relationships}
        pairs = [pair for pair in itertools.combinations(range(len(self.cast.characters)), 2) if pair not in related]
        random.Random(seed).shuffle(pairs)
        kinds = itertools.cycle(WRITTEN_KINDS)
        return [Inspiration(self._kind(pair, next(kinds)), self._text(pair)) for pair in pairs]

    def _kind(self, pair: tuple[int, int], kind: RelationshipKind) -> str:
        ages = [self.cast.characters[index].age for index in pair]
        is_adult = all(age is not None and age >= ADULT for age in ages)
        return kind if is_adult or kind is not RelationshipKind.ROMANTIC else RelationshipKind.FRIEND

    def _text(self, pair: tuple[int, int]) -> str:
        return " and ".join(self.cast.characters[index].name for index in pair)

    def question(self, inspiration: Inspiration) -> DraftQuestion[RelationshipDraft]:
        """See :class:`Writing`."""
        pairs = itertools.combinations(range(len(self.cast.characters)), 2)
        pair = next(pair for pair in pairs if self._text(pair) == inspiration.text)
        people = [self.cast.characters[index] for index in pair]

        def accept(draft: RelationshipDraft) -> Mapping[str, Any]:
            if draft.kind != inspiration.source:
                raise InvalidValueError(field="kind", expected=inspiration.source, got=draft.kind.value)
            _expect_names([one.first_name for one in people], draft.backstory)
            return Relationship(seats=pair, kind=draft.kind, backstory=draft.backstory).model_dump(mode="json")

        # Backstories are read by others, so the model does not get the secrets.
        profiles = [person.model_dump(mode="json", exclude={"secret", "private_attributes"}) for person in people]
        values = {"kind": inspiration.source, "people": profiles}
        return DraftQuestion(
            inspiration.source, inspiration.text, "write_relationship", RelationshipDraft, accept, values
        )

    def restore(self, result: Mapping[str, Any]) -> None:
        """See :class:`Writing`."""
        relationship, people = Relationship.model_validate(result), self.cast.characters
        if relationship.seats[1] >= len(people) or any(
            relationship.seats == one.seats for one in self.cast.relationships
        ):
            raise InvalidValueError(
                field="seats", expected="two members of the cast without a relationship", got=relationship.seats
            )
        _expect_names([people[seat].first_name for seat in relationship.seats], relationship.backstory)


def _expect_names(names: Iterable[str], backstory: str) -> None:
    if missing := [name for name in names if name not in backstory]:
        raise InvalidValueError(f"the text does not name {missing[0]!r}", field="backstory", hint="name both people")


# --- scenarios -----------------------------------------------------------------------------------------------------
class _SeatDraft(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    goal: Annotated[Line, Field(min_length=10, max_length=400)]
    private_info: Annotated[Line, Field(max_length=400)] = ""
    hint: Annotated[Line, Field(max_length=400)] = ""


class ScenarioDraft(BaseModel):
    """A situation in the format of the model's answer."""

    model_config = ConfigDict(extra="forbid")

    context: Annotated[Line, Field(min_length=40, max_length=1000)]
    seats: Annotated[tuple[_SeatDraft, ...], Field(min_length=2, max_length=2)]
    relationships: tuple[RelationshipKind, ...] = ()


class VerifiedDraft(ScenarioDraft):
    """A situation with an outcome."""

    outcome: OutcomeSpec


@dataclass
class ScenarioWriting:
    """The writing of two-seat scenarios, each of which can be cast and, with an outcome, scored.

    Attributes:
        verified: whether the scenarios have an outcome.
        cast: the characters to seat; ``None`` draws characters.
        castings: the number of castings that each scenario must have.
        contexts: the existing contexts with their origin; similar contexts are refused. Accepted scenarios add theirs.
    """

    verified: bool = False
    cast: Cast | None = None
    castings: int = 1
    contexts: dict[str, str] = field(default_factory=dict)

    def exclude(self, scenarios: Iterable[Scenario]) -> None:
        """Excludes the contexts of these scenarios."""
        self.contexts.update({plain(scenario.context): scenario.id for scenario in scenarios})

    def restore(self, result: Mapping[str, Any]) -> None:
        """See :class:`Writing`."""
        self.exclude([Scenario.model_validate(result)])

    def question(self, inspiration: Inspiration) -> DraftQuestion[ScenarioDraft]:
        """See :class:`Writing`."""
        form, part = (VerifiedDraft, "_outcome") if self.verified else (ScenarioDraft, "")
        # Validated, so that the examples in the prompt cannot contradict the form.
        examples = [form.model_validate(item) for item in decode_json(load(f"write_scenario{part}_examples"))]
        lines = [json.dumps(example.model_dump(mode="json"), ensure_ascii=False) for example in examples]
        values = {
            "outcome": Trusted(load("write_scenario_outcome") if self.verified else ""),
            "relationships": Trusted(", ".join(kind.value for kind in RelationshipKind)),
            "rules": checked_rules(),
            "examples": Trusted("\n".join(lines)),
            "theme": inspiration.text,
        }

        def accept(draft: ScenarioDraft) -> Mapping[str, Any]:
            scenario = self._scenario(draft, inspiration)
            self.exclude([scenario])
            return scenario.model_dump(mode="json")

        return DraftQuestion(inspiration.source, inspiration.text, "write_scenario", form, accept, values)

    def _scenario(self, draft: ScenarioDraft, inspiration: Inspiration) -> Scenario:
        first, second = draft.seats
        if plain(first.goal) == plain(second.goal):
            raise InvalidValueError("the two goals must be different", field="seats")
        check_neutral(draft.context)
        check_neutral(*(part for side in draft.seats for part in (side.goal, side.private_info, side.hint)))
        if origin := nearest_text(plain(draft.context), self.contexts):
            raise InvalidValueError(
                f"this situation already exists ({self.contexts[origin]})", field="context", hint="invent another one"
            )
        scenario = to_scenario(draft, inspiration)
        # Casting finds constraints that no characters meet; the checks find an outcome that cannot be scored.
        for task in self.tasks([scenario], 0):
            check_task(task)
        return scenario

    def tasks(self, scenarios: Iterable[Scenario], seed: int) -> TaskSet:
        """Returns the scenarios as tasks, one for each casting."""
        return cast_scenarios([OpenScenario(scenario) for scenario in scenarios], self.cast, self.castings, seed)


def check_task(task: Task) -> None:
    """Raises :class:`InvalidValueError` for the first error or warning of a task, including those of the linter."""
    check(task)
    for problem in lint([(task.id, task)]):
        raise InvalidValueError(problem.sentence)


def to_scenario(draft: ScenarioDraft, inspiration: Inspiration) -> Scenario:
    """Returns the situation as a scenario; its id depends on the inspiration only."""
    digest = hashlib.sha256(f"{inspiration.source}:{inspiration.key}".encode()).hexdigest()[:10]
    return Scenario(
        id=f"written-{digest}",
        context=draft.context,
        seats=tuple(
            Seat(goals=(side.goal,), private_info=side.private_info, hints=(side.hint,) if side.hint.strip() else ())
            for side in draft.seats
        ),
        constraints=Constraints(relationships=tuple(dict.fromkeys(draft.relationships))),
        source=" ".join(inspiration.source.split()),
        tags=("written", "verified") if isinstance(draft, VerifiedDraft) else ("written",),
        outcome=getattr(draft, "outcome", None),
    )
