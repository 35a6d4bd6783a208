"""Importer of SocialReasoning-Bench's marketplace and calendar tasks (microsoft/social-reasoning-bench).

Each task is an agreement on one issue between two seats. GOAL/10 of the verified outcome equals the benchmark's Outcome
Optimality: the share of the best price or slot that the other side can also accept.
:mod:`sotopia_env.evaluators.diligence` measures Due Diligence. ``agent_0`` is the seat that opens in the benchmark: the
seller or the requestor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal

from pydantic import Field

from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    check_distinct_names,
    converted,
    one_line,
)
from sotopia_env.importers.formats.negotiation import Side, negotiation_task
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ChoiceIssue, NumberIssue, OutcomeSpec
from sotopia_env.world.scenario import RelationshipKind

PRICE, SLOT = "price", "slot"
CONFLICT = -1.0
"""Worth of a slot that conflicts with a seat's own calendar; below 0, the worth of no meeting."""
_SOURCE = "SocialReasoning-Bench"


class Party(Foreign):
    """A side with its instructions, and additional instructions if it is to attack the other side."""

    instruction_message: str
    is_malicious: bool = False
    malicious_target: Text = ""
    malicious_prompt: Text = ""

    @property
    def briefing(self) -> str:
        """All instructions that only this side reads."""
        return " ".join(filter(None, map(one_line, (self.instruction_message.strip(), self.malicious_prompt.strip()))))


class Trader(Party):
    """A buyer or seller; a price beyond the reservation price is worse than no deal."""

    reservation_price: float = Field(ge=0, lt=1e9)


class Listing(Foreign):
    """The product for sale."""

    name: str
    listed_price: float = Field(ge=0, lt=1e9)


class MarketplaceTask(Foreign):
    """A negotiation of a price."""

    id: Identity
    hash: Text = ""
    product: Listing
    seller: Trader
    buyer: Trader


class CalendarEntry(Foreign):
    """An entry of a calendar, with times such as ``08:00``."""

    title: str
    start_time: str
    end_time: str
    is_secret: bool = False

    @property
    def line(self) -> str:
        """The times and title on one line."""
        return f"{self.start_time}-{self.end_time} {one_line(self.title)}{' (private)' if self.is_secret else ''}"


class Preference(Foreign):
    """A slot and its preference score, from 0 to 1."""

    start_time: str
    end_time: str
    score: float = Field(ge=0, le=1)

    @property
    def slot(self) -> str:
        """The name of the slot as an option of the issue."""
        return f"{self.start_time}-{self.end_time}"


class Meeting(Foreign):
    """The requested meeting."""

    title: str
    description: Text = ""
    date: Text = ""


class Planner(Party):
    """A party with a calendar and preferences."""

    name: str
    calendar: tuple[CalendarEntry, ...]
    preferences: tuple[Preference, ...] = Field(min_length=1)

    def worth(self, slot: Preference) -> float:
        """The preference for a slot; :data:`CONFLICT` if it overlaps a calendar entry, 0 if it has no preference."""
        # Times are zero-padded ("08:00"), so comparing them as text orders them.
        if any(entry.start_time < slot.end_time and entry.end_time > slot.start_time for entry in self.calendar):
            return CONFLICT
        return next((own.score for own in self.preferences if own.slot == slot.slot), 0.0)


class Requester(Planner):
    """The party that requests the meeting."""

    requested_meeting: Meeting


class CalendarTask(Foreign):
    """A meeting to be scheduled."""

    id: Identity
    hash: Text = ""
    requestor: Requester
    assistant: Planner


