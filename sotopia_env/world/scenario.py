"""Characters, relationships and scenarios, and the tasks that combine them.

Every record is frozen and validated when it is built, so the rest of the package never meets a missing goal or an
unknown relationship. Sources: SOTOPIA (arXiv 2310.11667) §2.1 and appendix C.2; SOTOPIA-S4 §3 for more than two seats.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import re
import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import (
    Label,
    Line,
    Name,
    Record,
    SortedObject,
    SourcedRecord,
    TextMap,
    json_or_value,
    not_blank,
    not_structural,
)
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.outcomes.amounts import fold
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.protocols.making import make_protocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.protocols.statements import Discussion, WithFacts
from sotopia_env.outcomes.specification import check_facts, check_seats
from sotopia_env.world.interview import Interview
from sotopia_env.world.reward import CustomDimension

_AGENT_ID = re.compile(r"agent_\d+", re.IGNORECASE)


def _not_an_agent_id(text: str) -> str:
    # Full-width letters and digits would look like an id to a model, so they are normalised first.
    if _AGENT_ID.fullmatch(unicodedata.normalize("NFKC", text).strip()):
        raise ValueError("must not look like the id of an agent, such as 'agent_0'")
    return text


ADULT, OLDEST = 18, 150
"""Ages in years: the minimum of two people who are a couple, and the maximum of any character."""


class MoralFoundation(StrEnum):
    """The five moral foundations a character may hold dear (SOTOPIA, appendix C.2.1)."""

    CARE = "care"
    FAIRNESS = "fairness"
    LOYALTY = "loyalty"
    AUTHORITY = "authority"
    PURITY = "purity"


class SchwartzValue(StrEnum):
    """Schwartz's ten basic personal values."""

    SELF_DIRECTION = "self-direction"
    STIMULATION = "stimulation"
    HEDONISM = "hedonism"
    ACHIEVEMENT = "achievement"
    POWER = "power"
    SECURITY = "security"
    CONFORMITY = "conformity"
    TRADITION = "tradition"
    BENEVOLENCE = "benevolence"
    UNIVERSALISM = "universalism"


class DecisionStyle(StrEnum):
    """How a character decides (SOTOPIA, appendix C.2.1)."""

    DIRECTIVE = "directive"
    ANALYTICAL = "analytical"
    CONCEPTUAL = "conceptual"
    BEHAVIORAL = "behavioral"


Level = Literal["high", "low"]


class BigFive(Record):
    """The five personality traits, each high or low."""

    openness: Level
    conscientiousness: Level
    extraversion: Level
    agreeableness: Level
    neuroticism: Level


class Character(SourcedRecord):
    """A profile that an agent enacts.

    ``None`` and empty texts are unknown. ``secret`` and ``private_attributes`` are read only by the agent that
    enacts the character; what others may read of the rest depends on the relationship
    (:data:`sotopia_env.world.observation.DISCLOSURE`). ``id`` is the id in the files that it was imported from; no seat
    reads it, and files omit it if it is empty.
    """

    first_name: Annotated[Label, AfterValidator(_not_an_agent_id)]
    last_name: Annotated[Line, AfterValidator(not_structural), AfterValidator(_not_an_agent_id)] = ""
    age: int | None = Field(default=None, ge=0, le=OLDEST)
    gender: Line
    pronouns: Line
    occupation: Line
    public_info: Line = ""
    big_five: BigFive | None = None
    moral_foundations: tuple[MoralFoundation, ...] = ()
    schwartz_values: tuple[SchwartzValue, ...] = ()
    decision_style: DecisionStyle | None = None
    personality: Line = ""
    secret: Line = ""
    public_attributes: TextMap = Field(default_factory=dict)
    private_attributes: TextMap = Field(default_factory=dict)
    # Omitted if empty, so that it does not change the content hash of tasks without one.
    id: Line = Field(default="", exclude_if=operator.not_)

    @cached_property
    def name(self) -> str:
        """First and last name, as used at the table."""
        return f"{self.first_name} {self.last_name}".strip()


