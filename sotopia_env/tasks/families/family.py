"""The base of procedural task families: seeded generators of verified tasks, with words for the moves in them.

A family only draws people, texts, worths and a protocol. The outcome of a task's moves depends on its outcome
specification alone (:mod:`sotopia_env.world.outcome`), as with any scenario file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.foundation.errors import UnknownNameError, check_whole
from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.space import Terms
from sotopia_env.tasks.people import draw_relationships
from sotopia_env.tasks.texts import ENGLISH
from sotopia_env.world.observation import Briefing, Observation
from sotopia_env.world.scenario import VIGNETTE, Character, Scenario, Seat, Task

LEVELS = ("easy", "medium", "hard")
"""Difficulty levels that every family offers."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The drawn parts of one task; :meth:`Family.generate` adds the rest.

    Attributes:
        characters: one per seat.
        context: the situation in words.
        seats: goals, hints and private information of every seat.
        outcome: protocol, issues and worths.
        facts: what can be known, and who knows it.
        shared_data: public facts for programs; the family's name is added.
        tags: tags of the scenario; the family's name and the level are added.
        private_messages: whether an action may be addressed to some of the other seats only.
        max_turns: limit on the turns of an episode; ``None`` uses the environment's limit.
    """

    characters: tuple[Character, ...]
    context: str
    seats: tuple[Seat, ...]
    outcome: OutcomeSpec
    shared_data: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    private_messages: bool = False
    max_turns: int | None = None
    facts: Facts | None = None


def _no_fields(briefing: Briefing, terms: Terms) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Phrases:
    """Templates of the words for a move, by the kind of move; the defaults are plain English for any scenario.

    ``join`` is for a vote that another seat has cast too, ``unvote`` for withdrawing a vote, ``confirm`` for a claim
    that a partner has named, ``choose`` for a hidden choice, which it does not name. A template may use ``{terms}`` (of
    offers), ``{option}``, ``{claim}`` and the fields that ``fields`` returns. ``own_role``, ``role``, ``promise`` and
    ``state`` are for statements about one's own role, another's role (``{name}``), one's own choice and a fact
    (``{text}``), each with its ``{value}``. ``nothing`` fills a turn in which a script has nothing to tell, because an
    episode of silence ends.

    Attributes:
        fields: returns additional fields of offer templates, from a seat's briefing and terms in normal form; ``None``
            if the templates do not fit these terms.
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
    choose: tuple[str, ...] = ("I have made my choice.", "My mind is made up.", "So be it: I have chosen.")
    own_role: tuple[str, ...] = ("I am the {value}.", "My role is this: {value}.")
    role: tuple[str, ...] = ("{name} is the {value}.", "I say that {name} is the {value}.")
    promise: tuple[str, ...] = ("I am going to choose {value}.", "My choice will be {value}.")
    state: tuple[str, ...] = ("This is what I have: {text} is {value}.", "{text}: {value}.", "{text} is {value}.")
    show: tuple[str, ...] = ("See for yourselves: {text} is {value}.", "Here is the proof: {text} is {value}.")
    nothing: tuple[str, ...] = ("I have nothing to say to this.", "I would rather listen.", "Let me hear the others.")
    ask: tuple[str, ...] = ("What do you know about this: {text}?", "Can you tell me this: {text}?")
    fields: Callable[[Briefing, Terms], Mapping[str, str] | None] = _no_fields


class FamilyTexts(Record):
    """The texts that all families have in their files in :mod:`sotopia_env.tasks.texts`.

    Attributes:
        hints: hints, of which each seat gets one.
        phrases: templates of the words for moves.
        joiners: what stands between the members of a list, and before its last one.
    """

    hints: tuple[str, ...]
    phrases: Phrases
    joiners: tuple[str, str] = (", ", " and ")

    def enumeration(self, names: Sequence[str]) -> str:
        """Returns the names as part of a sentence, such as ``Ana, Ben and Cleo``."""
        between, last = self.joiners
        return last.join(filter(None, [between.join(names[:-1]), names[-1]]))


