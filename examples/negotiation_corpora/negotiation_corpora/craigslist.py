"""Importers of CraigslistBargain (He et al. 2018): JSON of the cocoa framework, and the published parallel lists.

The worth of a price is linear as in the paper. It is 0 at the mean of both targets, or at the bottom line for a side
that has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import Field

from negotiation_corpora.deal_or_no_deal import CocoaDialogue, CocoaEvent, cocoa_acts
from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, Format, Product, ProductKind
from sotopia_env.importers.formats.negotiation import (
    HUMAN,
    Side,
    answer,
    idle,
    leaving,
    negotiation_product,
    negotiation_task,
    price,
)
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.playback import Act, utterance
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, Move, MoveKind, NumberIssue, OutcomeSpec
from sotopia_env.world.scenario import Task

PRICE = "price"
_ANSWERS = {"accept": MoveKind.ACCEPT, "reject": MoveKind.REJECT}
_ACTS = (*_ANSWERS, "offer", "quit")
_ROLES = {"buyer": ("Buyer", -1, "Buy it for as little as you can"), "seller": ("Seller", 1, "Sell it for all you can")}


@dataclass(frozen=True, slots=True)
class _Listing:
    """The item for sale, and each side's role, target and bottom line."""

    title: str
    category: str
    description: str
    listed: float | None
    roles: tuple[str, ...]
    targets: tuple[float | None, ...]
    bottom_lines: tuple[float | None, ...]

    def task(self, key: str, offers: Sequence[float]) -> Task:
        """The task, with a range of prices that includes the listed price, the targets and all offers."""
        prices = [number for number in (self.listed, *self.targets, *self.bottom_lines, *offers) if number is not None]
        if not prices:
            raise DamagedRecordError(field="price", expected="a listed price, a target or an offer")
        # A grid of whole dollars unless an offer needs cents: a hundredth of the outcomes.
        cents = any(not number.is_integer() for number in offers)
        issue = NumberIssue(
            name=PRICE,
            low=Decimal(0),
            high=Decimal(max(1, math.ceil(max(prices)))),
            step=Decimal("0.01") if cents else Decimal(1),
            unit="$",
        )
        targets = [number for number in self.targets if number is not None]
        middle = math.fsum(targets) / len(targets) if targets else prices[0]
        worth = tuple(self._worth(seat, middle) for seat in (0, 1))
        listed = "" if self.listed is None else f", listed at ${self.listed:g}"
        context = f"For sale: {self.title} ({self.category}){listed}.\n{self.description}".strip()
        spec = OutcomeSpec(protocol=AgreementRules(), issues=(issue,), worth=worth)
        scenario = f"craigslist/{content_id(self)}"
        return negotiation_task(key, scenario, context, [self._side(seat) for seat in (0, 1)], spec, "craigslist")

    def _worth(self, seat: int, middle: float) -> AdditiveWorth:
        bottom, sign = self.bottom_lines[seat], _ROLES[self.roles[seat]][1]
        return AdditiveWorth(
            constant=-sign * (middle if bottom is None else bottom), issues={PRICE: {"per_unit": sign}}
        )

    def _side(self, seat: int) -> Side:
        name, _, goal = _ROLES[self.roles[seat]]
        target, bottom = self.targets[seat], self.bottom_lines[seat]
        aim = "" if target is None else f"; aim for ${target:g}"
        return Side(name, f"{goal}{aim}.", "" if bottom is None else f"Your bottom line is ${bottom:g}.")


def _roles(values: Sequence[Any]) -> tuple[str, ...]:
    roles = tuple(str(value).casefold() for value in values)
    if sorted(roles) != sorted(_ROLES):
        raise DamagedRecordError(field="Role", expected="a buyer and a seller", got=list(values))
    return roles


def _offer(seat: int, amount: float | None, words: str) -> Act:
    """An offer of a price; without a price, only the words of the offer."""
    if amount is None:
        return utterance(seat, words) if words else idle(seat)
    return utterance(seat, words, Move(MoveKind.PROPOSE, {PRICE: int(amount) if amount.is_integer() else amount}))


def _formal(seat: int, kind: str, amount: float | None, words: str) -> Act:
    if kind in _ANSWERS:
        return answer(seat, _ANSWERS[kind])
    return leaving(seat) if kind == "quit" else _offer(seat, amount, words)


# --- cocoa JSON ------------------------------------------------------------------------------------------------------


class SaleSide(Foreign):
    """The information of one side."""

    personal: dict[str, Any]
    item: dict[str, Any] = Field(default_factory=dict)


class SaleScenario(Foreign):
    """The information of both sides."""

    kbs: tuple[SaleSide, SaleSide]


