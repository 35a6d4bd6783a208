"""Measures of texts: gendered words, how much of a private text a shared one reveals, and similarity of two texts."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

WORD_LIMIT, PHRASE_LIMIT, ANSWER_LIMIT = 0.85, 0.35, 0.75
"""Minimum shares for a leak: of a text's content words, of its phrases, and of an answer's content words."""
LEAST_WORDS, LEAST_PHRASES, LEAST_ANSWER = 5, 4, 2
"""Minimum numbers of words and phrases: a shorter text shares its words with its situation by necessity."""
ALIKE = 0.5
"""Minimum Jaccard similarity of the phrases of two near-duplicate situations."""
_PHRASE = 3  # words per phrase

_WORD = re.compile(r"\w+")
_PRONOUN_TEXT = "he she him her his hers himself herself"
_GENDERED_TEXT = """
husband husbands wife wives mother mothers father fathers mum mums mom moms dad dads son sons daughter daughters
brother brothers sister sisters aunt aunts uncle uncles nephew nephews niece nieces grandmother grandmothers
grandfather grandfathers grandma grandpa granddaughter granddaughters grandson grandsons stepmother stepfather
boyfriend boyfriends girlfriend girlfriends man men woman women boy boys girl girls lady ladies gentleman gentlemen
guy guys bride groom fiancé fiancée widow widower mr mrs ms madam businessman businesswoman chairman chairwoman
waitress actress landlady landlord salesman saleswoman policeman policewoman fireman
"""
_FUNCTION_TEXT = """
about above after again against all almost alone along already also although always among and another any anybody
anyone anything are around away back because been before being below best better between both but can cannot come
comes could did does doing done down during each either else enough even ever every everybody everyone everything few
for from further get gets give gives goes going good got had has have having her here hers him his how however instead
into its itself just keep know knows last least less let like long made make makes many may might more most much must
need needs neither never new next nobody none nor not nothing now off once one only onto other others our out over own
perhaps put quite rather really same say says see seem seems set shall she should since some somebody someone
something soon still such take takes tell than that the their them then there these they thing things think this those
though three through together too two under until upon very want wants was way well were what when where whether which
while who whom whose why will with within without would yet you your yours yourself
"""
PRONOUNS = frozenset(_PRONOUN_TEXT.split())
"""Pronouns that reveal a person's gender."""
GENDERED = PRONOUNS | frozenset(_GENDERED_TEXT.split())
"""Words that reveal a person's gender, in lower case."""
_FUNCTION = frozenset(_FUNCTION_TEXT.split())


def gendered_words(text: str, words: Collection[str]) -> list[str]:
    """Returns the distinct words of ``text`` that are among ``words``, with the case that they have in the text."""
    return list(dict.fromkeys(word for word in _WORD.findall(text) if word.casefold() in words))


@lru_cache(maxsize=4096)
def content_words(text: str, without: str = "") -> dict[str, str]:
    """Returns the distinct content words of ``text``, by stem.

    Numbers, words of one or two letters, function words and the words of ``without`` are omitted.
    """
    others = {_stem(word.casefold()) for word in _WORD.findall(without)}
    words = (word.casefold() for word in _WORD.findall(text))
    content = {_stem(word): word for word in words if len(word) > 2 and word.isalpha() and word not in _FUNCTION}
    return {stem: word for stem, word in content.items() if stem not in others}


def _stem(word: str) -> str:
    # Crude, but enough to match "baked" with "baking"; longer endings come first.
    for ending in ("ings", "ing", "ies", "ed", "es", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=4096)
def phrases(text: str) -> frozenset[str]:
    """Returns all sequences of three consecutive words of ``text``, in lower case."""
    words = _WORD.findall(text.casefold())
    return frozenset(" ".join(words[i : i + _PHRASE]) for i in range(len(words) - _PHRASE + 1))


@dataclass(frozen=True, slots=True)
class TextLeak:
    """The overlap of a private text with a shared one.

    Attributes:
        parts: the words or phrases that both texts have.
        total: number of words or phrases in the private text.
        unit: what is counted, for messages.
        limit: share of ``total`` from which the overlap is a leak.
    """

    parts: tuple[str, ...]
    total: int
    unit: str
    limit: float

    def __str__(self) -> str:
        """The overlap in words, for messages."""
        share = len(self.parts) / self.total
        return f"{len(self.parts)} of its {self.total} {self.unit} ({', '.join(self.parts)}), {share:.2f} of them"


