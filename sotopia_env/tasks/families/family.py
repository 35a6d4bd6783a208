"""Procedural task families: each makes any number of verified tasks, and has words that fit their moves.

A family only draws people, texts, worths and a protocol. What a task's moves come to follows from its outcome
specification alone (:mod:`sotopia_env.world.outcome`), as in any scenario file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.errors import UnknownNameError, check_whole
from sotopia_env.outcomes import OutcomeSpec, Terms
from sotopia_env.records import Record
from sotopia_env.tasks.people import draw_relationships
from sotopia_env.world.observation import Briefing, Observation
from sotopia_env.world.scenario import Character, Scenario, Seat, Task

LEVELS = ("easy", "medium", "hard")
"""Difficulty levels that every family offers."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a family draws for one task; :meth:`Family.generate` adds the rest.

    Attributes:
        characters: one per seat.
        context: the situation in words.
        seats: goals, hints and private information.
        outcome: protocol, issues and worths.
        shared_data: public facts for programs; the family's name is added.
        tags: the level is added.
        private_messages: whether actions may be addressed to some.
        max_turns: limit of an episode; ``None`` leaves it to the environment.
    """

    characters: tuple[Character, ...]
    context: str
    seats: tuple[Seat, ...]
    outcome: OutcomeSpec
    shared_data: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    private_messages: bool = False
    max_turns: int | None = None


def _no_fields(briefing: Briefing, terms: Terms) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Phrases:
    """Templates of words that fit a move, by its kind; the defaults are plain English for any scenario.

    ``join`` is a vote that others have cast too, ``unvote`` takes a vote back, ``confirm`` claims what a partner has
    named. A template may use ``{terms}`` (of offers), ``{option}``, ``{claim}`` and what ``fields`` returns.

    Attributes:
        fields: more fields of offer templates, from a seat's briefing and terms in normal form; ``None`` where the
            terms are not of the kind that the templates are about.
    """

    propose: tuple[str, ...] = (
        "I propose this: {terms}.",
        "Could we agree on this: {terms}?",
        "What do you say to this: {terms}?",
        "Here is my offer: {terms}.",
    )
    accept: tuple[str, ...] = ("Agreed: {terms}.", "I accept this: {terms}.", "That is fine with me: {terms}.")
    reject: tuple[str, ...] = (
        "I cannot agree to this: {terms}.",
        "No, not on these terms: {terms}.",
        "That is not good enough for me: {terms}.",
    )
    withdraw: tuple[str, ...] = ("I take my offer back: {terms}.", "My offer no longer stands: {terms}.")
    vote: tuple[str, ...] = ("I vote for {option}.", "My vote goes to {option}.", "I am for {option}.")
    join: tuple[str, ...] = ("I join you and vote for {option}.", "Then I vote for {option} too.")
    unvote: tuple[str, ...] = ("I take my vote back for now.", "Let me think again; my vote is open.")
    claim: tuple[str, ...] = ("I say it is {claim}.", "My answer is {claim}.", "It must be {claim}.")
    confirm: tuple[str, ...] = ("Yes, it is {claim}.", "I say so too: {claim}.")
    fields: Callable[[Briefing, Terms], Mapping[str, str] | None] = _no_fields


class FamilyTexts(Record):
    """What every file of texts in :mod:`sotopia_env.tasks.texts` holds.

    Attributes:
        hints: of which each seat gets one.
        phrases: words that go with moves.
    """

    hints: tuple[str, ...]
    phrases: Phrases


@dataclass(frozen=True, slots=True)
class Family:
    """A seeded generator of tasks, and the words that fit the moves in them.

    Attributes:
        name: also in ``scenario.shared_data["family"]``.
        draw: draws one task from a generator of random numbers, the task's index and the level.
        phrases: words for moves; plain English for any terms by default.
        share: words that tell the partners a fact which was not told yet; ``None`` in a family without facts.
    """

    name: str
    draw: Callable[[random.Random, int, str], Draft]
    phrases: Phrases = Phrases()
    share: Callable[[Observation, int], str | None] | None = None

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns the task number ``index`` of the sequence fixed by ``seed``; equal arguments, equal task.

        Raises:
            UnknownNameError: ``level`` is none of :data:`LEVELS`.
            InvalidValueError: ``index`` or ``seed`` is no whole number of at least 0.
        """
        _check_request(index, seed, level)
        rng = random.Random(f"{self.name} {level} {seed} {index}")
        draft = self.draw(rng, index, level)
        scenario = Scenario(
            id=f"{self.name}-{level}-{seed}-{index}",
            context=draft.context,
            seats=draft.seats,
            shared_data={"family": self.name, **draft.shared_data},
            max_turns=draft.max_turns,
            private_messages=draft.private_messages,
            source=f"procedural family {self.name}",
            tags=(self.name, level, *draft.tags),
            outcome=draft.outcome,
        )
        relationships = draw_relationships(rng, draft.characters)
        return Task(id=scenario.id, scenario=scenario, characters=draft.characters, relationships=relationships)


def _check_request(index: int, seed: int, level: str) -> None:
    """Checks what a task is asked for by; see :meth:`Family.generate` for what it raises."""
    if level not in LEVELS:
        raise UnknownNameError(field="level", got=level, valid=LEVELS)
    for name, value in (("index", index), ("seed", seed)):
        check_whole(name, value, 0)
