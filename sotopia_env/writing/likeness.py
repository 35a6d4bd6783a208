"""Likeness of texts: what is written again, and how much of a script is left in what was made of it.

Three measures, each from 0 to 1 (AgentSense, table 3): **Jaccard**, of the sets of words; **Gestalt** (Ratcliff and
Obershelp), of the longest common blocks; **Levenshtein** ratio, 1 less the insertions and deletions per character.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev
from typing import Any

SAME = 0.8
"""Levenshtein ratio from which on two contexts count as one situation."""


def jaccard(first: str, second: str) -> float:
    """Returns the share of common words among all words; 1 for two texts without any."""
    words, others = (set(re.findall(r"\w+", text.casefold())) for text in (first, second))
    return len(words & others) / len(words | others) if words | others else 1.0


def gestalt(first: str, second: str) -> float:
    """Returns the ratio of difflib, of all characters."""
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()


def levenshtein(first: str, second: str) -> float:
    """Returns 1 less the insertions and deletions that turn one text into the other, per character of both."""
    from rapidfuzz.distance import Indel

    return Indel.normalized_similarity(first, second)


MEASURES = {"jaccard": jaccard, "gestalt": gestalt, "levenshtein": levenshtein}


def nearest_text(text: str, texts: Iterable[str]) -> str | None:
    """Returns that of ``texts`` which is most like ``text``, or ``None`` when nothing is as like as :data:`SAME`."""
    from rapidfuzz import process
    from rapidfuzz.distance import Indel

    match = process.extractOne(text, list(texts), scorer=Indel.normalized_similarity, score_cutoff=SAME)
    return None if match is None else str(match[0])


def leakage(texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Returns how like two texts are, under each name, and mean and standard deviation over all, by measure.

    Args:
        texts: by name, such as the id of a template, what was made and what it was made of.
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