class RelationshipKind(StrEnum):
    """How two characters are related; ``know-by-name`` is the extra kind of the reference code."""

    FAMILY = "family"
    FRIEND = "friend"
    ROMANTIC = "romantic"
    ACQUAINTANCE = "acquaintance"
    KNOW_BY_NAME = "know-by-name"
    STRANGER = "stranger"


class Relationship(SourcedRecord):
    """The relationship of the characters in seats ``i < j``; the backstory is known to these two only.

    ``facts`` repeats statements of the backstory as data for :class:`Constraints`, such as ``{"home": "shared"}``; it
    is left out of files if it is empty.
    """

    seats: tuple[int, int]
    kind: RelationshipKind
    backstory: Line = ""
    facts: TextMap = Field(default_factory=dict, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 0 <= self.seats[0] < self.seats[1]:
            raise InvalidValueError(field="seats", expected="(i, j) with 0 <= i < j", got=self.seats)
        if self.backstory and self.kind is RelationshipKind.STRANGER:
            raise InvalidValueError("strangers have no backstory", field="backstory")
        if self.facts and not self.backstory:
            raise InvalidValueError("facts repeat the backstory, which is empty", field="facts", got=self.facts)
        return self


class Seat(Record):
    """One agent's side of a scenario; everything here is read by its owner only.

    ``private_data`` repeats, for programs, numbers that ``goals`` and ``private_info`` state in words.
    """

    goals: tuple[Line, ...] = Field(min_length=1)
    hints: tuple[Line, ...] = ()
    private_info: Line = ""
    private_data: SortedObject = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(not goal.strip() for goal in self.goals):
            raise InvalidValueError("a goal is empty", field="goals", hint="every seat needs a goal of its own")
        return self


class Constraints(Record):
    """Conditions on a scenario's characters: relationship kinds, age range and occupations per seat, facts.

    An empty tuple means "no constraint". ``occupations`` holds, per seat, lower-case words of which one must occur in
    the occupation. ``facts`` holds statements of the context about any two participants: each pair's relationship must
    state them too, and a relationship that does not mention them does not fit.
    """

    relationships: tuple[RelationshipKind, ...] = ()
    facts: TextMap = Field(default_factory=dict, exclude_if=operator.not_)
    ages: tuple[tuple[int, int], ...] = ()
    occupations: tuple[tuple[Line, ...], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for low, high in self.ages:
            if low > high:
                raise InvalidValueError(field="ages", expected="(low, high) with low <= high", got=(low, high))
            if high < 0 or low > OLDEST:
                raise InvalidValueError(field="ages", expected=f"ages between 0 and {OLDEST}", got=(low, high))
        return self

    def admits(self, seat: int, character: Character) -> bool:
        """Whether the conditions on age and occupation admit ``character`` to ``seat``."""
        age = character.age
        # An unknown age does not meet a condition on ages.
        if self.ages and (age is None or not self.ages[seat][0] <= age <= self.ages[seat][1]):
            return False
        words = self.occupations[seat] if self.occupations else ()
        # A word matches within a longer occupation: "teacher" admits "music teacher".
        return not words or any(word.casefold() in character.occupation.casefold() for word in words)

    def admits_pair(self, relationship: Relationship) -> bool:
        """Whether two characters with this relationship may both be seated."""
        # A relationship may state more facts than the context does, hence a superset test.
        kinds, facts = self.relationships, relationship.facts
        return (not kinds or relationship.kind in kinds) and facts.items() >= self.facts.items()


# On disk the specification is JSON text, whose columns differ from protocol to protocol; both forms are read. Its keys
# keep their order, which is that of the worths in a seat's briefing: a replayed episode shows the same text.
_AsText = PlainSerializer(
    lambda part: None if part is None else json.dumps(part.model_dump(mode="json"), ensure_ascii=False),
    return_type=str | None,
    when_used="json",
)
OutcomeField = Annotated[OutcomeSpec | None, BeforeValidator(json_or_value), _AsText]
InterviewField = Annotated[Interview | None, BeforeValidator(json_or_value), _AsText]
FactsField = Annotated[Facts | None, BeforeValidator(json_or_value), _AsText]


def _is_none(value: object) -> bool:
    return value is None


VIGNETTE = "vignette"
"""Name of the tag that scenarios share if they are versions of one situation."""


def _tag_values(tags: Sequence[str]) -> dict[str, str]:
    parts = (tuple(part.strip() for part in tag.split("=", 1)) for tag in tags if "=" in tag)
    return {name: value for name, value in parts if name and value}


class Scenario(SourcedRecord):
    """A situation without people: shared context and N ≥ 2 seats with private goals.

    ``context`` is read by everyone. ``shared_data`` repeats public numbers of the context for programs. ``max_turns``
    overrides the environment's turn limit (20) when given. ``outcome`` defines the outcomes that moves can reach, and
    each seat's worth for them: every seat reads the rules and its own worth, never another seat's. ``facts`` declares
    what can be known and said to be so; a seat reads the values that it knows. ``interview`` holds the questions to be
    asked after the end, with their answers, and ``dimensions`` what judges score beyond the seven (SOTOPIA-S4 §3.3);
    only evaluators read these two.
    """

    id: Name
    context: Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
    seats: tuple[Seat, ...] = Field(min_length=2)
    constraints: Constraints = Constraints()
    shared_data: SortedObject = Field(default_factory=dict)
    max_turns: int | None = Field(default=None, ge=1)
    private_messages: bool = False
    source: Line = ""
    tags: tuple[Line, ...] = ()
    outcome: OutcomeField = None
    facts: FactsField = Field(default=None, exclude_if=_is_none)
    interview: InterviewField = Field(default=None, exclude_if=_is_none)
    dimensions: tuple[CustomDimension, ...] = Field(default=(), exclude_if=operator.not_)

    @property
    def vignette(self) -> str:
        """The situation of which this is a version: the value of the tag ``vignette=…``, or else the scenario's id."""
        return _tag_values(self.tags).get(VIGNETTE, self.id)

    @property
    def conditions(self) -> Mapping[str, str]:
        """The conditions of an experiment: every other tag ``NAME=VALUE`` as name and value."""
        return {name: value for name, value in _tag_values(self.tags).items() if name != VIGNETTE}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field in ("ages", "occupations"):
            length = len(getattr(self.constraints, field))
            if length not in (0, len(self.seats)):
                raise InvalidValueError(
                    field=f"constraints.{field}", expected=f"one entry per seat ({len(self.seats)})", got=length
                )
        if self.outcome is not None:
            check_seats(self.outcome, len(self.seats))
        if self.facts is not None:
            self.facts.check([f"agent_{seat}" for seat in range(len(self.seats))])
        check_facts(self.outcome, self.facts)
        if self.interview is not None:
            self.interview.check(self.seats, self.outcome)
        names = [dimension.name for dimension in self.dimensions]
        if len(set(names)) < len(names):
            raise InvalidValueError(field="dimensions", expected="different names", got=names)
        return self

    def role_of(self, agent: str) -> str:
        """Returns the role of a seat, which is the first variable of that kind among the facts; empty without one."""
        variables = () if self.facts is None else self.facts.variables
        return next((v.value for v in variables if v.kind == "role" and v.of == agent and v.value), "")

    @cached_property
    def resolved_outcome(self) -> OutcomeSpec | None:
        """The outcome with each worth in numbers where it depends on facts; read by evaluators, never by seats."""
        return None if self.outcome is None else self.outcome.resolved(self.facts)


class Task(SourcedRecord):
    """A scenario with a character in each seat and a relationship for every pair of seats (SOTOPIA §2.1).

    ``notes`` are what agents wrote down after earlier episodes with the same people; each seat reads its own. They are
    history, not content: :attr:`content_hash` leaves them out, so keys and seeds do not depend on what came before.
    """

    id: Name
    scenario: Scenario
    characters: tuple[Character, ...]
    relationships: tuple[Relationship, ...]
    notes: TextMap = Field(default_factory=dict, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _check(self) -> Self:
        seats = len(self.scenario.seats)
        if stranger := next((agent for agent in self.notes if agent not in self.agents), None):
            raise InvalidValueError(field="notes", got=stranger, valid=self.agents)
        if len(self.characters) != seats:
            raise InvalidValueError(field="characters", expected=f"{seats}, one per seat", got=len(self.characters))
        # Participants are addressed by name, which is read in its normal form.
        names = [fold(character.name) for character in self.characters]
        if len(set(names)) != seats:
            problem = "names must differ in more than case, blanks and Unicode form"
            raise InvalidValueError(problem, field="characters", got=[c.name for c in self.characters])
        pairs = [relationship.seats for relationship in self.relationships]
        expected = list(itertools.combinations(range(seats), 2))
        # A missing pair is not a pair of strangers: the kind decides what each seat reads.
        if sorted(pairs) != expected:
            raise InvalidValueError(field="relationships", expected=f"one for each of {expected}", got=pairs)
        return self

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """Agent ids in seat order: ``("agent_0", "agent_1", …)``."""
        return tuple(f"agent_{seat}" for seat in range(len(self.characters)))

    @cached_property
    def seat_of(self) -> Mapping[str, int]:
        """Agent id to its seat."""
        return {agent: seat for seat, agent in enumerate(self.agents)}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Agent id to the name of the character it enacts."""
        return {agent: c.name for agent, c in zip(self.agents, self.characters, strict=True)}

    @cached_property
    def _kinds(self) -> Mapping[tuple[int, int], Relationship]:
        return {relationship.seats: relationship for relationship in self.relationships}

    def relationship(self, first: int, second: int) -> Relationship:
        """The relationship of two different seats, in either order."""
        return self._kinds[(first, second) if first < second else (second, first)]

    def relationships_of(self, seat: int) -> list[tuple[int, Relationship]]:
        """The other seats in order, each with its relationship to ``seat``."""
        # Pairs are stored as (i, j) with i < j.
        kinds = self._kinds
        before = [(other, kinds[other, seat]) for other in range(seat)]
        return before + [(other, kinds[seat, other]) for other in range(seat + 1, len(self.characters))]

    @cached_property
    def protocol(self) -> AnyProtocol | None:
        """The protocol that moves drive; ``None`` in a task with neither a formal outcome nor facts."""
        outcome, facts = self.scenario.outcome, self.scenario.facts
        if outcome is not None:
            return make_protocol(outcome, self.names, facts)
        return None if facts is None else WithFacts(Discussion(self.names), facts)

    @cached_property
    def phased(self) -> bool:
        """Whether the protocol calls on the seats that act."""
        return self.protocol is not None and self.protocol.phased

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """A cache for values that other modules derive from this task, such as profiles; not part of its content."""
        return {}

    @cached_property
    def content_hash(self) -> str:
        """Hash of everything in the task but its notes; equal content gives an equal hash anywhere (16 hex digits)."""
        # On disk, outcome and interview are JSON text; the hash is taken over their contents, whatever the text's form.
        content, scenario = self.model_dump(mode="json", exclude={"notes"}), self.scenario
        content["scenario"]["outcome"] = scenario.outcome and scenario.outcome.model_dump(mode="json")
        if scenario.facts is not None:
            content["scenario"]["facts"] = scenario.facts.model_dump(mode="json")
        if scenario.interview is not None:
            content["scenario"]["interview"] = scenario.interview.model_dump(mode="json")
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]
