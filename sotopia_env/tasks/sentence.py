"""Sentences and clauses of free speech, and the words that make a sentence mean less than it seems to say.

Families whose outcome hangs on one statement ("I vote for …", "our mutual friend is …") read an utterance sentence by
sentence. What stands in quotation marks is somebody's words, not the speaker's, and is blanked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_TYPOGRAPHY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "«": '"', "»": '"', "–": "-", "—": "-", "…": "."})
_MARKUP = re.compile(r"[*_`#>]+")
_QUOTED = re.compile(r'"[^"\n]*"?|(?<!\w)\'(?!(?:s|re|ll|ve|m|d|t)\b)[^\'\n]*\'(?!\w)')
_SENTENCE = re.compile(r"([^.!?;\n]+)([.!?;\n]*)")
# Signs that only cheer ("Deal 👍") are dropped, and so is what is invisible. Any other sign stays: a word of assent
# beside a clown's face is not plain assent.
_CHEERING = "👍👌🤝🙌👏💪🙏😀😁😃😄😊🙂☺😌🤗🥰😍🥳🎉🎊🍾🥂✅✔☑❤💙💚💛🧡💜✨🌟⭐🔥💯🏻🏼🏽🏾🏿"
CHEERING = dict.fromkeys([*map(ord, _CHEERING), 0xFE0F, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF], "")
"""Translation table that drops signs which add nothing to what is said."""
_CONTRACTIONS = (
    (re.compile(r"\b(i|you|we|they|he|she|it|that|who|there)'ll\b"), r"\1 will"),
    (re.compile(r"\bi'm\b"), "i am"),
    (re.compile(r"\b(i|you|we|they)'ve\b"), r"\1 have"),
    (re.compile(r"\b(we|you|they)'re\b"), r"\1 are"),
    (re.compile(r"\b(it|that|he|she|there|who|what|friend|person|one|answer|match|name|let)'s\b"), r"\1 is"),
    (re.compile(r"\bi(?:'d| would) (?:like|love)\b"), "i want"),
    (re.compile(r"\s+"), " "),
)
_UNCONTRACTED = _CONTRACTIONS[-2:]
# Turns of phrase that contain a marker below and do not weaken what is said.
_IDIOMS = re.compile(
    r"\b(?:(?:there is |without )?(?:no|any|a shadow of a|a) doubt(?: about it| in my mind)?|beyond doubt|no question"
    r"(?: about it)?|not only|if you ask me|no problem|no worries|why not|without hesitation"
    r"|if i may|if nobody minds|if that is ok(?:ay)?|as (?:you|we|i) (?:just )?(?:said|guessed|suspected))\b"
)
_OPENER = re.compile(
    r"^\W*(?:(?:so|and|but|well|hmm+|hm|ok|okay|oh|ah|hey|now|then|wait|sorry|please|also|or|tell me)\b[, ]*)*"
    r"(?:is|are|am|was|were|do|does|did|can|could|would|will|has|have|had|who|whose|whom|what|which|where|when|why"
    r"|how|might|may|shall|should)\b"
)
_CLAUSE = re.compile(
    r",| - |-- |:|\(|\)|\b(?:but|so|because|since|although|though|therefore|however|while|whereas|and then)\b"
)

NEGATION = re.compile(
    r"\b(?:not|no|never|nobody|none|nothing|neither|nor|cannot|refuse|deny|doubt|against|except|rather than"
    r"|instead of|other than|unlike|hardly|without|anything but|anyone but|ruled? out|wrong|false|mistaken)\b|n't\b"
)
"""Words that turn a statement into its contrary."""
HEDGE = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|might|may|could|would|should|wonder\w*|not sure|unsure|suppose|guess\w*"
    r"|suspect|either|or|almost|nearly|tempted|inclined|leaning|considering|thinking (?:of|about)|hoping|hope|wish"
    r"|imagine|pretend|potentially|likely|hypothetically|i'd|tomorrow|later|next (?:time|year|week|month))\b"
)
"""Words that make a statement less than one."""
CONDITION = re.compile(
    r"\b(?:if|unless|until|once|whether|assuming|provided|as long as|in case|only when|on condition|in exchange"
    r"|in return|suppose|when)\b"
)
"""Words that make a statement hang on something else."""
REPORT = re.compile(
    r"\b(?:said|says|saying|told|tells|telling|claims|claimed|thinks|believes|heard|wrote|asked|asks|wants? me"
    r"|according to|dream\w*|joke|joking|kidding|lied|lying|sarcastic\w*)\b"
    r"|\b(?:you|they|he|she|people|everyone|everybody) (?:all )?(?:think|believe|say|claim)\b"
)
"""Words that tell of other people's words, or of things not meant."""
ADVICE = re.compile(r"\b(?:you|they|he|she|people|everyone|everybody) (?:all )?(?:should|must|could|need)\b")
"""Words that tell others what to do."""
PAST = re.compile(
    r"\b(?:used to|earlier|previously|last (?:time|year|week|month|night|summer|winter)|yesterday|was|were|(?:i|we)"
    r"(?: first| once| always)? thought(?! about| it over| it through)|years? ago)\b"
)
"""Words that tell of other times."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence: lower case, plain quotation marks, contractions written out; and whether it asks."""

    text: str
    question: bool

    def clauses(self) -> list[str]:
        """The parts between commas, dashes, colons and clause-joining words."""
        return [part.strip() for part in _CLAUSE.split(self.text) if part.strip()]