def leak(private: str, shared: str, public: str = "") -> TextLeak | None:
    """Returns the overlap of ``private`` with ``shared`` if it exceeds a limit; otherwise ``None``.

    Args:
        private: a text for one seat, such as a goal or a secret.
        shared: a text that other seats read.
        public: words that reveal nothing: names of characters, issues and options.
    """
    own = content_words(private, public)
    words = tuple(word for stem, word in own.items() if stem in content_words(shared))
    if len(own) >= LEAST_WORDS and len(words) >= WORD_LIMIT * len(own):
        return TextLeak(words, len(own), "content words", WORD_LIMIT)
    # Phrases find a sentence that was copied into a longer private text, most of whose words are not shared.
    runs, parts = phrases(private), sorted(phrases(private) & phrases(shared))
    if len(runs) >= LEAST_PHRASES and len(parts) >= PHRASE_LIMIT * len(runs):
        return TextLeak(tuple(parts), len(runs), "phrases of three words", PHRASE_LIMIT)
    return None


def answer_leak(answer: str, wrong: Sequence[str], shared: str, names: str = "") -> TextLeak | None:
    """Returns the overlap of a right answer with ``shared`` if it exceeds the limit and that of every wrong answer.

    Args:
        answer: the right answer to a question.
        wrong: the wrong answers.
        shared: a text that the respondent reads.
        names: words that reveal nothing, such as names of characters.
    """
    public = content_words(shared)

    def matches(text: str) -> tuple[str, ...]:
        return tuple(word for stem, word in content_words(text, names).items() if stem in public)

    def share(text: str) -> float:
        return len(matches(text)) / max(1, len(content_words(text, names)))

    total = len(content_words(answer, names))
    if total >= LEAST_ANSWER and share(answer) >= ANSWER_LIMIT and all(share(answer) > share(item) for item in wrong):
        return TextLeak(matches(answer), total, "content words", ANSWER_LIMIT)
    return None


_BANDS, _ROWS = 43, 3
"""MinHash parameters: a pair with similarity :data:`ALIKE` is a candidate with probability 1 - (1 - 0.5³)⁴³ = 0.997."""
# Bounds a bucket, because many texts from one pattern would otherwise be compared with all others of the pattern.
_MOST_CANDIDATES = 8


def near_duplicates(texts: Sequence[str], earlier: int = 0) -> Iterator[tuple[int, int, float]]:
    """Yields ``(index, earlier index, similarity)`` for every text that is similar to an earlier one.

    The earlier index is that of the most similar text. Candidates are found by MinHash and then compared exactly, so
    the time is linear in the number of texts.

    Args:
        texts: the texts to compare.
        earlier: number of texts at the beginning that are not compared with each other.
    """
    buckets: dict[bytes, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        keys = _band_keys(phrases(text))
        if index >= earlier:
            others = sorted({other for key in keys for other in buckets[key]})
            # Negated indices, so that of equally similar texts the first is chosen.
            pairs = ((_jaccard(phrases(text), phrases(texts[other])), -other) for other in others)
            similarity, other = max(pairs, default=(0.0, 0))
            if similarity >= ALIKE:
                yield index, -other, similarity
        for key in keys:
            if len(buckets[key]) < _MOST_CANDIDATES:
                buckets[key].append(index)


def _band_keys(parts: frozenset[str]) -> list[bytes]:
    """The MinHash signature of the phrases (multiply-shift hash functions), as one key per band."""
    import numpy as np

    if not parts:
        return []
    generator = np.random.default_rng(0)  # fixed, because signatures of different texts are compared
    factors, terms = generator.integers(0, 2**64, (2, _BANDS * _ROWS, 1), dtype=np.uint64)
    # Not ``hash``, which differs between processes. (1, phrase) against (function, 1); the overflow is intended.
    values = np.array([[zlib.crc32(part.encode()) for part in parts]], dtype=np.uint64)
    minima = ((factors * values + terms) >> np.uint64(32)).min(axis=1).reshape(_BANDS, _ROWS)
    return [bytes([band]) + row.tobytes() for band, row in enumerate(minima)]


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / len(first | second)
