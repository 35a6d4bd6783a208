"""Similarity of texts, to find duplicates and to measure how much of a script remains in its templates.

Three measures from 0 to 1 (AgentSense, table 3): **Jaccard** similarity of the sets of words; **Gestalt** similarity of
the longest common blocks (Ratcliff and Obershelp); **Levenshtein** ratio, 1 minus insertions and deletions per
character.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev
from typing import Any

SAME = 0.8
"""The Levenshtein ratio from which two contexts count as the same situation."""


def jaccard(first: str, second: str) -> float:
    """Returns the share of common words among all words; 1 for two texts without words."""
    words, others = (set(re.findall(r"\w+", text.casefold())) for text in (first, second))
    return len(words & others) / len(words | others) if words | others else 1.0


def gestalt(first: str, second: str) -> float:
    """Returns the ratio of difflib's ``SequenceMatcher`` over all characters."""
    # ``autojunk`` would ignore frequent characters in texts of 200 characters or more.
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()


def levenshtein(first: str, second: str) -> float:
    """Returns 1 minus the insertions and deletions that turn one text into the other, per character of both."""
    from rapidfuzz.distance import Indel

    return Indel.normalized_similarity(first, second)


MEASURES = {"jaccard": jaccard, "gestalt": gestalt, "levenshtein": levenshtein}


def nearest_text(text: str, texts: Iterable[str]) -> str | None:
    """Returns the text most similar to ``text``, or ``None`` if no similarity reaches :data:`SAME`."""
    from rapidfuzz import process
    from rapidfuzz.distance import Indel

    match = process.extractOne(text, list(texts), scorer=Indel.normalized_similarity, score_cutoff=SAME)
    return None if match is None else str(match[0])


def leakage(texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Returns the similarity of each pair of texts, and its mean and standard deviation over all pairs, by measure.

    Args:
        texts: the pairs by name, such as the id of a template: the derived text and its original.
    """
    each = {
        name: {measure: round(compute(*pair), 4) for measure, compute in MEASURES.items()}
        for name, pair in texts.items()
    }
    columns = {measure: [row[measure] for row in each.values()] for measure in MEASURES}
    return {
        "each": each,
        "mean": {measure: round(fmean(column), 4) if column else None for measure, column in columns.items()},
        "sd": {measure: round(stdev(column), 4) if len(column) > 1 else None for measure, column in columns.items()},
    }
