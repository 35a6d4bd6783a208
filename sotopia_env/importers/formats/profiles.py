"""Importers of SOTOPIA's profiles of agents and environments.

The files are JSON or JSON Lines. Ids are in ``pk`` or fields such as ``agent_id``, numbers are numbers or texts, and
missing values are ``null``, ``""``, ``"nan"`` or ``"none"``. AMPO's ``agents.json`` and ``envs.json`` contain the same
records in one object, by id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AliasChoices, BeforeValidator, Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    converted,
    one_line,
    read_literal,
)
from sotopia_env.importers.formats.sotopia_text import goal_parts, goal_text, scenario_parts
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import (
    BigFive,
    Character,
    Constraints,
    DecisionStyle,
    Level,
    MoralFoundation,
    RelationshipKind,
    Scenario,
    SchwartzValue,
    Seat,
)

RELATIONSHIPS: tuple[RelationshipKind, ...] = (
    RelationshipKind.STRANGER,
    RelationshipKind.KNOW_BY_NAME,
    RelationshipKind.ACQUAINTANCE,
    RelationshipKind.FRIEND,
    RelationshipKind.ROMANTIC,
    RelationshipKind.FAMILY,
)
"""Kinds of relationship, in the order of their numbers in SOTOPIA's files (0 to 5)."""
_ENUM = TypeVar("_ENUM", MoralFoundation, SchwartzValue, DecisionStyle)


def whole(value: Any) -> Any:
    """Returns a number that may be written as a text; ``None`` for a missing value."""
    literal = read_literal(value)
    return int(literal) if isinstance(literal, float) and literal.is_integer() else literal


def list_literal(value: Any) -> Any:
    """Returns a list that may be written as a text; an empty list for a missing value."""
    literal = read_literal(value)
    return [] if literal is None else literal


def _values(value: Any) -> Any:
    """A list of words. Some files split the text of a list at its commas: ``["['Care'", " ' Loyalty']"]``."""
    literal = list_literal(value)
    return [_unquoted(word) for word in literal] if isinstance(literal, list) else literal


def _unquoted(word: Any) -> Any:
    return word.strip("[]'\" ") if isinstance(word, str) else word


RelationshipNumber = Annotated[int, Field(ge=0, le=len(RELATIONSHIPS) - 1), BeforeValidator(whole)]
Words = Annotated[tuple[str, ...], BeforeValidator(list_literal)]
_Values = Annotated[tuple[str, ...], BeforeValidator(_values)]


def id_field(*names: str) -> Any:
    """Returns the field of a record's id, which is called ``pk`` or one of ``names``."""
    return Field(default="", validation_alias=AliasChoices("pk", *names))


class AgentProfile(Foreign):
    """A character."""

    one_of = (("occupation", "big_five", "public_info", "personality_and_values", "secret"),)
    pk: Identity = id_field("agent_id")
    first_name: Text
    last_name: Text = ""
    age: Annotated[int | None, BeforeValidator(whole)] = None
    occupation: Text = ""
    gender: Text = ""
    gender_pronoun: Text = ""
    public_info: Text = ""
    big_five: Text = ""
    moral_values: _Values = ()
    schwartz_personal_values: _Values = ()
    personality_and_values: Text = ""
    decision_making_style: Text = ""
    secret: Text = ""
    model_id: Text = ""
    mbti: Text = ""
    tag: Text = ""


class EnvironmentProfile(Foreign):
    """A scenario."""

    pk: Identity = id_field("env_id")
    codename: Text = ""
    source: Text = ""
    scenario: str
    agent_goals: Words
    relationship: RelationshipNumber = 0
    age_constraint: Any = None
    occupation_constraint: Any = None
    agent_constraint: Any = None
    game_metadata: Any = None
    tag: Text = ""


# --- agents ----------------------------------------------------------------------------------------------------------

_TRAITS: Mapping[str, str] = {"openness to experience": "openness"} | {name: name for name in BigFive.model_fields}
_TRAIT_NAMES = {
    "openness": "Openness to Experience",
    **{name: name.capitalize() for name in list(BigFive.model_fields)[1:]},
}


