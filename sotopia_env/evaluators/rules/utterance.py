"""The input of the rules: the utterances of an episode, each split into words once.

Acts are selected by action *type* (speech, non-verbal communication, action), never by their text, so an utterance of
"did nothing" counts as speech. Words are separated by white space, stripped of punctuation, and in lower case;
:func:`stem` makes their forms comparable. English only.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task

_STOP_TEXT = """
about above after again all also although always among and another any anybody anyone anything are around ask asked
away back been before being below between both but came can cannot come could did does doing done down during each
either else ever every everyone everything for from gave get gets getting give given gives giving goes going gone
got had has have having her here hers him his how however into its itself just keep kept know knows let like likely
made make makes making many may maybe me might more most much must myself neither never next nor not nothing now off
often once one only other others our ours out over own perhaps put rather really said same say says see seem seems
seen shall she should since some somebody someone something sometimes soon still such take taken takes than that the
their theirs them themselves then there therefore these they thing things think this those though through thus
together told too took toward under until upon use used uses using very want wants wanted was way well went were
what whatever when where whether which while who whole whom whose why will with within without would yes yet you
your yours yourself i'm i'd i'll i've you're you'd you'll you've he's she's it's we're we'd we'll we've they're
they'd they'll they've don't doesn't didn't can't couldn't won't wouldn't isn't aren't wasn't weren't that's
there's what's let's
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
"""Words without content of their own."""

_PUNCTUATION = string.punctuation
_ASCII_FORMS = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": " - ", "—": " - ", "…": "... "})


class Utterance(NamedTuple):
    """One act that others can perceive.

    Attributes:
        actor: the id of the acting agent.
        to: the recipients of a private act; empty for everyone who is present.
        absent: the agents that had left before.
        text: the argument, with typographic quotes and dashes in their ASCII forms.
        tokens: the lower-case text, split at white space.
        words: the tokens without surrounding punctuation.
        stems: the set of the words' stems (:func:`stem`), including ``""`` if a word has no content.
    """

    actor: str
    to: tuple[str, ...]
    absent: frozenset[str]
    text: str
    tokens: list[str]
    words: list[str]
    stems: set[str]

    def audience(self, task: Task) -> tuple[str, ...]:
        """The agents that perceived the act, without the actor."""
        if self.to:
            return self.to
        return tuple(agent for agent in task.agents if agent != self.actor and agent not in self.absent)


@dataclass(frozen=True, slots=True)
class SpokenActs:
    """The utterances of an episode in order, and those of each agent."""

    task: Task
    utterances: tuple[Utterance, ...]
    own: dict[str, list[Utterance]]


_NO_TEXT = (ActionType.NONE, ActionType.LEAVE)


def spoken_acts(episode: Episode) -> SpokenActs:
    """Returns the utterances of an episode; every agent of the task has an entry, even if it never acted."""
    own: dict[str, list[Utterance]] = {agent: [] for agent in episode.task.agents}
    utterances: list[Utterance] = []
    absent: frozenset[str] = frozenset()
    for turn in episode.plain_turns:
        kind = turn.action.action_type
        if kind is ActionType.LEAVE:
            absent |= {turn.actor}
        if kind in _NO_TEXT:
            continue
        utterance = _utterance(turn, absent)
        utterances.append(utterance)
        own[turn.actor].append(utterance)
    return SpokenActs(episode.task, tuple(utterances), own)


def _utterance(turn: Turn, absent: frozenset[str]) -> Utterance:
    action = turn.action
    text = action.argument if action.argument.isascii() else action.argument.translate(_ASCII_FORMS)
    tokens, words = split(text)
    return Utterance(turn.actor, action.to, absent, text, tokens, words, set(map(_STEMS.__getitem__, words)))


def split(text: str) -> tuple[list[str], list[str]]:
    """Returns the lower-case tokens of ``text``, with and without surrounding punctuation."""
    tokens = text.lower().split()
    return tokens, [token if token.isalnum() else token.strip(_PUNCTUATION) for token in tokens]


def words_of(text: str) -> list[str]:
    """Returns the words of ``text`` in order, in lower case and without surrounding punctuation."""
    return split(text if text.isascii() else text.translate(_ASCII_FORMS))[1]


def content_of(text: str) -> frozenset[str]:
    """Returns the stems of the content words of ``text``."""
    return frozenset(map(_STEMS.__getitem__, words_of(text))) - {""}


def stem(word: str) -> str:
    """Returns the stem of a word, without plural, possessive, ``-ed`` and ``-ing``; ``""`` for words without content.

    Words of fewer than three letters, single digits and :data:`STOP_WORDS` have no content. Different words may have
    the same stem; irregular forms of one word ("sold", "sell") have different stems.
    """
    if word.isdigit():
        return word if len(word) > 1 else ""
    word = word.removesuffix("'s")
    if word in STOP_WORDS or len(word) < 3:
        return ""
    for suffix, replacement in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)] + replacement
    return word


# The first matching suffix is replaced. "-e" is removed, too, so that "hiring", "hired", "hires" and "hire" are equal.
_SUFFIXES = (("ies", "y"), ("sses", "ss"), ("ss", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))


class WordCache(dict[str, str]):
    """A cache of a function of words; a look-up is twice as fast as a call of a function with ``lru_cache``."""

    LIMIT, LONGEST = 65_536, 40

    def __init__(self, function: Callable[[str], str]) -> None:
        """Creates an empty cache of ``function``."""
        self._function = function

    def __missing__(self, word: str) -> str:
        value = self._function(word)
        # Numbers and very long words rarely recur, so they would only fill the cache.
        if not word.isdigit() and len(word) <= self.LONGEST:
            if len(self) >= self.LIMIT:
                self.clear()
            self[word] = value
        return value


_STEMS = WordCache(stem)
