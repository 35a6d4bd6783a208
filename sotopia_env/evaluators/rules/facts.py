"""What each seat's private material consists of, as words: facts that others can learn, and the secret.

Built once per task and kept in ``task.memo``; evaluators read it, observations never do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sotopia_env.evaluators.rules.utterance import Utterance, content_of, words_of
from sotopia_env.world.action import ACTION_TYPES
from sotopia_env.world.observation import briefing
from sotopia_env.world.scenario import Task

_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_MEMO = "evaluators.facts"


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence about one character.

    Attributes:
        owner: the agent that the sentence belongs to.
        field: where it stands, in words.
        stems: its content words that neither the shared context nor a name already gives away.
        needed: how many of them must occur together for the sentence to count as told.
    """

    owner: str
    field: str
    stems: frozenset[str]
    needed: int


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A task's facts and secrets in the form the rules look them up.

    Attributes:
        by_stem: content word to the facts that contain it.
        stems: all these words.
        secrets: content words of each agent's secret that neither the shared context nor a name already gives away.
        names: the participants' first and last names, in lower case.
    """

    task: Task
    by_stem: dict[str, tuple[Fact, ...]]
    stems: frozenset[str]
    secrets: dict[str, frozenset[str]]
    names: frozenset[str]

    def told(self, utterance: Utterance) -> list[tuple[Fact, set[str]]]:
        """Returns the facts that an utterance tells, with their words in it."""
        if self.stems.isdisjoint(utterance.stems):
            return []
        hits = self.stems & utterance.stems
        found: dict[Fact, set[str]] = {}
        for hit in hits:
            for fact in self.by_stem[hit]:
                found.setdefault(fact, set()).add(hit)
        return [(fact, words) for fact, words in found.items() if len(words) >= fact.needed]

    def known(self, agent: str) -> frozenset[str]:
        """The content words of what an agent was told before the first turn."""
        key = (_MEMO, agent)
        if key not in self.task.memo:
            self.task.memo[key] = content_of(briefing(self.task, agent, ACTION_TYPES).head)
        found: frozenset[str] = self.task.memo[key]
        return found


def facts_of(task: Task) -> TaskFacts:
    """Returns the task's facts; computed once per task."""
    if _MEMO not in task.memo:
        task.memo[_MEMO] = _facts(task)
    found: TaskFacts = task.memo[_MEMO]
    return found


def _facts(task: Task) -> TaskFacts:
    names = frozenset(word for name in task.names.values() for word in words_of(name))
    common = content_of(f"{task.scenario.context} {' '.join(task.names.values())}")
    by_stem: dict[str, list[Fact]] = {}
    for owner, field, sentence in _sentences(task):
        stems = content_of(sentence) - common
        if not stems:
            continue
        fact = Fact(owner, field, stems, min(len(stems), 4, max(2, math.ceil(len(stems) / 2))))
        for word in stems:
            by_stem.setdefault(word, []).append(fact)
    secrets = {}
    for agent, character in zip(task.agents, task.characters, strict=True):
        secret = content_of(character.secret)
        secrets[agent] = (secret - common) or secret
    index = {word: tuple(facts) for word, facts in by_stem.items()}
    return TaskFacts(task, index, frozenset(index), secrets, names)


def _sentences(task: Task) -> Iterator[tuple[str, str, str]]:
    """Every sentence that one seat could tell another: (owner, where it stands, text)."""
    for agent, character, seat in zip(task.agents, task.characters, task.scenario.seats, strict=True):
        fields = {
            "goal": " ; ".join(seat.goals),
            "private information": seat.private_info,
            "profile": f"{character.occupation} ; {character.public_info}",
            "private attributes": " ; ".join(f"{key} {value}" for key, value in character.private_attributes.items()),
            "secret": character.secret,
        }
        for field, text in fields.items():
            for sentence in _SENTENCE.split(text) if text else ():
                yield agent, field, sentence


__all__ = ["Fact", "TaskFacts", "facts_of"]
