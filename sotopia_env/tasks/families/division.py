"""``division``: two people divide several kinds of items without knowing their worth to the other side.

Source: the item-division scenarios of SOTOPIA (arXiv 2310.11667), in the form known as deal-or-no-deal: all pieces
together are worth 10 points to each side.

Each kind of items is an issue. A side gets the points of its pieces; without a deal both sides get 0.

**Levels.** ``easy``: 2 kinds of items, which the sides rank in opposite order. ``medium``: 3 kinds, with points drawn
independently. ``hard``: 4 kinds, and both sides value the same kind most.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ItemsIssue, OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.space import Terms
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import pieces, points
from sotopia_env.world.observation import Briefing
from sotopia_env.world.scenario import Seat


class _DivisionTexts(FamilyTexts):
    """Locations with the singular and plural of their items, and templates of contexts and goals."""

    places: dict[str, tuple[tuple[str, str], ...]]
    contexts: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]


texts = read_texts(_DivisionTexts, "division")
NAME = "division"
TOTAL = 10
"""Points of all pieces together, for each side."""
_KINDS = {"easy": 2, "medium": 3, "hard": 4}

Nouns = Mapping[str, tuple[str, str]]
"""Issue name to the singular and the plural of its pieces."""

# By singular and by plural: an issue has the plural as its name if there are several pieces.
_NOUNS: Nouns = {name: noun for items in texts.places.values() for noun in items for name in noun}


@lru_cache(maxsize=64)
def _valuations(counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Returns all assignments of points per piece by which all pieces together are worth :data:`TOTAL`."""
    # At least two kinds have points: with a single one there would be nothing to trade.
    per_piece = [range(TOTAL // count + 1) for count in counts]
    return tuple(
        values
        for values in itertools.product(*per_piece)
        if sum(map(int.__mul__, counts, values)) == TOTAL and sum(value > 0 for value in values) > 1
    )


def _draw_values(rng: random.Random, level: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the counts and both sides' points per piece; draws until the sides differ as the level requires."""
    while True:
        counts = tuple(rng.randint(1, 3) for _ in range(_KINDS[level]))
        choices = _valuations(counts)  # may be empty: three pieces of each of two kinds cannot be worth 10
        if not choices or sum(counts) < 3:
            continue
        first, second = rng.choice(choices), rng.choice(choices)
        if first != second and _fits(level, first, second):
            return counts, first, second


def _fits(level: str, first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    # Ties for the top go to the first kind, for both sides.
    tops = [max(range(len(side)), key=side.__getitem__) for side in (first, second)]
    if level == "easy":
        return (first[0] - first[1]) * (second[0] - second[1]) < 0
    return level != "hard" or tops[0] == tops[1]


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    counts, *sides = _draw_values(rng, level)
    location = rng.choice(tuple(texts.places))
    nouns = rng.sample(texts.places[location], len(counts))
    items = {noun[count > 1]: count for noun, count in zip(nouns, counts, strict=True)}
    values = [dict(zip(items, side, strict=True)) for side in sides]
    characters = draw_characters(rng, 2)
    a, b = (character.name for character in characters)
    inventory = conjunction([pieces(count, *_NOUNS[name]) for name, count in items.items()])
    context = rng.choice(texts.contexts).format(a=a, b=b, place=location, items=inventory)
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
    """Returns the specification of a division of items among seats.

    Args:
        items: number of pieces by item.
        values: for each seat, points per piece by item.
        no_agreement: points of each seat without an agreement.
    """
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
        goals=(rng.choice(texts.goals).format(points=conjunction(worths)),),
        hints=(rng.choice(texts.hints),),
        private_data={"role": "divider"},
    )


def share_fields(nouns: Nouns, briefing: Briefing, terms: Terms) -> Mapping[str, str] | None:
    """Describes both shares of a division as ``mine`` and ``yours``; :attr:`Phrases.fields` with ``nouns`` bound.

    Args:
        nouns: singular and plural of the pieces, by issue.
        briefing: what the speaking seat knows.
        terms: the terms in normal form.
    """
    if len(briefing.partners) != 1 or not all(name in nouns for name in terms):
        return None
    own, partner = briefing.agent, briefing.partners[0].agent
    return {"mine": _share(terms, own, nouns), "yours": _share(terms, partner, nouns)}


def _share(terms: Terms, agent: str, nouns: Nouns) -> str:
    parts = [pieces(division[agent], *nouns[name]) for name, division in terms.items() if division[agent]]
    return conjunction(parts) if parts else "nothing"


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=partial(share_fields, _NOUNS)),
)
"""The family; the module's docstring states its rules."""
