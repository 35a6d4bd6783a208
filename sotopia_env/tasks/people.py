"""Seeded generators of characters and relationships for procedural tasks.

A draw depends only on the random number generator that is passed in. Characters of one draw have different first *and*
last names, so either name identifies a character.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from sotopia_env.foundation.errors import ConstraintError, InvalidValueError, nearest_name
from sotopia_env.foundation.records import Record
from sotopia_env.tasks.texts import read_texts
from sotopia_env.world.scenario import (
    ADULT,
    BigFive,
    Character,
    DecisionStyle,
    Level,
    MoralFoundation,
    Relationship,
    RelationshipKind,
    SchwartzValue,
)

_MAX_CHARACTERS = 60  # below the number of last names, which are drawn without replacement
_FOUNDATIONS, _VALUES, _STYLES = tuple(MoralFoundation), tuple(SchwartzValue), tuple(DecisionStyle)


class PeopleTexts(Record):
    """Names, occupations and descriptions of people.

    Attributes:
        women: first names of women.
        men: first names of men.
        neutral: first names of nonbinary people.
        last_names: last names.
        occupations: occupations.
        public_info: public descriptions.
        secrets: secrets.
        plain_info: public descriptions that suit any age, occupation and home.
        plain_secrets: secrets that suit any age, occupation and home.
        openings: first halves of personality texts.
        closings: second halves of personality texts.
        backstories: backstories of ``{a}`` and ``{b}`` by kind of relationship; an empty text for strangers.
        fact_stories: backstories that state a fact, by its name, its value and the kind of relationship.
    """

    women: tuple[str, ...]
    men: tuple[str, ...]
    neutral: tuple[str, ...]
    last_names: tuple[str, ...]
    occupations: tuple[str, ...]
    public_info: tuple[str, ...]
    secrets: tuple[str, ...]
    plain_info: tuple[str, ...]
    plain_secrets: tuple[str, ...]
    openings: tuple[str, ...]
    closings: tuple[str, ...]
    backstories: dict[RelationshipKind, tuple[str, ...]]
    fact_stories: dict[str, dict[str, dict[RelationshipKind, str]]]


@cache
def people_texts() -> PeopleTexts:
    """Returns the names and texts, which are read on first use."""
    return read_texts(PeopleTexts, "people")


@dataclass(frozen=True, slots=True)
class _Identity:
    gender: str
    pronouns: str


@cache
def _first_names() -> tuple[tuple[str, _Identity], ...]:
    texts = people_texts()
    names = (
        (texts.women, _Identity("woman", "she/her")),
        (texts.men, _Identity("man", "he/him")),
        (texts.neutral, _Identity("nonbinary", "they/them")),
    )
    return tuple((name, identity) for group, identity in names for name in group)


def draw_characters(rng: random.Random, n: int) -> tuple[Character, ...]:
    """Returns ``n`` people aged 21 to 68, with different first and different last names.

    Args:
        rng: the random number generator.
        n: number of people, 1 to 60.

    Raises:
        InvalidValueError: ``n`` is out of range.
    """
    if not 1 <= n <= _MAX_CHARACTERS:
        raise InvalidValueError(field="n", expected=f"1 to {_MAX_CHARACTERS} characters", got=n)
    texts = people_texts()
    firsts = rng.sample(_first_names(), n)
    lasts = rng.sample(texts.last_names, n)
    # Occupations repeat only in groups larger than the list of them.
    jobs = rng.sample(texts.occupations, n) if n <= len(texts.occupations) else rng.choices(texts.occupations, k=n)
    return tuple(
        _draw_character(rng, first, identity, last, job)
        for (first, identity), last, job in zip(firsts, lasts, jobs, strict=True)
    )


@dataclass(frozen=True, slots=True)
class NameStock:
    """The names available for drawn people: first names, each with gender and pronouns, and last names."""

    firsts: tuple[tuple[str, _Identity], ...]
    lasts: tuple[str, ...]

    @classmethod
    def without(cls, words: Iterable[str] = ()) -> NameStock:
        """Returns all names except those among ``words``, ignoring case."""
        avoid = {word.casefold() for word in words}
        return cls(
            tuple(first for first in _first_names() if first[0].casefold() not in avoid),
            tuple(name for name in people_texts().last_names if name.casefold() not in avoid),
        )


def draw_people(
    rng: random.Random, ages: Sequence[int], occupations: Sequence[str], names: NameStock
) -> tuple[Character, ...]:
    """Returns people of the given ages and occupations, with different first and different last names.

    Their descriptions and secrets suit any age, occupation and home.

    Args:
        rng: the random number generator.
        ages: age of each person.
        occupations: occupation of each person.
        names: the available names.

    Raises:
        InvalidValueError: there are more people than names.
    """
    count, most = len(ages), min(len(names.firsts), len(names.lasts))
    if count > most:
        raise InvalidValueError(field="ages", expected=f"at most {most}, the number of available names", got=count)
    stories = people_texts().plain_info, people_texts().plain_secrets
    people = zip(rng.sample(names.firsts, count), rng.sample(names.lasts, count), ages, occupations, strict=True)
    return tuple(_person(rng, first, identity, last, job, age, stories) for (first, identity), last, age, job in people)


def _draw_character(rng: random.Random, first: str, identity: _Identity, last: str, job: str) -> Character:
    age = rng.randint(62, 68) if job.startswith("retired") else rng.randint(21, 61)
    texts = people_texts()
    return _person(rng, first, identity, last, job, age, (texts.public_info, texts.secrets))


def _person(
    rng: random.Random,
    first: str,
    identity: _Identity,
    last: str,
    job: str,
    age: int,
    stories: tuple[Sequence[str], Sequence[str]],
) -> Character:
    """A person with the given names, occupation and age; ``stories`` are public descriptions and secrets."""
    texts = people_texts()
    # All values come from the package's texts and from validated slots; validation would take most of a draw's time.
    return Character.model_construct(
        first_name=first,
        last_name=last,
        age=age,
        gender=identity.gender,
        pronouns=identity.pronouns,
        occupation=job,
        public_info=rng.choice(stories[0]),
        big_five=_draw_traits(rng),
        moral_foundations=tuple(rng.sample(_FOUNDATIONS, rng.randint(1, 2))),
        schwartz_values=tuple(rng.sample(_VALUES, rng.randint(2, 3))),
        decision_style=rng.choice(_STYLES),
        personality=f"{rng.choice(texts.openings)} {rng.choice(texts.closings)}",
        secret=rng.choice(stories[1]),
        # Passed explicitly, because pydantic's lookup of default factories would take as long as half of the draw.
        public_attributes={},
        private_attributes={},
        id="",
    )


def _draw_traits(rng: random.Random) -> BigFive:
    return _traits(*["high" if rng.random() < 0.5 else "low" for _ in BigFive.model_fields])


@cache
def _traits(*levels: Level) -> BigFive:
    return BigFive.model_validate(dict(zip(BigFive.model_fields, levels, strict=True)))


def draw_relationship(
    rng: random.Random,
    characters: Sequence[Character],
    seats: tuple[int, int] = (0, 1),
    kinds: Sequence[RelationshipKind] = tuple(RelationshipKind),
    facts: Mapping[str, str] = MappingProxyType({}),
) -> Relationship:
    """Returns a relationship, with its backstory, for two of ``characters``.

    Args:
        rng: the random number generator.
        characters: all characters of the task, in seat order.
        seats: the pair, lower seat first.
        kinds: the kinds to choose from, each equally likely.
        facts: the fact that the backstory must state, one of :attr:`PeopleTexts.fact_stories`; may be empty.

    Raises:
        InvalidValueError: ``kinds`` is empty.
        ConstraintError: no backstory of these kinds states the facts.
    """
    if not kinds:
        raise InvalidValueError(field="kinds", expected="at least one kind of relationship")
    stories = _fact_stories(kinds, facts) if facts else people_texts().backstories
    kind = rng.choice([kind for kind in kinds if kind in stories])
    story = rng.choice(stories[kind])
    first, second = (characters[seat].name for seat in seats)
    return Relationship(seats=seats, kind=kind, backstory=story.format(a=first, b=second), facts=dict(facts))


def possible_kinds(kinds: Sequence[RelationshipKind], facts: Mapping[str, str]) -> tuple[RelationshipKind, ...]:
    """Returns those of ``kinds`` that have a backstory with ``facts``; raises ConstraintError if there are none."""
    return tuple(_fact_stories(kinds, facts)) if facts else tuple(kinds)


def draw_relationships(
    rng: random.Random,
    characters: Sequence[Character],
    kinds: Sequence[RelationshipKind] = tuple(RelationshipKind),
    facts: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Relationship, ...]:
    """Returns a relationship for every pair of characters.

    At most one is romantic, and only between adults, unless ``kinds`` leaves no alternative. Arguments and exceptions
    are those of :func:`draw_relationship`.
    """
    kinds = possible_kinds(kinds, facts)
    relationships: list[Relationship] = []
    for pair in itertools.combinations(range(len(characters)), 2):
        romantic = RelationshipKind.ROMANTIC
        is_taken = any(relationship.kind is romantic for relationship in relationships)
        is_minor = any((age := characters[seat].age) is not None and age < ADULT for seat in pair)
        others = [kind for kind in kinds if kind is not romantic or not (is_taken or is_minor)]
        relationships.append(draw_relationship(rng, characters, pair, others or kinds, facts))
    return tuple(relationships)


def _fact_stories(
    kinds: Sequence[RelationshipKind], facts: Mapping[str, str]
) -> Mapping[RelationshipKind, tuple[str, ...]]:
    # A backstory states one fact; several cannot be met, and fail below like an unknown one.
    fact = next(iter(facts.items())) if len(facts) == 1 else ("", "")
    stories_by_fact = {
        (name, value): by_kind
        for name, values in people_texts().fact_stories.items()
        for value, by_kind in values.items()
    }
    stories = {kind: (story,) for kind, story in stories_by_fact.get(fact, {}).items() if kind in kinds}
    if not stories:
        names = [": ".join(key) for key, by_kind in stories_by_fact.items() if set(kinds) & set(by_kind)]
        close = nearest_name(": ".join(fact), names)
        raise ConstraintError(
            field="facts",
            expected=f"a fact of the drawn relationships of kind {', '.join(kinds)} ({', '.join(names) or 'none'})",
            got=dict(facts),
            nearest=close,
            hint="" if close else "use a cast whose relationships have these facts",
        )
    return stories
