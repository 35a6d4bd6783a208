"""Importer of CaSiNo (Chawla et al. 2021): two campers divide food, water and firewood, three packages of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, Format, Identity, Product, ProductKind
from sotopia_env.importers.formats.negotiation import (
    HUMAN,
    Side,
    answer,
    division,
    leaving,
    negotiation_product,
    negotiation_task,
    whole,
)
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.playback import Act, utterance
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.scenario import Task

ISSUES = ("Food", "Water", "Firewood")
# Points per package by priority, and each camper's points without an agreement (Chawla et al. 2021).
POINTS: Mapping[str, float] = {"High": 5.0, "Medium": 4.0, "Low": 3.0}
COUNT, NO_AGREEMENT = 3, 5.0
_SUBMIT, _LEAVE = "Submit-Deal", "Walk-Away"
_ANSWERS = {"Accept-Deal": MoveKind.ACCEPT, "Reject-Deal": MoveKind.REJECT}
_CONTEXT = (
    "Two campers who do not know each other divide what is left over for their trips: three packages each of food, "
    "water and firewood."
)


class ChatEntry(Foreign):
    """A message or a formal act."""

    id: Identity
    text: str
    task_data: dict[str, Any] | None = None


class Participant(Foreign):
    """A camper's needs, reasons and answers."""

    value2issue: dict[str, str]
    value2reason: dict[str, str] | None = None
    demographics: dict[str, Any] | None = None


class CasinoDialogue(Foreign):
    """A negotiation of two campers."""

    dialogue_id: Identity
    chat_logs: list[ChatEntry]
    participant_info: dict[str, Participant]


def _values(field: str, participant: Participant) -> dict[str, float]:
    order = participant.value2issue
    if sorted(order) != sorted(POINTS) or sorted(order.values()) != sorted(ISSUES):
        raise DamagedRecordError(
            field=f"{field}.value2issue", expected=f"High, Medium and Low for {', '.join(ISSUES)}", got=order
        )
    points = {issue: POINTS[level] for level, issue in order.items()}
    return {issue: points[issue] for issue in ISSUES}


def _task(key: str, participants: Mapping[str, Participant]) -> Task:
    values, sides = [], []
    for number, (name, participant) in enumerate(participants.items(), start=1):
        side = _values(f"participant_info.{name}", participant)
        reasons = " ".join(f"{level}: {reason}" for level, reason in (participant.value2reason or {}).items())
        needs = ", ".join(f"{issue} {points:g}" for issue, points in side.items())
        facts = participant.demographics or {}
        age = facts.get("age")
        values.append(side)
        sides.append(
            Side(
                f"Camper {number}",
                "Get as many points as you can from your share.",
                f"Your points for each package: {needs}; without an agreement {NO_AGREEMENT:g}. {reasons}".strip(),
                age=age if isinstance(age, int) else None,
                gender=str(facts.get("gender") or ""),
            )
        )
    outcome = division(dict.fromkeys(ISSUES, COUNT), values, NO_AGREEMENT)
    return negotiation_task(key, f"casino/{content_id(sides)}", _CONTEXT, sides, outcome, "casino")


def read(dialogue: CasinoDialogue, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a negotiation."""
    names = list(dialogue.participant_info)
    if len(names) != 2:
        raise DamagedRecordError(field="participant_info", expected="two campers", got=names)
    acts = [_act(f"chat_logs.{number}", entry, names) for number, entry in enumerate(dialogue.chat_logs)]
    key = f"casino-{dialogue.dialogue_id}"
    yield negotiation_product(key, lambda: _task(key, dialogue.participant_info), acts, (HUMAN, HUMAN))


def _act(field: str, entry: ChatEntry, names: list[str]) -> Act:
    if entry.id not in names:
        raise DamagedRecordError(field=f"{field}.id", expected=f"one of {names}", got=entry.id)
    seat, data = names.index(entry.id), entry.task_data or {}
    # A formal act has data: a participant who typed "Walk-Away" as a message has not walked away.
    if entry.text in _ANSWERS and data:
        return answer(seat, _ANSWERS[entry.text])
    if entry.text == _LEAVE and data:
        return leaving(seat)
    if entry.text != _SUBMIT or not data:
        return utterance(seat, entry.text)
    shares = []
    # Both shares are read, so that an offer that does not add up is refused as a move and not silently completed.
    for name in ("issue2youget", "issue2theyget"):
        share = data.get(name)
        if not isinstance(share, dict) or sorted(share) != sorted(ISSUES):
            raise DamagedRecordError(
                field=f"{field}.task_data.{name}", expected=f"packages of {', '.join(ISSUES)}", got=share
            )
        shares.append({issue: whole(f"{field}.task_data.{name}.{issue}", share[issue]) for issue in ISSUES})
    own, other = shares
    terms = {issue: {f"agent_{seat}": own[issue], f"agent_{1 - seat}": other[issue]} for issue in ISSUES}
    return utterance(seat, "", Move(MoveKind.PROPOSE, terms))


CASINO = Format(
    "casino",
    "CaSiNo",
    ProductKind.EPISODE,
    CasinoDialogue,
    read,
)
