"""VADER's sentiment of an utterance, cached so that it is fast enough for an environment.

Source: Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text"
(ICWSM 2014), through the package ``vaderSentiment``. Its analysis takes about 50 µs per sentence. Two of its properties
make most of that unnecessary without changing any result:

* A text without words of the lexicon and without emoji has the compound score 0.
* Only the positions matter of words that are neither in the lexicon nor among VADER's modifiers, so texts that differ
  only in such words ("I could go to 85 / 90, that is fair") share one analysis.

There is one intended deviation: numbers never have a sentiment (the lexicon lists 86 as slang).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sotopia_env.evaluators.rules.utterance import Utterance, WordCache, split

LONG = 100
"""The maximum number of words that are analysed together."""
_FILLER = "x"
"""Replaces words that have no meaning in VADER."""


@dataclass(frozen=True, slots=True)
class _Vader:
    analyzer: Any
    lexicon: frozenset[str]
    meanings: WordCache
    emojis: Mapping[str, str]


@cache
def _vader() -> _Vader:
    """Loads the library and its data, which takes tens of milliseconds, in the first evaluation and not at import."""
    from vaderSentiment.vaderSentiment import BOOSTER_DICT, NEGATE, SPECIAL_CASES, SentimentIntensityAnalyzer

    analyzer = SentimentIntensityAnalyzer()
    phrases = [*BOOSTER_DICT, *SPECIAL_CASES, "at least very", "without doubt", "never so this"]
    # VADER's code tests for these words, in addition to the three lists.
    phrases += ["but", "or nor", *NEGATE]
    modifiers = {word for phrase in phrases for word in phrase.split()}
    lexicon = frozenset(word for word in analyzer.lexicon if not word.isdigit())
    vocabulary = lexicon | modifiers
    # Words without a meaning become the filler, so that texts that differ only in such words share one analysis.
    meanings = WordCache(lambda word: word if word in vocabulary or "n't" in word else _FILLER)
    return _Vader(analyzer, lexicon, meanings, analyzer.emojis)


def sentiment(utterance: Utterance) -> float:
    """Returns VADER's compound score of an utterance, from -1 to 1, equal to the library's except for numbers.

    VADER's time grows with the square of the length, so an utterance of more than :data:`LONG` words is split into
    pieces of that length, whose scores are averaged.
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
    """The text with emoji replaced by words, spaced as in VADER: a space before a description, but not after it."""
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
    forms = [word if len(word) > 2 else token for word, token in zip(words, tokens, strict=True)]
    meanings = [*map(vader.meanings.__getitem__, forms)]
    # VADER compares the capitals of all words, so the filler must not replace any of them here.
    if _capitals(meanings, text):
        return _analyse(_without_numbers(text))
    line = " ".join(meanings)
    return _analyse(_with_emphasis(line, text) if "!" in text or "?" in text else line)


# A capital that is neither "I" nor before a lower-case letter.
_ODD_CAPITAL = re.compile(r"(?!\bI\b)[A-Z](?![a-z])")


def _capitals(meanings: list[str], text: str) -> bool:
    """Whether a word with a meaning may be in capitals; VADER then needs the capitals of all words for its score."""
    if text.isascii() and not _ODD_CAPITAL.search(text):
        return False
    words = [word for word in meanings if word is not _FILLER]
    return any(word.upper() in text for word in words if word.upper() != word)


def _with_emphasis(line: str, text: str) -> str:
    """Adds the ``!`` and ``?`` of the text that ``line`` lacks; VADER counts at most four of each."""
    marks = "".join([mark * (min(text.count(mark), 4) - min(line.count(mark), 4)) for mark in "!?"])
    return f"{line} {marks}"


def _without_numbers(text: str) -> str:
    return " ".join([_FILLER if piece.isdigit() else piece for piece in text.split()])


@lru_cache(maxsize=8_192)
def _analyse(text: str) -> float:
    return float(_vader().analyzer.polarity_scores(text)["compound"])
