"""``bargaining``: one item, a listed price everybody sees, and two private ideas of what it is worth.

The seller's target price is the listed price divided by ``1 + markup`` with an exponential markup of rate 0.5, as in
SOTOPIA (arXiv 2310.11667, appendix C.2); each side has a target and a walk-away price of its own. The level sets the
zone of possible agreement between the two walk-away prices, as a share of the listed price:

========  ==============
level     width of zone
========  ==============
easy      0.28 to 0.42
medium    0.14 to 0.25
hard      0.04 to 0.09 (at least two dollars)
========  ==============

The one issue is the price, in whole dollars from a quarter of the listed price to the listed price: that holds every
walk-away price and tells none. A price is worth to each side the dollars by which it is better than the own walk-away
price (negative when worse), and no deal is worth 0. The target is only an aim. Every price in the zone is
Pareto-optimal, since what one side gains the other loses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from sotopia_env.outcomes import AdditiveWorth, AgreementRules, NumberIssue, OutcomeSpec, Terms
from sotopia_env.records import Record
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import amount, capitalise
from sotopia_env.world.observation import Briefing
from sotopia_env.world.scenario import Seat


class Item(Record):
    """Something for sale: name with its article, a description, and the usual span of listed prices in dollars."""

    name: str
    description: str
    low: int
    high: int


class _Texts(FamilyTexts):
    """What is sold, where, and how the goals are put."""

    items: tuple[Item, ...]
    contexts: tuple[str, ...]
    buyer_goals: tuple[str, ...]
    seller_goals: tuple[str, ...]


texts = read_texts(_Texts, "bargaining")
NAME = "bargaining"
PRICE = "price"
MARKUP_RATE = 0.5
LOWEST = 4
"""The lowest possible price is the listed price divided by this; the highest is the listed price itself."""
_ZONES: Mapping[str, tuple[float, float]] = {"easy": (0.28, 0.42), "medium": (0.14, 0.25), "hard": (0.04, 0.09)}


@dataclass(frozen=True, slots=True)
class Side:
    """One side's private numbers, in dollars."""

    role: Literal["buyer", "seller"]
    target_price: int
    walk_away_price: int

    def worth(self) -> AdditiveWorth:
        """Dollars better than the walk-away price."""
        sign = 1 if self.role == "seller" else -1
        return AdditiveWorth(constant=-sign * self.walk_away_price, issues={PRICE: {"per_unit": sign}})


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    """The buyer sits in seat 0 for an even ``index`` and in seat 1 for an odd one."""
    item = rng.choice(texts.items)
    listed = rng.randint(item.low, item.high)
    buyer, seller = _draw_sides(rng, listed, _ZONES[level])
    sides = (buyer, seller) if index % 2 == 0 else (seller, buyer)
    context = rng.choice(texts.contexts).format(item=item.name, description=item.description, price=listed)
    price = NumberIssue(name=PRICE, low=Decimal(listed // LOWEST), high=Decimal(listed), unit="$")
    return Draft(
        characters=draw_characters(rng, 2),
        context=capitalise(context),
        seats=tuple(_seat(rng, side, item) for side in sides),
        outcome=OutcomeSpec(protocol=AgreementRules(), issues=(price,), worth=tuple(side.worth() for side in sides)),
        shared_data={"item": item.name, "listed_price": listed},
    )


def _draw_sides(rng: random.Random, listed: int, zone: tuple[float, float]) -> tuple[Side, Side]:
    """Draws until the buyer's walk-away price is below the listed price, so that the listed price is never a deal."""
    while True:
        target = round(listed / (1 + rng.expovariate(MARKUP_RATE)))
        lowest = round(target * rng.uniform(0.7, 0.92))
        highest = lowest + max(2, round(listed * rng.uniform(*zone)))
        aim = round(highest * rng.uniform(0.62, 0.88))
        # Markups so large that the item would be given away make no bargaining and are drawn again.
        if lowest >= listed * 0.3 and highest < listed and aim < highest and target > lowest:
            return Side("buyer", aim, highest), Side("seller", target, lowest)


def _seat(rng: random.Random, side: Side, item: Item) -> Seat:
    goals = texts.buyer_goals if side.role == "buyer" else texts.seller_goals
    bound = "the most you would pay" if side.role == "buyer" else "the least you would take"
    noun = item.name.split(" ", 1)[1]
    goal = rng.choice(goals).format(item=f"the {noun}", target=side.target_price, walk_away=side.walk_away_price)
    return Seat(
        goals=(goal,),
        hints=(rng.choice(texts.hints),),
        private_info=f"Your target price is ${side.target_price}; ${side.walk_away_price} is {bound}.",
        private_data={"role": side.role, "target_price": side.target_price},
    )


def _fields(briefing: Briefing, terms: Terms) -> Mapping[str, str] | None:
    price = terms.get(PRICE)
    return {"price": amount(price)} if len(terms) == 1 and isinstance(price, int | float) else None


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=_fields),
)
"""The family; see the module's text for its rules."""
