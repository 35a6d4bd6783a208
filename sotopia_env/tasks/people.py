"""People for procedural tasks: varied characters and relationships from a seeded generator.

Every draw depends on the generator that is handed in and on nothing else. Characters of one draw have different first
*and* last names, so a single name is enough to tell them apart.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sotopia_env.errors import ConstraintError, InvalidValueError, nearest
from sotopia_env.tasks.texts import people as texts
from sotopia_env.world.scenario import (
    BigFive,
    Character,
    DecisionStyle,
    Level,
    MoralFoundation,
    Relationship,
    RelationshipKind,
    SchwartzValue,
)

_MAX_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class _Identity:
    first_names: tuple[str, ...]
    gender: str
    pronouns: str


_IDENTITIES = (
    _Identity(texts.WOMEN, "woman", "she/her"),
    _Identity(texts.MEN, "man", "he/him"),
    _Identity(texts.NEUTRAL, "nonbinary", "they/them"),
)


def draw_characters(rng: random.Random, n: int) -> tuple[Character, ...]:
    """Returns ``n`` different people, aged 21 to 68, no two of whom share a first or a last name.

    Args:
        rng: the only source of randomness.
        n: 1 to 60.

    Raises:
        InvalidValueError: ``n`` is out of range.
    """
    if not 1 <= n <= _MAX_CHARACTERS:
        raise InvalidValueError(f"n: expected 1 to {_MAX_CHARACTERS} characters, got {n}")
    firsts = rng.sample([(name, identity) for identity in _IDENTITIES for name in identity.first_names], n)
    lasts = rng.sample(texts.LAST_NAMES, n)
    jobs = rng.sample(texts.OCCUPATIONS, n) if n <= len(texts.OCCUPATIONS) else rng.choices(texts.OCCUPATIONS, k=n)
    return tuple(
        _draw_character(rng, first, identity, last, job)
        for (first, identity), last, job in zip(firsts, lasts, jobs, strict=True)
    )


def draw_people(
    rng: random.Random, ages: Sequence[int], occupations: Sequence[str], avoid: Container[str] = ()
) -> tuple[Character, ...]:
    """Returns different people of given ages and occupations, no two of whom share a first or a last name.

    What is told of them suits any age, occupation and home.

    Args:
        rng: the only source of randomness.
        ages: one per person.
        occupations: one per person.
        avoid: words that are nobody's first or last name.

    Raises:
        InvalidValueError: there are not so many names.
    """
    firsts = [(name, identity) for identity in _IDENTITIES for name in identity.first_names if name not in avoid]
    lasts = [name for name in texts.LAST_NAMES if name not in avoid]
    most = min(len(firsts), len(lasts))
    if len(ages) > most:
        raise InvalidValueError(f"ages: expected at most {most}, the number of names that may be used, got {len(ages)}")
    people = zip(rng.sample(firsts, len(ages)), rng.sample(lasts, len(ages)), ages, occupations, strict=True)
    return tuple(
        _person(rng, first, identity, last, job, age, (texts.PLAIN_INFO, texts.PLAIN_SECRETS))
        for (first, identity), last, age, job in people
    )


def longest_names(n: int) -> list[str]:
    """Returns ``n`` different first names, the longest that are drawn."""
    names = [name for identity in _IDENTITIES for name in identity.first_names]
    return sorted(names, key=len, reverse=True)[:n]


def _draw_character(rng: random.Random, first: str, identity: _Identity, last: str, job: str) -> Character:
    age = rng.randint(62, 68) if job.startswith("retired") else rng.randint(21, 61)
    return _person(rng, first, identity, last, job, age, (texts.PUBLIC_INFO, texts.SECRETS))


def _person(
    rng: random.Random,
    first: str,
    identity: _Identity,
    last: str,
    job: str,
    age: int,
    stories: tuple[Sequence[str], Sequence[str]],
) -> Character:
    """Stories are what is told of people in public, and their secrets."""
    return Character(
        first_name=first,
        last_name=last,
        age=age,
        gender=identity.gender,
        pronouns=identity.pronouns,
        occupation=job,
        public_info=rng.choice(stories[0]),
        big_five=_draw_traits(rng),
        moral_foundations=tuple(rng.sample(list(MoralFoundation), rng.randint(1, 2))),
        schwartz_values=tuple(rng.sample(list(SchwartzValue), rng.randint(2, 3))),
        decision_style=rng.choice(list(DecisionStyle)),
        personality=f"{rng.choice(texts.OPENINGS)} {rng.choice(texts.CLOSINGS)}",
        secret=rng.choice(stories[1]),
    )


def _draw_traits(rng: random.Random) -> BigFive:
    def level() -> Level:
        return "high" if rng.random() < 0.5 else "low"

    return BigFive(
        openness=level(), conscientiousness=level(), extraversion=level(), agreeableness=level(), neuroticism=level()
    )


def draw_relationship(
    rng: random.Random,
    characters: Sequence[Character],
    seats: tuple[int, int] = (0, 1),
    kinds: Sequence[RelationshipKind] = tuple(RelationshipKind),
    facts: Mapping[str, str] = MappingProxyType({}),
) -> Relationship:
    """Returns a relationship, with its backstory, for two of ``characters``.

    Args:
        rng: the only source of randomness.
        characters: everybody at the table, in seat order.
        seats: the pair, lower seat first.
        kinds: the kinds to choose from, each equally likely.
        facts: what the backstory must state: one of :data:`~sotopia_env.tasks.texts.people.FACT_STORIES`, or nothing.

    Raises:
        InvalidValueError: ``kinds`` is empty.
        ConstraintError: no backstory of these kinds states the facts.
    """
    if not kinds:
        raise InvalidValueError("kinds: expected at least one kind of relationship, got none")
    stories = _fact_stories(kinds, facts) if facts else texts.BACKSTORIES
    kind = rng.choice([kind for kind in kinds if kind in stories])
    story = rng.choice(stories[kind])
    first, second = (characters[seat].name for seat in seats)
    return Relationship(seats=seats, kind=kind, backstory=story.format(a=first, b=second), facts=dict(facts))


def _fact_stories(
    kinds: Sequence[RelationshipKind], facts: Mapping[str, str]
) -> Mapping[RelationshipKind, tuple[str, ...]]:
    fact = next(iter(facts.items())) if len(facts) == 1 else ("", "")
    stories = {kind: (story,) for kind, story in texts.FACT_STORIES.get(fact, {}).items() if kind in kinds}
    if not stories:
        names = [": ".join(known) for known, by_kind in texts.FACT_STORIES.items() if set(kinds) & set(by_kind)]
        close = nearest(": ".join(fact), names)
        raise ConstraintError(
            f"facts: expected one of those that a drawn relationship of {', '.join(kinds)} can state "
            f"({', '.join(names) or 'none'}), got {dict(facts)}"
            + (f"; did you mean {close!r}?" if close else "; use a cast whose relationships state them")
        )
    return stories