def plain(text: str) -> str:
    """Returns ``text`` in lower case with plain quotation marks and dashes and without markup characters."""
    text = text.translate(_TYPOGRAPHY)
    return _MARKUP.sub("", text if text.isascii() else text.translate(CHEERING)).casefold()


@lru_cache(maxsize=8192)
def sentences(text: str) -> tuple[Sentence, ...]:
    """Returns the sentences of an utterance with quoted words blanked.

    An utterance that stands in quotation marks as a whole is the speaker's own.
    """
    low = plain(text).strip()
    if len(low) > 1 and low[0] == low[-1] == '"' and '"' not in low[1:-1]:
        low = low[1:-1]
    low = _QUOTED.sub(" ~ ", low) if '"' in low or "'" in low else low
    return tuple(
        Sentence(words, "?" in match.group(2) or _OPENER.match(words) is not None)
        for match in _SENTENCE.finditer(low)
        if (words := _written_out(match.group(1)))
    )


def _written_out(words: str) -> str:
    for pattern, replacement in _CONTRACTIONS if "'" in words else _UNCONTRACTED:
        words = pattern.sub(replacement, words)
    return _IDIOMS.sub("", words.replace("even if", ", though")).strip()


def weakness(words: str) -> str:
    """Returns why ``words`` state less than they seem to (``""`` when they stand as said)."""
    return far_weakness(words) or near_weakness(words)


def near_weakness(words: str) -> str:
    """Returns why a clause states less than it seems to, whatever the rest of its sentence says."""
    return _first(_NEAR, words)


def far_weakness(words: str) -> str:
    """Returns why a sentence with ``words`` states nothing at all: it hangs on a condition, or reports."""
    return _first(_FAR, words)


_FAR = ((CONDITION, "a condition"), (REPORT, "a report"), (ADVICE, "advice"))
_NEAR = ((HEDGE, "a hedge"), (NEGATION, "a denial"), (PAST, "of the past"))


def _first(patterns: tuple[tuple[re.Pattern[str], str], ...], words: str) -> str:
    for pattern, name in patterns:
        found = pattern.search(words)
        if found:
            return f"{name} ({found.group()!r})"
    return ""


__all__ = [
    "ADVICE",
    "CHEERING",
    "CONDITION",
    "HEDGE",
    "NEGATION",
    "PAST",
    "REPORT",
    "Sentence",
    "far_weakness",
    "near_weakness",
    "plain",
    "sentences",
    "weakness",
]
