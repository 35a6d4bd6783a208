"""The records of a live episode: its settings, and the content of its events.

Events are turns, answers of incomplete rounds, and the assistance of people. Advice is an event of its own, which only
the page of the seat shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from pydantic import Field

from sotopia_env.foundation.records import JsonObject, Record, read_record
from sotopia_env.people.seat.assistance import Assistance, RecordedAdvice, Steering
from sotopia_env.world import Action, Rules, Task
from sotopia_env.world.answers import PARTICIPANT, Belief
from sotopia_env.world.episode import EpisodeError, Generation, PolicyInfo, RecordedTurn
from sotopia_env.world.play.table import Table
from sotopia_studio.store.episodes import PERSON
from sotopia_studio.store.events import Event

ADVICE, STEERING = "advice", "steering"
"""The kinds of the events of assistance; the other seats may not know of them."""
BELIEFS = "beliefs"
"""The kind of the event of a person's answers to a probe; no seat may know of it."""


class LiveSpec(Record):
    """The settings of a live episode.

    Attributes:
        task: the scenario and its characters.
        rules: turn order and limits.
        seed: seed of the turn order and of policies.
        policies: agent id to policy name; :data:`~sotopia_studio.store.PERSON` for a person's seat.
        evaluator: name of the evaluator; ``none`` for no evaluation.
        manner: settings of language models in seats.
        turn_seconds: the time limit of a person's turn; ``None`` for no limit.
        on_timeout: the consequence: the turn passes (``none``), or the person's character leaves (``leave``).
        tag: a tag of the episode, for lists.
        study: id of the study that the episode belongs to, if any.
        assistants: agent id to the assistance of the person in the seat.
    """

    task: Task
    rules: Rules
    seed: int = 0
    policies: dict[str, str]
    evaluator: str = "verified"
    manner: JsonObject = Field(default_factory=dict)
    turn_seconds: float | None = None
    on_timeout: Literal["none", "leave"] = "leave"
    tag: str = ""
    study: str = ""
    assistants: dict[str, Assistance] = Field(default_factory=dict)

    @property
    def people(self) -> tuple[str, ...]:
        """The agents whose seats people take."""
        return tuple(agent for agent in self.task.agents if self.policies.get(agent) == PERSON)

    def person(self, agent: str, code: str) -> PolicyInfo:
        """A person in the record; those with different assistance count as different policies."""
        assistance = self.assistants.get(agent)
        settings = {} if assistance is None else {"assistance": assistance.mode, "adviser": assistance.policy}
        return PolicyInfo(agent=agent, name=PERSON, parameters={PARTICIPANT: code, **settings})


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