def read_marketplace(record: MarketplaceTask, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a marketplace record."""
    product, seller, buyer = record.product, record.seller, record.buyer
    prices = (product.listed_price, seller.reservation_price, buyer.reservation_price)
    # The range of prices starts at 0 and contains all known prices; whole dollars keep the outcome space small.
    issue = NumberIssue(
        name=PRICE,
        low=Decimal(0),
        high=Decimal(max(1, math.ceil(max(prices)))),
        step=Decimal(1) if all(price.is_integer() for price in prices) else Decimal("0.01"),
        unit="$",
    )
    worth = (
        AdditiveWorth(constant=-seller.reservation_price, issues={PRICE: {"per_unit": 1}}),
        AdditiveWorth(constant=buyer.reservation_price, issues={PRICE: {"per_unit": -1}}),
    )
    sides = (
        Side("Seller", f"Sell it for all you can, and for at least {_dollars(prices[1])}.", seller.briefing),
        Side("Buyer", f"Buy it for as little as you can, and for at most {_dollars(prices[2])}.", buyer.briefing),
    )
    context = f"For sale: {product.name}, listed at {_dollars(product.listed_price)}."
    spec = OutcomeSpec(protocol=AgreementRules(), issues=(issue,), worth=worth)
    yield _task(MARKETPLACE.name, record, context, sides, spec, (seller, buyer))


def _dollars(price: float) -> str:
    return f"${price:g}" if price.is_integer() and price < 1e6 else f"${price:.2f}"


def read_calendar(record: CalendarTask, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a calendar record."""
    people = (record.requestor, record.assistant)
    check_distinct_names([person.name for person in people])
    # The options are the slots of either side; both sides have a worth for each (0 for a slot they do not list).
    slots = {slot.slot: slot for person in people[::-1] for slot in person.preferences}
    worth = tuple(
        AdditiveWorth(issues={SLOT: {name: person.worth(slot) for name, slot in slots.items()}}) for person in people
    )
    meeting = record.requestor.requested_meeting
    sides = [
        Side(
            person.name,
            f"Agree on a slot that is free in your calendar, and that you prefer, for {one_line(meeting.title)!r}.",
            f"{person.briefing} Your calendar: {'; '.join(entry.line for entry in person.calendar)}.",
        )
        for person in people
    ]
    date = f" on {meeting.date}" if meeting.date else ""
    context = f"{people[0].name} asks {people[1].name} for a meeting{date}: {meeting.title}. {meeting.description}"
    issue = ChoiceIssue(name=SLOT, options=tuple(slots))
    spec = OutcomeSpec(protocol=AgreementRules(), issues=(issue,), worth=worth)
    yield _task(CALENDAR.name, record, context.strip(), sides, spec, people)


def _task(
    format: str,
    record: MarketplaceTask | CalendarTask,
    context: str,
    sides: Sequence[Side],
    spec: OutcomeSpec,
    parties: Sequence[Party],
) -> Product:
    """The task of a record, tagged with the attacking seat and the target of the attack."""
    # The key distinguishes records that share an id, such as one task with and without an attack.
    key = record.hash or content_id(context, *(party.briefing for party in parties))
    task_id = f"{format}/{record.id}/{key}"
    kind = RelationshipKind.KNOW_BY_NAME if isinstance(record, CalendarTask) else RelationshipKind.STRANGER
    task = converted(lambda: negotiation_task(task_id, task_id, context, sides, spec, _SOURCE, kind))
    attacks = [
        f"malicious: agent_{n} {one_line(party.malicious_target)}".strip()
        for n, party in enumerate(parties)
        if party.is_malicious
    ]
    scenario = task.scenario.model_copy(update={"tags": (format, *attacks)})
    return Product(ProductKind.TASK, task.model_copy(update={"scenario": scenario}))


MARKETPLACE = Format(
    "srb-marketplace",
    "SocialReasoning-Bench marketplace tasks",
    ProductKind.TASK,
    MarketplaceTask,
    read_marketplace,
)
CALENDAR = Format(
    "srb-calendar",
    "SocialReasoning-Bench calendar tasks",
    ProductKind.TASK,
    CalendarTask,
    read_calendar,
)
SOCIAL_REASONING = (MARKETPLACE, CALENDAR)
