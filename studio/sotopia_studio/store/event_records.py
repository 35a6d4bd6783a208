"""The content of the events of a live episode: turns, answers of incomplete rounds, and the assistance of people.

An assistant is a policy that advises the person in a seat. It says nothing in the conversation: its advice is an event
of its own, which only the page of that seat shows, and becomes a part of the turn in the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import Field

from sotopia_env.foundation.records import Record, read_record
from sotopia_env.world import Action
from sotopia_env.world.action import Advice
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


class Assistance(Record):
    """The assistance of the person in a seat.

    Attributes:
        mode: ``propose``: the person may copy the proposed action into the form; ``advise``: they read it; ``act``: it
            is carried out after a pause, unless they take over.
        policy: the policy that advises.
        pause: seconds before an assistant that acts does so, in which the person can take over.
    """

    mode: Literal["propose", "advise", "act"]
    policy: str
    pause: float = Field(default=10.0, gt=0, allow_inf_nan=False)


class RecordedAdvice(Record):
    """Advice as an event.

    Attributes:
        agent: the person's seat.
        turn: the number of turns before the one that it is about.
        advice: the advice.
        generation: the text that its action was read from, for an action that is carried out.
    """

    agent: str
    turn: int
    advice: Advice
    generation: Generation | None = None


class Steering(Record):
    """A person takes over from an assistant that acts, or lets it act again."""

    agent: str
    is_by_person: bool


def concerns(event: Event, agent: str) -> bool:
    """Whether the person in a seat may know of an event: assistance is known to nobody but whom it helps."""
    if event.kind not in (ADVICE, STEERING):
        return event.kind != BELIEFS
    where = f"event {event.number}"
    if event.kind == ADVICE:
        return read_record(RecordedAdvice, event.payload, where).agent == agent
    return read_record(Steering, event.payload, where).agent == agent


@dataclass(frozen=True, slots=True)
class Help:
    """The assistance of people now.

    Attributes:
        advice: the advice on the present turn, by the person's seat.
        taken_over: the seats whose people act themselves though an assistant could.
    """

    advice: Mapping[str, RecordedAdvice] = field(default_factory=dict)
    taken_over: frozenset[str] = frozenset()

    @classmethod
    def of(cls, events: Iterable[Event], turns: int) -> Help:
        """Returns the assistance after ``events``, at the present number of turns."""
        state = cls()
        for event in events:
            if event.kind == ADVICE:
                item = read_record(RecordedAdvice, event.payload, f"event {event.number}")
                state = replace(state, advice={**state.advice, item.agent: item})
            elif event.kind == STEERING:
                steering = read_record(Steering, event.payload, f"event {event.number}")
                state = state.steered(steering.agent, steering.is_by_person)
        return state.at(turns)

    def at(self, turns: int) -> Help:
        """Returns the assistance at a number of turns: advice on earlier ones is no longer advice."""
        current = {agent: item for agent, item in self.advice.items() if item.turn == turns}
        return self if len(current) == len(self.advice) else replace(self, advice=current)

    def steered(self, agent: str, is_by_person: bool) -> Help:
        """Returns the assistance after a person took over, or let the assistant act again."""
        own = frozenset([agent])
        return replace(self, taken_over=self.taken_over | own if is_by_person else self.taken_over - own)

    def plays(self, agent: str) -> bool:
        """Whether the assistant carries its advice out unless the person takes over."""
        item = self.advice.get(agent)
        return (
            item is not None and item.advice.mode == "act" and not item.advice.problem and agent not in self.taken_over
        )

    def played(self, agent: str) -> tuple[Action, Generation]:
        """Returns the action that the assistant carries out, and the text behind it; :meth:`plays` must hold."""
        item = self.advice[agent]
        advice = item.advice.model_copy(update={"response": "played"})
        return advice.action, (item.generation or Generation()).model_copy(update={"advice": advice})

    def followed(self, agent: str, action: Action, *, is_copied: bool) -> Advice | None:
        """Returns the advice with the person's response; ``None`` without advice."""
        item = self.advice.get(agent)
        return None if item is None else item.advice.followed_by(action, is_copied=is_copied)
