"""VADER's sentiment of an utterance, at a price that an environment can afford.

Source: Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text"
(ICWSM 2014), through the package ``vaderSentiment``. Its analysis takes some 50 µs a sentence. Two facts about it make
most of that unnecessary without changing a digit:

* a text without a word of the lexicon and without an emoji has compound 0;
* words that are neither in the lexicon nor among the modifiers that VADER knows count by their position only, so texts
  that differ in nothing else ("I could go to 85 / 90, that is fair") share one analysis.

One deviation, on purpose: numbers are never sentiment (the lexicon lists 86 as slang).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sotopia_env.evaluators.rules.utterance import Utterance, split

LONG = 100
"""Words of an utterance that are analysed together."""
_FILLER = "x"
"""Stands for a word that VADER gives no meaning to."""


class _Meanings(dict[str, str]):
    """Lower-case word to itself if VADER knows it, else to the filler; answers are kept for the next time."""

    LIMIT, LONGEST = 65_536, 40

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known

    def __missing__(self, word: str) -> str:
        found = word if word in self._known or "n't" in word else _FILLER
        if len(self) >= self.LIMIT:
            self.clear()
        if len(word) <= self.LONGEST:
            self[word] = found
        return found


@dataclass(frozen=True, slots=True)
class _Vader:
    analyzer: Any
    lexicon: frozenset[str]
    meanings: _Meanings
    emojis: Mapping[str, str]


@cache
def _vader() -> _Vader:
    """Loads the library and its data; tens of milliseconds, paid by the first evaluation and never by an import."""
    from vaderSentiment.vaderSentiment import BOOSTER_DICT, NEGATE, SPECIAL_CASES, SentimentIntensityAnalyzer

    analyzer = SentimentIntensityAnalyzer()
    phrases = [*BOOSTER_DICT, *SPECIAL_CASES, "at least very", "without doubt", "never so this"]
    phrases += ["but", "or nor", *NEGATE]  # these and the line above: words that its rules name themselves
    modifiers = {word for phrase in phrases for word in phrase.split()}
    lexicon = frozenset(word for word in analyzer.lexicon if not word.isdigit())
    return _Vader(analyzer, lexicon, _Meanings(lexicon | modifiers), analyzer.emojis)


def sentiment(utterance: Utterance) -> float:
    """Returns VADER's compound of an utterance, from -1 to 1; equal to the library's, numbers apart.

    VADER's time grows with the square of the length; an utterance of more than :data:`LONG` words is taken in pieces
    of that many, whose compounds are averaged.
    """
    text, words, tokens = utterance.text, utterance.words, utterance.tokens
    if not text.isascii() and any(character in _vader().emojis for character in text):
        text = _spelt_out(text, _vader().emojis)
        tokens, words = split(text)
    if len(words) <= LONG:
        return _compound(text, words, tokens)
    pieces = text.split()
    parts = [slice(start, start + LONG) for start in range(0, len(words), LONG)]
    return sum([_compound(" ".join(pieces[part]), words[part], tokens[part]) for part in parts]) / len(parts)


def _spelt_out(text: str, emojis: Mapping[str, str]) -> str:
    """The text with emoji as words, spaced as VADER spaces them: before a description, never after it."""
    parts: list[str] = []
    after_space = True
    for character in text:
        description = emojis.get(character)
        if description is not None and not after_space:
            parts.append(" ")
        parts.append(character if description is None else description)
        after_space = character == " "
    return "".join(parts)


def _compound(text: str, words: list[str], tokens: list[str]) -> float:
    vader = _vader()
    if vader.lexicon.isdisjoint(words) and vader.lexicon.isdisjoint(tokens):
        return 0.0
    # VADER strips the punctuation around a word unless that leaves two characters or fewer.
    seen = [word if len(word) > 2 else token for word, token in zip(words, tokens, strict=True)]
    masked = [*map(vader.meanings.__getitem__, seen)]
    if _capitals(masked, text):
        return _analyse(_without_numbers(text))
    known = " ".join(masked)
    return _analyse(_emphasised(known, text) if "!" in text or "?" in text else known)


_ODD_CAPITAL = re.compile(r"(?!\bI\b)[A-Z](?![a-z])")  # neither the first letter of a word nor "I"


def _capitals(masked: list[str], text: str) -> bool:
    """Whether a word with a meaning may stand in capitals, which counts, as do then the capitals of all the others."""
    if text.isascii() and not _ODD_CAPITAL.search(text):
        return False
    known = [word for word in masked if word is not _FILLER]
    return any(word.upper() in text for word in known if word.upper() != word)


def _emphasised(known: str, text: str) -> str:
    """Adds the ``!`` and ``?`` of the text (at most four of each count) that the known words do not hold already."""
    marks = "".join([mark * (min(text.count(mark), 4) - min(known.count(mark), 4)) for mark in "!?"])
    return f"{known} {marks}"


def _without_numbers(text: str) -> str:
    return " ".join([_FILLER if piece.isdigit() else piece for piece in text.split()])


@lru_cache(maxsize=8_192)
def _analyse(text: str) -> float:
    return float(_vader().analyzer.polarity_scores(text)["compound"])