class SaleDialogue(CocoaDialogue):
    """A dialogue about a price."""

    scenario: SaleScenario


def read_cocoa(dialogue: SaleDialogue, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a dialogue."""
    kbs = dialogue.scenario.kbs
    personal, goods = [kb.personal for kb in kbs], kbs[0].item
    description = goods.get("Description") or ""
    listing = _Listing(
        title=str(goods.get("Title", "")),
        category=str(goods.get("Category", "")),
        description="\n".join(map(str, description)) if isinstance(description, list) else str(description),
        listed=price("scenario.kbs.0.item.Price", goods.get("Price")),
        roles=_roles([side.get("Role") for side in personal]),
        targets=_prices(personal, "Target"),
        bottom_lines=_prices(personal, "Bottomline"),
    )
    offers: list[float] = []

    def act(number: int, event: CocoaEvent) -> Act:
        if event.action not in _ACTS:
            raise DamagedRecordError(
                field=f"events.{number}.action", expected=f"message or {', '.join(_ACTS)}", got=event.action
            )
        data = event.data if isinstance(event.data, dict) else {}
        amount = price(f"events.{number}.data.price", data.get("price"))
        offers.extend([] if amount is None else [amount])
        return _formal(event.agent, event.action, amount, str(data.get("sides") or ""))

    acts = cocoa_acts(dialogue, act)
    yield negotiation_product(
        dialogue.uuid,
        lambda: listing.task(dialogue.uuid, offers),
        acts,
        dialogue.policies,
    )


def _prices(personal: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, ...]:
    return tuple(price(f"scenario.kbs.{n}.personal.{name}", side.get(name)) for n, side in enumerate(personal))


# --- parallel lists --------------------------------------------------------------------------------------------------


class PublishedDialogue(Foreign):
    """A dialogue as parallel lists with one entry per act."""

    agent_info: dict[str, list[Any]]
    agent_turn: list[int]
    dialogue_acts: dict[str, list[Any]]
    utterance: list[str]
    items: dict[str, Any]


def read_lists(dialogue: PublishedDialogue, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a dialogue; utterances whose intent is not a formal act are converted to speech."""
    intents, prices = dialogue.dialogue_acts.get("intent", []), dialogue.dialogue_acts.get("price", [])
    lengths = {len(column) for column in (dialogue.agent_turn, dialogue.utterance, intents, prices)}
    if len(lengths) != 1:
        raise DamagedRecordError(
            field="agent_turn, utterance, intent, price", expected="equal lengths", got=sorted(lengths)
        )
    goods = {name: _first(value) for name, value in dialogue.items.items()}
    info = dialogue.agent_info
    listing = _Listing(
        title=str(goods.get("Title") or ""),
        category=str(goods.get("Category") or ""),
        description=str(goods.get("Description") or ""),
        listed=price("items.Price", goods.get("Price")),
        roles=_roles(info.get("Role", [])),
        targets=_side_prices(info, "Target"),
        bottom_lines=_side_prices(info, "Bottomline"),
    )
    acts, offers = [], []
    for number, (seat, words, intent) in enumerate(zip(dialogue.agent_turn, dialogue.utterance, intents, strict=True)):
        if seat not in (0, 1):
            raise DamagedRecordError(field=f"agent_turn.{number}", expected="0 or 1", got=seat)
        # The intents of utterances were inferred from their words; only acts without words were formal ones.
        if words or intent not in _ACTS:
            acts.append(utterance(seat, words))
            continue
        amount = price(f"dialogue_acts.price.{number}", prices[number]) if intent == "offer" else None
        offers += [] if amount is None else [amount]
        acts.append(_formal(seat, intent, amount, ""))
    key = f"{item.file.stem[:60]}-{item.number}"
    yield negotiation_product(key, lambda: listing.task(key, offers), acts, (HUMAN, HUMAN))


def _first(value: Any) -> Any:
    return (value[0] if value else None) if isinstance(value, list) else value


def _side_prices(info: Mapping[str, list[Any]], name: str) -> tuple[float | None, ...]:
    values = info.get(name, [None, None])
    if len(values) != 2:
        raise DamagedRecordError(field=f"agent_info.{name}", expected="2, one per side", got=len(values))
    return tuple(price(f"agent_info.{name}", None if str(v).casefold() in ("none", "null") else v) for v in values)


COCOA = Format(
    "craigslist-cocoa",
    "CraigslistBargain, cocoa JSON",
    ProductKind.EPISODE,
    SaleDialogue,
    read_cocoa,
)
LISTS = Format(
    "craigslist",
    "CraigslistBargain, published as parallel lists",
    ProductKind.EPISODE,
    PublishedDialogue,
    read_lists,
)
CRAIGSLIST = (COCOA, LISTS)
