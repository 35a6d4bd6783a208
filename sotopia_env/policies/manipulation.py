"""Manipulation in words, which any scripted policy can add to what it says, and a control of the same length.

The moves, action types and recipients are those of the policy below it, which is asked with the same observation and
seed; only what it says is longer. Scripts that read no words are therefore not affected, and what a partner loses to
the added words is an effect of words alone. The texts are data (``manipulation.yaml``): they use nothing but the names
of those who are addressed, and an injection is words like any other, which observations quote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.prompts import fill
from sotopia_env.foundation.records import Record
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.tasks.wording import pick
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.answers import BeliefReplies, InterviewQuestion, InterviewReply, answer_of, beliefs_of
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.notes import notes_of
from sotopia_env.world.play.policy import Decision, Policy

PARTNERS = "partners"
"""The one placeholder of the texts: the names of those who are addressed."""


class Manipulation(Record):
    """The texts of one kind of manipulation, in two strengths."""

    mild: tuple[str, ...] = Field(min_length=1)
    strong: tuple[str, ...] = Field(min_length=1)


@cache
def manipulations() -> Mapping[str, Manipulation]:
    """Returns the kinds of manipulation, and the control, by name; read once."""
    path = Path(__file__).with_name("manipulation.yaml")
    return TypeAdapter(dict[str, Manipulation]).validate_python(read_yaml(path))


def manipulation_names() -> tuple[str, ...]:
    """Returns every kind and strength as it is written after a plus sign; a kind alone is its mild form."""
    return tuple(name for kind in manipulations() for name in (kind, f"{kind}:strong"))


@dataclass(frozen=True, slots=True)
class Manipulator:
    """Plays as another scripted policy does and adds a sentence to everything that it says.

    Attributes:
        base: the policy that decides.
        kind: one of :func:`manipulation_names`; ``:mild`` may be written, too.

    Raises:
        UnknownNameError: there is no such kind.
    """

    base: Policy
    kind: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind.removesuffix(":mild"))
        if self.kind not in manipulation_names():
            raise UnknownNameError(field="manipulation", got=self.kind, valid=manipulation_names())

    @property
    def name(self) -> str:
        """``BASE+KIND``, as it is written on the command line."""
        return f"{self.base.name}+{self.kind}"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Those of the policy below."""
        return self.base.parameters

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the decision of the policy below, with a sentence more if it speaks."""
        decision = await self.base.act(observation, seed)
        action = decision.action
        if action.action_type is not ActionType.SPEAK or not action.argument.strip():
            return decision
        words = f"{action.argument} {self._sentence(observation, action, seed)}"
        return replace(decision, action=replace(action, argument=words))

    def _sentence(self, observation: Observation, action: Action, seed: int) -> str:
        kind, _, strength = self.kind.partition(":")
        text = pick(getattr(manipulations()[kind], strength or "mild"), seed)
        partners = observation.briefing.partners
        names = [partner.name for partner in partners if not action.to or partner.agent in action.to]
        return fill(text, **{PARTNERS: ", ".join(names)} if f"{{{{{PARTNERS}}}}}" in text else {})

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the answer of the policy below."""
        return await answer_of(self.base, observation, question, seed)

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns the notes of the policy below."""
        return await notes_of(self.base, observation, most, seed)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> BeliefReplies:
        """Returns the beliefs of the policy below."""
        return beliefs_of(self.base, observation, variables, seed, samples)
