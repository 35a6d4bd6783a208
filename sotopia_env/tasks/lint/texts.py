"""Checks of words: gender-neutral texts, and how much of a private text stands in a shared one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

LEAK_THRESHOLD = 0.75
"""Share of a private text's content words in a shared text from which on it counts as leaked."""
LEAST_WORDS = 5
"""A private text with fewer different content words is not measured: its words are bound to be those of its situation."""

_WORD = re.compile(r"\w+")
_PRONOUNS = "he she him her his hers himself herself"
PRONOUNS = frozenset(_PRONOUNS.split())
"""Words that tell the gender of the person who is spoken of."""
GENDERED = PRONOUNS | frozenset(
    "husband husbands wife wives mother mothers father fathers mum mums mom moms dad dads son sons daughter daughters "
    "brother brothers sister sisters aunt aunts uncle uncles nephew nephews niece nieces grandmother grandmothers "
    "grandfather grandfathers grandma grandpa granddaughter grandson stepmother stepfather stepson stepdaughter "
    "boyfriend boyfriends girlfriend girlfriends man men woman women boy boys girl girls lady ladies gentleman gentlemen "
    "guy guys bride groom fiancé fiancée widow widower mr mrs ms sir madam businessman businesswoman chairman chairwoman "
    "waitress actress landlady landlord salesman saleswoman policeman policewoman stewardess fireman".split()
)
"""Words that tell the gender of a person, in small letters."""

_FUNCTION = frozenset(
    "a about above after again against all almost alone along already also although always am among an and another any "
    "anybody anyone anything are around as ask asks at away back be because been before being below best better between "
    "both but by can cannot come comes could day days did do does doing done down during each either else enough even "
    "ever every everybody everyone everything few find first for friend from further get gets give go goes going good "
    "got had has have having he help her here hers him his how however i if in instead into is it its itself just keep "
    "kept know knows last least less let like long look made make makes many may me mean might more most much must my "
    "need needs neither never new next no nobody none nor not nothing now of off on once one only onto or other others "
    "our out over own people perhaps person point points put quite rather really same say says see seem seems set shall "
    "she should since so some somebody someone something soon still such take takes tell than that the their them then "
    "there these they thing things think this those though three through time times to together too two under until up "
    "upon us very want wants was way we well were what when where whether which while who whom whose why will with "
    "within without would year years yes yet you your yours yourself".split()
)


def gendered_words(text: str, words: Collection[str] = GENDERED) -> list[str]:
    """Returns the words of ``text`` that are among ``words``, each once, as they stand there."""
    return list(dict.fromkeys(word for word in _WORD.findall(text) if word.casefold() in words))


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of a private text stands in a shared one.

    Attributes:
        share: of the private text's different content words.
        words: those that stand in both.
        total: how many content words the private text has.
    """

    share: float
    words: tuple[str, ...]
    total: int


def content_words(text: str, names: Iterable[str] = ()) -> dict[str, str]:
    """Returns the different words that carry content, by their stem; numbers, short and function words are left out.

    Args:
        text: any.
        names: of people, which are left out too.
    """
    without = {*_FUNCTION, *(part.casefold() for name in names for part in _WORD.findall(name))}
    words = (word.casefold() for word in _WORD.findall(text))
    kept = (word for word in words if len(word) > 2 and not word.isdigit() and word not in without)
    return {_stem(word): word for word in kept}


def _stem(word: str) -> str:
    """The word without a regular English ending, so that ``pays`` and ``paid for`` differ but ``ticket(s)`` do not."""
    for ending in ("ings", "ing", "ies", "ed", "es", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def overlap(private: str, shared: str, names: Iterable[str] = ()) -> Overlap:
    """Returns how much of the content words of ``private`` stands in ``shared``; 0 of a text without any."""
    names = tuple(names)
    own, public = content_words(private, names), content_words(shared, names)
    words = tuple(word for stem, word in own.items() if stem in public)
    return Overlap(len(words) / len(own) if own else 0.0, words, len(own))