@dataclass(frozen=True, slots=True)
class Family:
    """A seeded generator of tasks, with words for the moves in them.

    Environments hold their families and are pickled, so the functions are those of a module, or ``functools.partial``
    of them: no lambdas or inner functions.

    Attributes:
        name: name of the family, also in ``scenario.shared_data["family"]``.
        draw: draws one task from a random number generator, the task's index and the level.
        phrases: templates of the words for moves; by default plain English for any terms.
        share: returns words that tell the partners a fact that the seat has not told yet, or ``None`` if there is no
            such fact; ``None`` for a family without facts.
        about: what the family is, for its page; empty if the docstring of its module says it.
        language: the code of the language of its texts.
        mechanism: the mechanism that its games have besides their rules; empty for none.
    """

    name: str
    draw: Callable[[random.Random, int, str], Draft]
    phrases: Phrases = Phrases()
    share: Callable[[Observation, int], str | None] | None = None
    about: str = ""
    language: str = ENGLISH
    mechanism: str = ""

    @property
    def stem(self) -> str:
        """The name without language and mechanism: families with one stem draw the same tasks."""
        return self.name.removesuffix(f"-{self.language}").removesuffix(f"-{self.mechanism}")

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns the task number ``index`` of the sequence fixed by ``seed``; equal arguments give equal tasks.

        Args:
            index: number of the task in the sequence, from 0.
            seed: seed of the sequence.
            level: one of :data:`LEVELS`.

        Raises:
            UnknownNameError: ``level`` is not one of :data:`LEVELS`.
            InvalidValueError: ``index`` or ``seed`` is not a non-negative integer.
        """
        _check_request(index, seed, level)
        # A generator per task, not per sequence: any task can be drawn without those before it. Seeding with a text
        # hashes it (SHA-512), so neighbouring indices are not correlated.
        rng = random.Random(f"{self.stem} {level} {seed} {index}")
        draft = self.draw(rng, index, level)
        scenario = Scenario(
            id=f"{self.name}-{level}-{seed}-{index}",
            context=draft.context,
            seats=draft.seats,
            shared_data={"family": self.name, **draft.shared_data},
            max_turns=draft.max_turns,
            private_messages=draft.private_messages,
            source=f"procedural family {self.name}",
            tags=(self.stem, level, *draft.tags, *self._version(index, seed, level)),
            outcome=draft.outcome,
            facts=draft.facts,
        )
        # Drawn last, so that a change in how relationships are drawn leaves every scenario as it is.
        characters, relationships = draft.characters, draw_relationships(rng, draft.characters)
        if self.language != ENGLISH:
            # People are described in English alone; names, ages and characters in numbers remain.
            characters = tuple(one.model_copy(update=_UNDESCRIBED) for one in characters)
            relationships = tuple(one.model_copy(update={"backstory": "", "facts": {}}) for one in relationships)
        return Task(id=scenario.id, scenario=scenario, characters=characters, relationships=relationships)

    def _version(self, index: int, seed: int, level: str) -> tuple[str, ...]:
        """Tags by which a translation is the same situation as the task in English, under another condition."""
        if self.mechanism:
            return f"mechanism={self.mechanism}", f"{VIGNETTE}={self.stem}-{level}-{seed}-{index}"
        if self.language == ENGLISH:
            return ()
        return f"language={self.language}", f"{VIGNETTE}={self.stem}-{level}-{seed}-{index}"


_UNDESCRIBED = {"occupation": "", "public_info": "", "personality": "", "secret": ""}


def _check_request(index: int, seed: int, level: str) -> None:
    """Checks the arguments of :meth:`Family.generate`, and raises its exceptions."""
    if level not in LEVELS:
        raise UnknownNameError(field="level", got=level, valid=LEVELS)
    for name, value in (("index", index), ("seed", seed)):
        check_whole(name, value, 0)
