"""The private information of each seat as words: facts that others can learn, and the secret.

They are computed once per task and stored in ``task.memo``. They are for evaluators only, never for observations.
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
        owner: the agent that the sentence is about.
        field: a description of the field of the task that contains the sentence.
        stems: the stems of its content words that are neither in the shared context nor in a name.
        threshold: the minimum number of these in one utterance for the sentence to count as told.
    """

    owner: str
    field: str
    stems: frozenset[str]
    threshold: int


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A task's facts and secrets, indexed for the rules.

    Attributes:
        task: the task.
        by_stem: the facts that contain each stem.
        stems: the keys of ``by_stem``.
        secrets: the stems of each agent's secret that are neither in the shared context nor in a name.
        names: the participants' first and last names, in lower case.
    """

    task: Task
    by_stem: dict[str, tuple[Fact, ...]]
    stems: frozenset[str]
    secrets: dict[str, frozenset[str]]
    names: frozenset[str]

    def facts_in(self, utterance: Utterance) -> list[tuple[Fact, set[str]]]:
        """Returns the facts that an utterance tells, each with its stems that the utterance contains."""
        # Most utterances share no word with any fact, and the set test costs less than a microsecond.
        if self.stems.isdisjoint(utterance.stems):
            return []
        hits = self.stems & utterance.stems
        words_by_fact: dict[Fact, set[str]] = {}
        for hit in hits:
            for fact in self.by_stem[hit]:
                words_by_fact.setdefault(fact, set()).add(hit)
        return [(fact, words) for fact, words in words_by_fact.items() if len(words) >= fact.threshold]

    def briefing_words(self, agent: str) -> frozenset[str]:
        """The stems of the content words of an agent's briefing."""
        key = (_MEMO, agent)
        if key not in self.task.memo:
            self.task.memo[key] = content_of(briefing(self.task, agent, ACTION_TYPES).head)
        words: frozenset[str] = self.task.memo[key]
        return words


def facts_of(task: Task) -> TaskFacts:
    """Returns the facts of a task, which are computed once per task."""
    if _MEMO not in task.memo:
        task.memo[_MEMO] = _facts(task)
    facts: TaskFacts = task.memo[_MEMO]
    return facts


def _facts(task: Task) -> TaskFacts:
    names = frozenset(word for name in task.names.values() for word in words_of(name))
    common = content_of(f"{task.scenario.context} {' '.join(task.names.values())}")
    by_stem: dict[str, list[Fact]] = {}
    for owner, field, sentence in _sentences(task):
        stems = content_of(sentence) - common
        if not stems:
            continue
        # Half of the words, but at least two, since one common word is chance, and at most four of a long sentence.
        fact = Fact(owner, field, stems, min(len(stems), 4, max(2, math.ceil(len(stems) / 2))))
        for word in stems:
            by_stem.setdefault(word, []).append(fact)
    secrets = {}
    for agent, character in zip(task.agents, task.characters, strict=True):
        secret = content_of(character.secret)
        # A secret that has only words of the context would otherwise be impossible to reveal.
        secrets[agent] = (secret - common) or secret
    index = {word: tuple(facts) for word, facts in by_stem.items()}
    return TaskFacts(task, index, frozenset(index), secrets, names)


def _sentences(task: Task) -> Iterator[tuple[str, str, str]]:
    """Yields every sentence that one seat could tell another, as owner, field and text."""
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
