"""The content of the events of a live episode: turns, answers of incomplete rounds, and the assistance of people.

Advice is an event of its own, which only the page of the seat shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sotopia_env.foundation.records import Record, read_record
from sotopia_env.people.seat.assistance import RecordedAdvice, Steering
from sotopia_env.world import Action
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import EpisodeError, Generation, RecordedTurn
from sotopia_env.world.play.table import Table
from sotopia_studio.store.events import Event

ADVICE, STEERING = "advice", "steering"
"""The kinds of the events of assistance; the other seats may not know of them."""
BELIEFS = "beliefs"
"""The kind of the event of a person's answers to a probe; no seat may know of it."""


class RecordedAnswer(Record):
    """The answer of one seat in an incomplete veiled round; not shown before the round is complete."""

    agent: str
    round: int
    action: Action
    generation: Generation | None = None
    errors: tuple[EpisodeError, ...] = ()


class AppendedTurn(Record):
    """A turn as an event, with the external errors from which its policy recovered."""

    turn: RecordedTurn
    errors: tuple[EpisodeError, ...] = ()


class RecordedBeliefs(Record):
    """A person's answers to a probe as an event; they are stored beside the turns."""

    beliefs: tuple[Belief, ...]


class Departure(Record):
    """A person's wish to leave, which is carried out at their next turn."""

    agent: str


def turn_events(table: Table, after: int) -> Iterator[tuple[str, str]]:
    """Yields kind and content of an event for every turn from the one with index ``after`` on."""
    for item in table.turns[after:]:
        errors = tuple(error for error in table.errors if error.turn == item.turn.index)
        yield "turn", AppendedTurn(turn=item, errors=errors).model_dump_json()


def turn_index(event: Event) -> int:
    """Returns the index of the turn of a ``turn`` event."""
    return read_record(AppendedTurn, event.payload, f"event {event.number}").turn.turn.index


def answer_events(table: Table, before: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields kind and content of an event for every answer in an incomplete round, but for the agents in ``before``."""
    for agent, decision in table.pending.items():
        if agent not in before:
            answer = RecordedAnswer(
                agent=agent,
                round=table.state.round,
                action=decision.action,
                generation=decision.generation,
                errors=decision.errors,
            )
            yield "answer", answer.model_dump_json()


def assistance_records(events: Iterable[Event]) -> Iterator[RecordedAdvice | Steering]:
    """Yields the content of the events of assistance among ``events``."""
    for event in events:
        if event.kind == ADVICE:
            yield read_record(RecordedAdvice, event.payload, f"event {event.number}")
        elif event.kind == STEERING:
            yield read_record(Steering, event.payload, f"event {event.number}")


def concerns(event: Event, agent: str) -> bool:
    """Whether the person in a seat may know of an event: assistance is known to nobody but whom it helps."""
    if event.kind == BELIEFS:
        return False
    return all(record.agent == agent for record in assistance_records([event]))
