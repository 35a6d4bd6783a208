"""``bargaining``: a buyer and a seller negotiate the price of one item, with a public listed price.

The seller's target price is the listed price divided by ``1 + markup`` with an exponential markup of rate 0.5, as in
SOTOPIA (arXiv 2310.11667, appendix C.2). Each side has a private target and a private walk-away price. The level sets
the zone of possible agreement between the two walk-away prices, as a share of the listed price:

========  ==============
level     width of zone
========  ==============
easy      0.28 to 0.42
medium    0.14 to 0.25
hard      0.04 to 0.09 (at least two dollars)
========  ==============

The only issue is the price, in whole dollars from a quarter of the listed price to the listed price. This range
contains every walk-away price and reveals none. The worth of a price to a side is the number of dollars by which it is
better than the side's walk-away price (negative if worse); no deal is worth 0. The target is only an aim. Every price
in the zone is Pareto-optimal, since a gain of one side is a loss of the other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, NumberIssue, OutcomeSpec
from sotopia_env.outcomes.space import Terms
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import amount, capitalise
from sotopia_env.world.observation import Briefing
from sotopia_env.world.scenario import Seat


class SaleItem(Record):
    """An item for sale: name with its article, description, and the range of its listed prices in dollars."""

    name: str
    description: str
    low: int
    high: int


class _BargainingTexts(FamilyTexts):
    """The items, the contexts, and the goals of both sides."""

    items: tuple[SaleItem, ...]
    contexts: tuple[str, ...]
    buyer_goals: tuple[str, ...]
    seller_goals: tuple[str, ...]


texts = read_texts(_BargainingTexts, "bargaining")
NAME = "bargaining"
PRICE = "price"
MARKUP_RATE = 0.5
LOWEST = 4
"""The lowest possible price is the listed price divided by this; the highest is the listed price itself."""
_ZONES: Mapping[str, tuple[float, float]] = {"easy": (0.28, 0.42), "medium": (0.14, 0.25), "hard": (0.04, 0.09)}


@dataclass(frozen=True, slots=True)
class BargainingSide:
    """One side's private prices, in dollars."""

    role: Literal["buyer", "seller"]
    target_price: int
    walk_away_price: int

    def worth(self) -> AdditiveWorth:
        """The worth of a price: the dollars by which it is better than the walk-away price."""
        sign = 1 if self.role == "seller" else -1
        return AdditiveWorth(constant=-sign * self.walk_away_price, issues={PRICE: {"per_unit": sign}})


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    """The buyer has seat 0 for an even ``index`` and seat 1 for an odd one."""
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


def _draw_sides(rng: random.Random, listed: int, zone: tuple[float, float]) -> tuple[BargainingSide, BargainingSide]:
    """Returns the buyer and the seller; the buyer's walk-away price is below the listed price."""
    while True:
        # The paper gives the markup only; the other shares are choices of this family. The seller would concede 8 to
        # 30 % of its target, and the buyer aims 12 to 38 % below the most it would pay.
        target = round(listed / (1 + rng.expovariate(MARKUP_RATE)))
        lowest = round(target * rng.uniform(0.7, 0.92))
        highest = lowest + max(2, round(listed * rng.uniform(*zone)))
        aim = round(highest * rng.uniform(0.62, 0.88))
        # Drawn again: markups at which the item would be given away (the walk-away prices must also stay well inside
        # the issue, which starts at a quarter of the listed price), and zones that contain the listed price, which
        # would make the first price that both see a deal.
        if lowest >= listed * 0.3 and highest < listed and aim < highest and target > lowest:
            return BargainingSide("buyer", aim, highest), BargainingSide("seller", target, lowest)


def _seat(rng: random.Random, side: BargainingSide, item: SaleItem) -> Seat:
    goals = texts.buyer_goals if side.role == "buyer" else texts.seller_goals
    bound = "the most you would pay" if side.role == "buyer" else "the least you would take"
    noun = item.name.split(" ", 1)[1]  # without the indefinite article
    goal = rng.choice(goals).format(item=f"the {noun}", target=side.target_price, walk_away=side.walk_away_price)
    return Seat(
        goals=(goal,),
        hints=(rng.choice(texts.hints),),
        private_info=f"Your target price is ${side.target_price}; ${side.walk_away_price} is {bound}.",
        # The walk-away price is not repeated here: programs read it from the seat's worth, which is 0 there.
        private_data={"role": side.role, "target_price": side.target_price},
    )


def _fields(briefing: Briefing, terms: Terms) -> Mapping[str, str] | None:
    # Terms of another kind occur when a user has edited a generated task; it is then played in plain English.
    price = terms.get(PRICE)
    return {"price": amount(price)} if len(terms) == 1 and isinstance(price, int | float) else None


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=_fields),
)
"""The family; the module's docstring states its rules."""
