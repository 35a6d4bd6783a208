"""The composition of a set: counts of its situations, relationships and people by their properties."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import Enum

from sotopia_env.tasks.templates import Template, instantiate
from sotopia_env.world.interview import GoalType
from sotopia_env.world.scenario import (
    BigFive,
    Character,
    DecisionStyle,
    MoralFoundation,
    Relationship,
    RelationshipKind,
    Scenario,
    SchwartzValue,
    Task,
)
from sotopia_env.world.taskset import Cast

Composition = Mapping[str, Mapping[str, int]]
"""Titles to counts by name. Every name of a fixed vocabulary is included, also with a count of 0."""
_VERIFIED = "outcome"
_Part = tuple[str, str]


def composition(records: Iterable[Task | Template | Scenario | Cast]) -> Composition:
    """Counts the situations and relationships of a set by occurrence, and its people once each.

    Args:
        records: the records of the set. A template is counted as its first instance, without the people, who are drawn.
    """
    counts: dict[str, Counter[str]] = {title: Counter(dict.fromkeys(names, 0)) for title, names in _FIXED.items()}
    people: dict[Hashable, Character] = {}
    for record in records:
        for title, name in _parts(record):
            counts.setdefault(title, Counter())[name] += 1
        if isinstance(record, Task | Cast):
            # Tasks repeat their characters, whose ids are optional: these three fields identify a person.
            people.update({(person.name, person.age, person.occupation): person for person in record.characters})
    for title, name in itertools.chain.from_iterable(map(_person_parts, people.values())):
        counts.setdefault(title, Counter())[name] += 1
    return {title: _ordered(title, counter) for title, counter in counts.items() if counter.total()}


def verified_share(counts: Composition) -> float | None:
    """Returns the share of situations with a verified outcome; ``None`` for a set without situations."""
    protocols = counts.get(_VERIFIED, {})
    total = sum(protocols.values())
    return 1 - protocols["none; judged"] / total if total else None


def _names(kind: type[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in kind)


_FIXED: Mapping[str, tuple[str, ...]] = {
    "relationships": _names(RelationshipKind),
    "sources": (),
    "seats": (),
    _VERIFIED: ("agreement", "ballot", "claims", "choices", "none; judged"),
    "domains": (),
    "roles": (),
    "needs (ERG)": ("existence", "relatedness", "growth"),
    "goal types": _names(GoalType),
    "ages": (),
    "genders": (),
    "traits": tuple(f"{trait}: {level}" for trait in BigFive.model_fields for level in ("high", "low")),
    "moral foundations": _names(MoralFoundation),
    "values": _names(SchwartzValue),
    "decision styles": _names(DecisionStyle),
}


def _ordered(title: str, counter: Counter[str]) -> dict[str, int]:
    """The counts in the order of a fixed vocabulary, of ages or of seats; otherwise by decreasing count."""
    if _FIXED[title]:
        return dict(counter)
    by_name = title in ("ages", "seats")
    return dict(sorted(counter.items(), key=lambda item: (0 if by_name else -item[1], item[0])))


def _parts(record: Task | Template | Scenario | Cast) -> Iterator[_Part]:
    if isinstance(record, Cast):
        yield from _pair_parts(record.relationships)
        return
    task = instantiate(record, 0, 0) if isinstance(record, Template) else record
    if isinstance(task, Task):
        yield from _pair_parts(task.relationships)
        task = task.scenario
    yield "sources", task.source or "none"
    yield "seats", str(len(task.seats))
    yield _VERIFIED, "none; judged" if task.outcome is None else task.outcome.protocol.kind
    if task.interview is not None:
        yield "domains", "unknown" if task.interview.domain is None else task.interview.domain.value
        yield from (("roles", role.value) for role in task.interview.roles)
        for goal in itertools.chain.from_iterable(task.interview.goal_types):
            yield from (("needs (ERG)", goal.need.value), ("goal types", goal.value))


def _pair_parts(relationships: Iterable[Relationship]) -> Iterator[_Part]:
    yield from (("relationships", relationship.kind.value) for relationship in relationships)


def _person_parts(person: Character) -> Iterator[_Part]:
    decade = None if person.age is None else person.age // 10 * 10
    # Padded, so that the names sort as numbers.
    yield "ages", "unknown" if decade is None else f"{decade:>3} to {decade + 9}"
    yield "genders", person.gender
    traits = {} if person.big_five is None else person.big_five.model_dump()
    yield from (("traits", f"{trait}: {traits.get(trait, 'unknown')}") for trait in BigFive.model_fields)
    yield from (("moral foundations", name.value) for name in person.moral_foundations)
    yield from (("values", name.value) for name in person.schwartz_values)
    yield "decision styles", "unknown" if person.decision_style is None else person.decision_style.value
