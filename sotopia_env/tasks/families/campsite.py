"""``campsite``: two campers with different needs divide food, water and firewood.

The setting is that of the CaSiNo corpus (Chawla et al., NAACL 2021): three packages of each item; 5, 4 and 3 points per
package of high, middle and low priority; and 5 points for each camper without an agreement. The texts are original.

**Levels.** ``easy``: the sides' priorities are in opposite order. ``medium``: they differ in the highest priority, but
are not in opposite order. ``hard``: both need the same thing most.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.tasks.families.division import division_outcome, share_fields
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import points
from sotopia_env.world.scenario import Seat


class _CampsiteTexts(FamilyTexts):
    """Texts of the campsite, and of the campers' needs.

    Attributes:
        nouns: singular and plural of the packages, by item.
        contexts: texts that open the context.
        rules: texts that state the rules.
        goals: templates of goals.
        reasons: by item, reasons for giving it a high, a middle and a low priority.
    """

    nouns: dict[str, tuple[str, str]]
    contexts: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]
    reasons: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]


texts = read_texts(_CampsiteTexts, "campsite")
NAME = "campsite"
COUNT = 3
"""Packages of each kind."""
PRIORITIES = (5, 4, 3)
"""Points per package of the high, the middle and the low priority."""
NO_AGREEMENT = 5
ITEMS = tuple(texts.nouns)

Order = tuple[str, ...]
"""The items from the high to the low priority."""


def _level(first: Order, second: Order) -> str:
    if first[0] == second[0]:
        return "hard"
    return "easy" if first == second[::-1] else "medium"


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    # Of the 36 pairs of orders, 6 are easy, 18 medium and 12 hard.
    orders = list(itertools.permutations(ITEMS))
    pairs = [pair for pair in itertools.product(orders, repeat=2) if _level(*pair) == level]
    sides = rng.choice(pairs)
    values = [dict(zip(order, PRIORITIES, strict=True)) for order in sides]
    return Draft(
        characters=draw_characters(rng, 2),
        context=f"{rng.choice(texts.contexts)} {rng.choice(texts.rules)}",
        seats=tuple(_seat(rng, side) for side in values),
        outcome=division_outcome(
            dict.fromkeys(ITEMS, COUNT), [{name: side[name] for name in ITEMS} for side in values], NO_AGREEMENT
        ),
        tags=("mixed",),
    )


def _seat(rng: random.Random, values: Mapping[str, int]) -> Seat:
    # ``values`` is ordered from the high to the low priority, and so are an item's reasons.
    worths = conjunction([f"each {texts.nouns[name][0]} {points(value)}" for name, value in values.items()])
    reasons = [rng.choice(texts.reasons[name][rank]) for rank, name in enumerate(values)]
    return Seat(
        goals=(rng.choice(texts.goals).format(points=worths, no_agreement=NO_AGREEMENT),),
        hints=(rng.choice(texts.hints),),
        private_info=" ".join(reasons),
        private_data={"role": "camper"},
    )


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=partial(share_fields, texts.nouns)),
)
"""The family; the module's docstring states its rules."""
