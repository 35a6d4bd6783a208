"""Helpers for English texts: capitalisation, lists, counted nouns, amounts, and choice of a phrase by a seed."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SENTENCE_START = re.compile(r"(?:^|(?<=[.!?] ))[a-z]")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


def capitalise(text: str) -> str:
    """Returns ``text`` with a capital letter at the beginning of each sentence."""
    return _SENTENCE_START.sub(lambda match: match.group().upper(), text)


def pick(texts: Sequence[str], seed: int) -> str:
    """Returns one of ``texts``, the same for equal seeds."""
    # Multiplicative hashing with the golden ratio (2**64 / phi), much cheaper than a ``random.Random`` per phrase.
    return texts[(seed * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF) % len(texts)]


def pieces(number: int, singular: str, plural: str) -> str:
    """Returns ``two lamps``, ``one lamp`` or ``no lamps``."""
    word = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{word} {singular if number == 1 else plural}"


def points(number: int) -> str:
    """Returns ``1 point`` or ``5 points``."""
    return "1 point" if number == 1 else f"{number} points"


def amount(price: float) -> str:
    """Returns a price with thousands separators, and with cents unless it is a whole number."""
    return f"{price:,.0f}" if price == int(price) else f"{price:,.2f}"