def _big_five(text: str) -> BigFive | None:
    """Parses ``Openness to Experience - High; …``; returns ``None`` unless all five traits are high or low."""
    pairs = [part.rpartition(" - ") for part in text.split(";")]
    levels = {_TRAITS.get(name.strip().casefold(), ""): level.strip().casefold() for name, _, level in pairs}
    complete = set(levels) == set(BigFive.model_fields) and set(levels.values()) <= set(get_args(Level))
    return BigFive.model_validate(levels) if complete else None


_SYNONYMS: Mapping[str, str] = {"sanctity": "purity", "in-group-loyalty": "loyalty", "ingroup": "loyalty"}


def _members(kind: type[_ENUM], values: Iterable[str]) -> tuple[_ENUM, ...]:
    """The members named in values such as ``Care/Harm`` or ``Self-direction``; unknown names are ignored."""
    parts = [part for value in values for part in re.split("[/&]", value)]
    names = [part.strip().casefold().replace(" ", "-") for part in parts]
    members = {member.value for member in kind}
    return tuple(dict.fromkeys(kind(name) for name in (_SYNONYMS.get(n, n) for n in names) if name in members))


def read_agent(profile: AgentProfile, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the character of an agent's profile."""
    record = character_of(profile, profile.pk or item.key)
    library.add(library.characters, character_id(record), record)
    yield Product(ProductKind.CHARACTER, record)


def character_of(profile: AgentProfile, pk: str = "") -> Character:
    """Returns the character of a profile, with the id ``pk``."""
    styles = _members(DecisionStyle, (profile.decision_making_style,))
    return converted(
        lambda: Character(
            id=one_line(pk),
            first_name=profile.first_name,
            last_name=profile.last_name,
            age=profile.age or None,  # the reference code writes 0 for an unknown age
            gender=one_line(profile.gender),
            pronouns=one_line(profile.gender_pronoun),
            occupation=one_line(profile.occupation),
            public_info=one_line(profile.public_info),
            big_five=_big_five(profile.big_five),
            moral_foundations=_members(MoralFoundation, profile.moral_values),
            schwartz_values=_members(SchwartzValue, profile.schwartz_personal_values),
            decision_style=styles[0] if styles else None,
            personality=one_line(profile.personality_and_values),
            secret=one_line(profile.secret),
        )
    )


def character_id(character: Character) -> str:
    """The id of a character in SOTOPIA's files; a hash of its content if it has none."""
    return character.id or content_id(character.model_dump_json())


def _agent(character: Character) -> dict[str, Any]:
    traits = character.big_five
    parts = [] if traits is None else [f"{_TRAIT_NAMES[name]} - {level.capitalize()}" for name, level in traits]
    return {
        "pk": character_id(character),
        "first_name": character.first_name,
        "last_name": character.last_name,
        "age": character.age or 0,
        "occupation": character.occupation,
        "gender": character.gender,
        "gender_pronoun": character.pronouns,
        "public_info": character.public_info,
        "big_five": "; ".join(parts),
        "moral_values": [value.capitalize() for value in character.moral_foundations],
        "schwartz_personal_values": [value.capitalize() for value in character.schwartz_values],
        "personality_and_values": character.personality,
        "decision_making_style": (character.decision_style or "").capitalize(),
        "secret": character.secret,
        "model_id": "",
        "mbti": "",
        "tag": "",
    }


# --- environments ----------------------------------------------------------------------------------------------------


def read_environment(profile: EnvironmentProfile, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the scenario of an environment's profile."""
    kind = RELATIONSHIPS[profile.relationship]
    marked = scenario_parts(profile.scenario)
    seats = tuple(seat_of(goal, marked.private.get(f"agent_{n}", "")) for n, goal in enumerate(profile.agent_goals))
    constraints = converted(
        lambda: Constraints(
            relationships=(kind,),
            ages=_ages(profile.age_constraint, len(seats)),
            occupations=_occupations(profile.occupation_constraint, len(seats)),
        )
    )

    record = converted(
        lambda: Scenario(
            id=profile.pk or item.key or content_id(profile.scenario, *profile.agent_goals),
            context=marked.text,
            seats=seats,
            constraints=constraints,
            source=one_line(profile.source),
            tags=(one_line(profile.codename),) if profile.codename else (),
        )
    )
    library.add(library.scenarios, record.id, record)
    library.kinds[record.id] = kind
    yield Product(ProductKind.SCENARIO, record)


def seat_of(goal: str, private: str = "") -> Seat:
    """Returns the seat with a goal in SOTOPIA's markup.

    Args:
        goal: the goal, including markup.
        private: text of the scenario that only this seat reads.
    """
    parts = goal_parts(goal)
    info = " ".join(filter(None, (*parts.info, one_line(private))))
    return converted(lambda: Seat(goals=(parts.text,), hints=parts.hints, private_info=info))


def _ages(value: Any, seats: int) -> tuple[tuple[int, int], ...]:
    ranges = read_literal(value)
    if ranges is None:
        return ()
    # One range, ``(18, 70)``, applies to all seats, as does a list of one.
    if isinstance(ranges, tuple) and len(ranges) == 2 and all(isinstance(end, int) for end in ranges):
        ranges = [ranges]
    ranges = list(ranges) if isinstance(ranges, list | tuple) else None
    pairs = ranges is not None and all(isinstance(r, list | tuple) and len(r) == 2 for r in ranges)
    if not ranges or not pairs or len(ranges) not in (1, seats):
        raise DamagedRecordError(
            field="age_constraint", expected=f"{seats} ranges such as '[(18, 70), (18, 70)]', or none", got=value
        )
    return tuple((low, high) for low, high in (ranges * seats)[:seats])


_ANY = ("", "nan", "none", "null", "any")
"""Words that mean any occupation."""


def _occupations(value: Any, seats: int) -> tuple[tuple[str, ...], ...]:
    words = read_literal(value)
    if words is None:
        return ()
    if isinstance(words, str):
        words = [words]
    texts = isinstance(words, list | tuple) and all(isinstance(word, str | list | tuple) for word in words)
    if not texts or len(words) not in (1, seats):
        raise DamagedRecordError(
            field="occupation_constraint", expected=f"{seats} occupations such as '[actor, actor]'", got=value
        )
    entries = [[word] if isinstance(word, str) else word for word in words]
    sides = [tuple(filter(None, map(_occupation, entry))) for entry in (list(entries) * seats)[:seats]]
    return tuple(sides) if any(sides) else ()


def _occupation(word: Any) -> str:
    """The normal form of an occupation's word; empty if it means any occupation."""
    text = str(word).strip().casefold().replace("_", " ")
    return "" if text in _ANY else one_line(text)


def _environment(scenario: Scenario) -> dict[str, Any]:
    rules = scenario.constraints
    # The foreign format has one relationship per environment; the first admissible one is written.
    kind = rules.relationships[0] if rules.relationships else RelationshipKind.STRANGER
    occupations = [list(words) for words in rules.occupations]
    return {
        "pk": scenario.id,
        "codename": scenario.tags[0] if scenario.tags else "",
        "source": scenario.source,
        "scenario": scenario.context,
        "agent_goals": [goal_text(" ".join(seat.goals), seat.private_info, seat.hints) for seat in scenario.seats],
        "relationship": RELATIONSHIPS.index(kind),
        "age_constraint": str([tuple(ages) for ages in rules.ages]) if rules.ages else None,
        "occupation_constraint": str(occupations) if occupations else "nan",
        "agent_constraint": None,
        "game_metadata": None,
        "tag": "",
    }


AGENTS = Format(
    "sotopia-agents",
    "SOTOPIA AgentProfile",
    ProductKind.CHARACTER,
    AgentProfile,
    read_agent,
    _agent,
)
ENVIRONMENTS = Format(
    "sotopia-environments",
    "SOTOPIA EnvironmentProfile",
    ProductKind.SCENARIO,
    EnvironmentProfile,
    read_environment,
    _environment,
)
PROFILES = (AGENTS, ENVIRONMENTS)
