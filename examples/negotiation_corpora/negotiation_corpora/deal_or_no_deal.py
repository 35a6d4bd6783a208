"""Importers of Deal or No Deal (Lewis et al. 2017): lines of text, one per player, and JSON of the cocoa framework.

After the talk, each side selects its own share. A selection is converted to an offer of that share, with the rest for
the other side. If the two selections are compatible, the offers are equal and form an agreement; otherwise they are two
offers that were not accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError, Verbatim
from sotopia_env.importers.foreign import Foreign, ForeignValue, Format, Identity, Product, ProductKind
from sotopia_env.importers.formats.negotiation import (
    HUMAN,
    Side,
    division,
    idle,
    leaving,
    negotiation_product,
    negotiation_task,
    share_offer,
    whole,
)
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.playback import Act, utterance
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import Task

ITEMS = ("book", "hat", "ball")
_NAMES = ("Player 1", "Player 2")
_GOAL = "Get as many points as you can from your share."
_SELECTION, _EOS = "<selection>", " <eos> "
_SPEAKERS = ("YOU:", "THEM:")
_NO_DEAL, _DISAGREED = "<no_agreement>", "<disagree>"


def _task(key: str, counts: Mapping[str, int], values: Sequence[Mapping[str, float]]) -> Task:
    listed = ", ".join(f"{count} × {name}" for name, count in counts.items())
    context = f"Two people divide these items: {listed}. What each piece is worth differs between them."
    points = [", ".join(f"{name} {value:g}" for name, value in side.items()) for side in values]
    sides = [
        Side(name, _GOAL, f"Your points for each piece: {points[seat]}. Without an agreement you have none.")
        for seat, name in enumerate(_NAMES)
    ]
    scenario = f"deal-or-no-deal/{content_id(counts, values)}"
    return negotiation_task(key, scenario, context, sides, division(counts, values), "deal-or-no-deal")


# --- lines of text ---------------------------------------------------------------------------------------------------


class DialogueLines(ForeignValue[list[Annotated[str, Field(pattern="^<input>")]]]):
    """One or both of the lines of a dialogue."""


@dataclass(frozen=True, slots=True)
class _DialogueLine:
    """A line from its player's perspective.

    Attributes:
        counts: number of pieces by item.
        values: points per piece by item, of the player and of its partner.
        dialogue: the messages as (0 for the player, 1 for the partner; text).
        output: the words of the final selection.
    """

    counts: dict[str, int]
    values: tuple[dict[str, float], dict[str, float]]
    dialogue: tuple[tuple[int, str], ...]
    output: tuple[str, ...]

    @property
    def mirrored(self) -> tuple[Any, ...]:
        """The counts, values and dialogue as the partner's line has them."""
        return self.counts, self.values[::-1], tuple((1 - side, text) for side, text in self.dialogue)


def _part(text: str, name: str) -> str:
    _, opening, rest = text.partition(f"<{name}>")
    content, closing, _ = rest.partition(f"</{name}>")
    if not opening or not closing:
        raise DamagedRecordError(field=name, expected=f"<{name}> … </{name}>", got=text)
    return content.strip()


def _pairs(field: str, text: str) -> tuple[dict[str, int], dict[str, float]]:
    numbers = [whole(field, word) for word in text.split()]
    if len(numbers) != 2 * len(ITEMS):
        raise DamagedRecordError(field=field, expected=f"count and value of {', '.join(ITEMS)}", got=text)
    return dict(zip(ITEMS, numbers[::2], strict=True)), dict(zip(ITEMS, map(float, numbers[1::2]), strict=True))


def _line(text: str) -> _DialogueLine:
    counts, own = _pairs("input", _part(text, "input"))
    others, other = _pairs("partner_input", _part(text, "partner_input"))
    if counts != others:
        raise DamagedRecordError(field="partner_input", expected=f"the counts of input, {counts}", got=others)
    dialogue = []
    for number, words in enumerate(_part(text, "dialogue").split(_EOS.strip())):
        speaker, _, speech = words.strip().partition(" ")
        if speaker not in _SPEAKERS:
            raise DamagedRecordError(field=f"dialogue.{number}", expected="YOU: or THEM:", got=words)
        dialogue.append((_SPEAKERS.index(speaker), speech))
    return _DialogueLine(counts, (own, other), tuple(dialogue), tuple(_part(text, "output").split()))


def _selections(line: _DialogueLine) -> list[dict[str, int]] | None:
    """The shares of both sides; ``None`` if there was no deal."""
    # An output without a deal repeats one mark, such as "<no_agreement>", instead of "item0=2" and so on.
    pairs = [word.partition("=") for word in line.output]
    if not all(equals for _, equals, _ in pairs):
        return None
    numbers = [whole("output", number) for _, _, number in pairs]
    if len(numbers) != 2 * len(ITEMS):
        raise DamagedRecordError(field="output", expected="six shares such as item0=2", got=line.output)
    return [dict(zip(ITEMS, numbers[start : start + 3], strict=True)) for start in (0, 3)]


