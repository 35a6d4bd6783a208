"""Detectors for utterances whose speaker confuses the characters, or calls itself a machine."""

from __future__ import annotations

import re
from functools import lru_cache

from sotopia_env.evaluators.rules.utterance import Utterance, words_of
from sotopia_env.world.scenario import Task

_MACHINE = re.compile(
    r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b"
    r"|\bi(?:'m| am) (?:just |only )?an? "
    r"(?:ai\b(?! \w*(?:er|or|ist|student|expert)\b)|(?:large )?language model\b)",  # an "AI researcher" is a person
    re.IGNORECASE,
)
# Words without which the patterns cannot match; a set test is much faster than a search.
_MACHINE_WORDS = frozenset({"ai", "intelligence", "model"})
_CLAIM_WORDS = frozenset({"am", "i'm", "is", "said", "says"})
_GREETING = r"(?:hi|hello|hey|dear|thanks|thank you|good (?:morning|evening)|sorry|well|ok|okay|yes|no|listen|please)"


def speaks_as_machine(utterance: Utterance) -> bool:
    """Whether the speaker calls itself an AI or a language model."""
    return not _MACHINE_WORDS.isdisjoint(utterance.words) and _MACHINE.search(utterance.text) is not None


def confuses_identity(task: Task, utterance: Utterance) -> bool:
    """Whether the speaker addresses itself by its first name, claims another's name, or writes another's lines."""
    words = utterance.words
    claims = not _CLAIM_WORDS.isdisjoint(words)
    own = task.characters[task.agents.index(utterance.actor)].first_name
    names_itself = has_namesake = False
    for agent, character in zip(task.agents, task.characters, strict=True):
        name = character.first_name
        if agent == utterance.actor:
            names_itself = _head(name) in words
        elif name.casefold() == own.casefold():
            has_namesake = True  # two people with the same first name may address each other by it
        elif claims and _head(name) in words and _impostor(name).search(utterance.text):
            return True
    return names_itself and not has_namesake and _vocative(own).search(utterance.text) is not None


@lru_cache(maxsize=4096)
def _head(name: str) -> str:
    words = words_of(name)
    return words[0] if words else ""


@lru_cache(maxsize=4096)
def _vocative(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|[.!?]\s+)(?:{_GREETING}[,\s]+)?{re.escape(name)}\s*[,!?]", re.IGNORECASE)


@lru_cache(maxsize=4096)
def _impostor(name: str) -> re.Pattern[str]:
    pattern = re.escape(name)
    # Not before an apostrophe or a hyphen: "I am Ana's sister" and "I am Ana-Maria" are not claims to be Ana.
    claim = rf"\b(?:i am|i'm|my name is) {pattern}\b(?!['-])"
    return re.compile(rf"{claim}|(?:^|\n)[^\S\n]*{pattern}\b[^\n.,:]{{0,40}}\bsa(?:id|ys):", re.IGNORECASE)
