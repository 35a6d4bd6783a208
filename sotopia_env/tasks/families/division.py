"""``division``: two people divide several kinds of items whose worth to the other they do not know.

Source: the item-division scenarios of SOTOPIA (arXiv 2310.11667), in the form known as deal-or-no-deal: to each side
all pieces together are worth the same, 10 points.

Each kind of items is an issue; a side gets the points of its pieces, and without a deal both get 0.

**Levels.** ``easy``: 2 kinds of items, the sides rank them in opposite order. ``medium``: 3 kinds, points drawn
independently. ``hard``: 4 kinds, and both sides value the same kind most.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ItemsIssue, OutcomeSpec, Terms
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import listed, pieces, points
from sotopia_env.world.observation import Briefing
from sotopia_env.world.scenario import Seat


class _Texts(FamilyTexts):
    """Places with the singular and the plural of the items there, and how contexts and goals are put."""

    places: dict[str, tuple[tuple[str, str], ...]]
    contexts: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]


texts = read_texts(_Texts, "division")
NAME = "division"
TOTAL = 10
"""What all pieces together are worth to each side."""
_KINDS = {"easy": 2, "medium": 3, "hard": 4}

Nouns = Mapping[str, tuple[str, str]]
"""Issue name to the singular and the plural of its pieces."""

_NOUNS: Nouns = {name: noun for items in texts.places.values() for noun in items for name in noun}


@lru_cache(maxsize=64)
def _valuations(counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Every way to give points per piece (0 to 10) so that all pieces together are worth :data:`TOTAL`."""
    per_piece = [range(TOTAL // count + 1) for count in counts]
    return tuple(
        values
        for values in itertools.product(*per_piece)
        if sum(map(int.__mul__, counts, values)) == TOTAL and sum(value > 0 for value in values) > 1
    )


def _draw_values(rng: random.Random, level: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Counts, and both sides' points per piece; drawn again until the level's relation between the sides holds."""
    while True:
        counts = tuple(rng.randint(1, 3) for _ in range(_KINDS[level]))
        choices = _valuations(counts)
        if not choices or sum(counts) < 3:
            continue
        first, second = rng.choice(choices), rng.choice(choices)
        if first != second and _fits(level, first, second):
            return counts, first, second


def _fits(level: str, first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    tops = [max(range(len(side)), key=side.__getitem__) for side in (first, second)]
    if level == "easy":
        return (first[0] - first[1]) * (second[0] - second[1]) < 0
    return level != "hard" or tops[0] == tops[1]


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    counts, *sides = _draw_values(rng, level)
    place = rng.choice(tuple(texts.places))
    nouns = rng.sample(texts.places[place], len(counts))
    items = {noun[count > 1]: count for noun, count in zip(nouns, counts, strict=True)}
    values = [dict(zip(items, side, strict=True)) for side in sides]
    characters = draw_characters(rng, 2)
    a, b = (character.name for character in characters)
    inventory = listed([pieces(count, *_NOUNS[name]) for name, count in items.items()])
    context = rng.choice(texts.contexts).format(a=a, b=b, place=place, items=inventory)
    return Draft(
        characters=characters,
        context=f"{context} {rng.choice(texts.rules)}",
        seats=tuple(_seat(rng, side) for side in values),
        outcome=division_outcome(items, values),
        tags=("mixed",),
    )


def division_outcome(
    items: Mapping[str, int], values: Sequence[Mapping[str, int]], no_agreement: float = 0.0
) -> OutcomeSpec:
    """Returns the division of ``items`` (name to pieces) among seats with these points per piece."""
    return OutcomeSpec(
        protocol=AgreementRules(),
        issues=tuple(ItemsIssue(name=name, count=count) for name, count in items.items()),
        worth=tuple(
            AdditiveWorth(issues={name: {"each": value} for name, value in side.items()}, no_agreement=no_agreement)
            for side in values
        ),
    )


def _seat(rng: random.Random, values: Mapping[str, int]) -> Seat:
    worths = [f"each {_NOUNS[name][0]} is worth {points(value)}" for name, value in values.items()]
    return Seat(
        goals=(rng.choice(texts.goals).format(points=listed(worths)),),
        hints=(rng.choice(texts.hints),),
        private_data={"role": "divider"},
    )


def share_fields(nouns: Nouns) -> Callable[[Briefing, Terms], Mapping[str, str] | None]:
    """Returns the fields ``mine`` and ``yours`` of a division between two, with ``nouns`` for the pieces."""

    def fields(briefing: Briefing, terms: Terms) -> Mapping[str, str] | None:
        if len(briefing.partners) != 1 or not all(name in nouns for name in terms):
            return None
        own, partner = briefing.agent, briefing.partners[0].agent
        return {"mine": _share(terms, own, nouns), "yours": _share(terms, partner, nouns)}

    return fields


def _share(terms: Terms, agent: str, nouns: Nouns) -> str:
    parts = [pieces(division[agent], *nouns[name]) for name, division in terms.items() if division[agent]]
    return listed(parts) if parts else "nothing"


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=share_fields(_NOUNS)),
)
"""The family; see the module's text for its rules."""