def _acts(line: _DialogueLine) -> list[Act]:
    acts: list[Act] = []
    # Selections were made in private at the end; the side that ended the talk with one makes its offer first.
    selector = None
    for seat, text in line.dialogue:
        if text == _SELECTION:
            selector = seat
        else:
            acts.append(utterance(seat, text))
    shares = _selections(line)
    if shares is not None:
        first = selector or 0
        acts += [share_offer(seat, shares[seat], line.counts) for seat in (first, 1 - first)]
    elif selector is not None and set(line.output) == {_NO_DEAL}:
        acts.append(leaving(selector))
    return acts


def is_mirror(first: Any, second: Any) -> bool:
    """Whether two lines are the two perspectives on one dialogue."""
    try:
        one, other = _line(first), _line(second)
    except DamagedRecordError:
        return False
    return one.mirrored == (other.counts, other.values, other.dialogue)


def read_lines(lines: DialogueLines, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a dialogue; ``item`` holds one or both of its lines."""
    line = _line(lines.root[0])
    key = f"{item.file.stem[:60]}-{item.line}"
    yield negotiation_product(
        key,
        lambda: _task(key, line.counts, line.values),
        _acts(line),
        (HUMAN, HUMAN),
    )


# --- cocoa JSON ------------------------------------------------------------------------------------------------------


class CocoaEvent(Foreign):
    """An act of an agent."""

    agent: int
    action: str
    data: Any = None


class CocoaDialogue(Foreign):
    """A dialogue of the cocoa framework."""

    uuid: Identity
    scenario_uuid: Identity = ""
    scenario: Any
    agents: dict[str, Any] | None = None
    events: list[CocoaEvent]

    @property
    def policies(self) -> list[str]:
        """The names of the agents' types, in seat order; empty if unknown."""
        agents = self.agents or {}
        return [str(agents.get(str(seat)) or "") for seat in (0, 1)]


class Goods(Foreign):
    """The pieces of one item, and their value to a side."""

    Name: Identity
    Count: int
    Value: int


class DivisionScenario(Foreign):
    """The items and their values, for each side."""

    kbs: tuple[list[Goods], list[Goods]]


class DivisionDialogue(CocoaDialogue):
    """A dialogue about a division of items."""

    scenario: DivisionScenario


def cocoa_acts(dialogue: CocoaDialogue, act: Any) -> list[Act]:
    """Returns the acts of a dialogue.

    Args:
        dialogue: the dialogue.
        act: converts an event that is not a message, from its index and the event.

    Raises:
        DamagedRecordError: an event's agent is not 0 or 1, or its action is unknown.
    """
    acts = []
    for number, event in enumerate(dialogue.events):
        if event.agent not in (0, 1):
            raise DamagedRecordError(field=f"events.{number}.agent", expected="0 or 1", got=event.agent)
        entry = utterance(event.agent, str(event.data or "")) if event.action == "message" else act(number, event)
        acts.append(entry)
    return acts


def read_cocoa(dialogue: DivisionDialogue, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a dialogue."""
    sides = dialogue.scenario.kbs
    counts, others = ({goods.Name: goods.Count for goods in side} for side in sides)
    if counts != others:
        raise DamagedRecordError(
            field="scenario.kbs", expected="the same items for both sides", got=Verbatim(f"{counts} and {others}")
        )
    values = [{goods.Name: float(goods.Value) for goods in side} for side in sides]

    def act(number: int, event: CocoaEvent) -> Act:
        if event.action in ("select", "offer") and isinstance(event.data, dict):
            share = {name: whole(f"events.{number}.data", count) for name, count in event.data.items()}
            return share_offer(event.agent, share, counts)
        if event.action in ("quit", "reject", "leave"):
            return leaving(event.agent)
        # Events of the chat interface and selections without data change nothing.
        if event.action in ("select", "join", "typing", "eval"):
            return idle(event.agent)
        raise DamagedRecordError(field=f"events.{number}.action", expected="message, select or quit", got=event.action)

    yield negotiation_product(
        dialogue.uuid,
        lambda: _task(dialogue.uuid, counts, values),
        cocoa_acts(dialogue, act),
        dialogue.policies,
    )


TEXT = Format(
    "deal-or-no-deal",
    "Deal or No Deal, lines of text",
    ProductKind.EPISODE,
    DialogueLines,
    read_lines,
    joins=lambda lines, line: len(lines) == 1 and is_mirror(lines[0], line),
)
COCOA = Format(
    "deal-or-no-deal-cocoa",
    "Deal or No Deal, cocoa JSON",
    ProductKind.EPISODE,
    DivisionDialogue,
    read_cocoa,
)
