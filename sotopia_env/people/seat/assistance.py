"""The assistance of people in seats: who is advised on what, and who lets the assistant act.

An assistant is a policy that advises the person in a seat. It says nothing in the conversation; its advice becomes a
part of the turn in the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import Field

from sotopia_env.foundation.records import Record
from sotopia_env.world import Action
from sotopia_env.world.action import Advice
from sotopia_env.world.episode import Generation


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
    """Advice to a person.

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
    def of(cls, records: Iterable[RecordedAdvice | Steering], turns: int) -> Help:
        """Returns the assistance after ``records``, in order, at the present number of turns."""
        state = cls()
        for record in records:
            if isinstance(record, RecordedAdvice):
                state = replace(state, advice={**state.advice, record.agent: record})
            else:
                state = state.steered(record.agent, record.is_by_person)
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
