"""Shared parts of the importers of negotiation corpora: formal acts are converted to moves, messages to speech."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Product, ProductKind, converted, one_line
from sotopia_env.importers.formats.episodes import imported_episode
from sotopia_env.importers.playback import Act, play_acts, utterance
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ItemsIssue, Move, MoveKind, OutcomeSpec
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task

HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a negotiation: the name of its character, goal and private information."""

    name: str
    goal: str
    info: str = ""
    age: int | None = None
    gender: str = ""
    pronouns: str = ""


def negotiation_task(
    task_id: str,
    scenario_id: str,
    context: str,
    sides: Sequence[Side],
    outcome: OutcomeSpec,
    source: str,
    kind: RelationshipKind = RelationshipKind.STRANGER,
) -> Task:
    """Returns the task of a negotiation between two sides.

    Args:
        task_id: id of the task.
        scenario_id: id of the scenario; equal for dialogues of one scenario.
        context: text that both sides read.
        sides: the sides, in seat order.
        outcome: the outcome's specification.
        source: name of the corpus.
        kind: relationship of the two.
    """
    return Task(
        id=task_id,
        scenario=Scenario(
            id=scenario_id,
            context=context,
            seats=tuple(Seat(goals=(side.goal,), private_info=one_line(side.info)) for side in sides),
            source=source,
            outcome=outcome,
        ),
        characters=tuple(_character(side) for side in sides),
        relationships=(Relationship(seats=(0, 1), kind=kind),),
    )


def _character(side: Side) -> Character:
    first, _, last = side.name.partition(" ")
    return Character(
        first_name=first, last_name=last, age=side.age, gender=side.gender, pronouns=side.pronouns, occupation=""
    )


def division(
    counts: Mapping[str, int], values: Sequence[Mapping[str, float]], no_agreement: float = 0.0
) -> OutcomeSpec:
    """Returns the specification of a division of items between two sides.

    Args:
        counts: number of pieces by item.
        values: for each side, points per piece by item.
        no_agreement: points of each side without an agreement.
    """
    return OutcomeSpec(
        protocol=AgreementRules(),
        issues=tuple(ItemsIssue(name=name, count=count) for name, count in counts.items()),
        worth=tuple(
            AdditiveWorth(issues={name: {"each": side[name]} for name in counts}, no_agreement=no_agreement)
            for side in values
        ),
    )


def share_offer(seat: int, share: Mapping[str, int], counts: Mapping[str, int]) -> Act:
    """Returns the act of claiming ``share`` and leaving the rest to the other side.

    The share is not checked against ``counts``: an impossible one is refused when it is played.
    """
    own, other = f"agent_{seat}", f"agent_{1 - seat}"
    terms = {name: {own: share.get(name, 0), other: count - share.get(name, 0)} for name, count in counts.items()}
    return utterance(seat, "", Move(MoveKind.PROPOSE, terms))


def answer(seat: int, kind: MoveKind) -> Act:
    """Returns the act of accepting or rejecting the only open offer."""
    return utterance(seat, "", Move(kind, True))


def leaving(seat: int) -> Act:
    """Returns the act of leaving."""
    return Act(seat, Action(ActionType.LEAVE))


def idle(seat: int) -> Act:
    """Returns the act of doing nothing."""
    return Act(seat, NO_ACTION)


def negotiation_product(key: str, task: Callable[[], Task], acts: Sequence[Act], policies: Sequence[str]) -> Product:
    """Returns the episode of a negotiation.

    Args:
        key: key of the episode.
        task: builds the task; its validation errors are reported as errors of the foreign record.
        acts: the acts in order.
        policies: names of the policies, in seat order.
    """
    corpus_task = converted(task)
    playback = converted(lambda: play_acts(corpus_task, acts))
    return Product(ProductKind.EPISODE, imported_episode(key, corpus_task, playback, policies, ()))


def whole(field: str, value: Any) -> int:
    """Returns a whole number that may be written as a text or a decimal.

    Raises:
        DamagedRecordError: ``value`` is not a whole number.
    """
    try:
        # ``OverflowError`` below is for infinity, ``ValueError`` for NaN; the bound keeps ``float`` exact.
        number = float(value)
        if isinstance(value, bool) or number != int(number) or abs(number) >= 1e12:
            raise ValueError
        return int(number)
    except (TypeError, ValueError, OverflowError):
        raise DamagedRecordError(field=field, expected="a whole number", got=value) from None


def price(field: str, value: Any) -> float | None:
    """Returns a price that may be written as a text; ``None`` for null, -1 and an empty text.

    Raises:
        DamagedRecordError: ``value`` is not a price.
    """
    if value is None or value == "" or value == -1:
        return None
    try:
        number = float(str(value).removeprefix("$").replace(",", ""))
        if isinstance(value, bool) or not 0 <= number < 1e12:
            raise ValueError
        return number
    except ValueError:
        raise DamagedRecordError(field=field, expected="a price", got=value) from None
