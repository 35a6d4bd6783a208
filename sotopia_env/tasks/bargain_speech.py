"""Reading offers and assent from free speech: what one utterance of a negotiator does.

The reading is cautious. An utterance is cut into sentences and clauses; values of the matter at hand (prices, start
dates) become tokens ``<0>``, ``<1>``; then each clause is tested against short lists of patterns, refusals first. What
is quoted, past, about third parties, about the partner's price, conditional on something else, or only approximate
offers nothing. A word of assent counts when its clause says nothing else. Sarcasm marked by words spoils assent;
sarcasm that only a tone of voice would show cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sotopia_env.tasks import speech_patterns as patterns
from sotopia_env.tasks.agreement import Accept, Act, Offer, Reject, Unclear, Withdraw


@dataclass(frozen=True, slots=True)
class Mention:
    """A value that an utterance names: which issue, which value; ``None`` is a value that cannot be agreed upon."""

    issue: str
    value: Any


Finder = Callable[[str], tuple[str, tuple[Mention, ...]]]
"""Replaces each mention in a normalised text by its token ``<i>`` and returns the mentions in that order."""

_TYPOGRAPHY = str.maketrans({"’": "'", "‘": "'", "–": "-", "—": ",", "…": ".", "<": " ", ">": " ", "*": "", "_": " "})
_QUOTED = re.compile(r'"[^"]*"|^[ \t]*>.*$', re.MULTILINE)
_CONTRACTIONS = tuple(
    (re.compile(pattern), full)
    for pattern, full in (
        (r"\bcan't\b|\bcannot\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"\bain't\b", "is not"),
        (r"n't\b", " not"),
        (r"'ll\b", " will"),
        (r"'ve\b", " have"),
        (r"'re\b", " are"),
        (r"'d\b", " would"),
        (r"\bi'm\b", "i am"),
        (r"\blet's\b", "let us"),
        (r"\b(it|that|there|what|here|who|how|price|offer|he|she)'s\b", r"\1 is"),
        (r"\bgonna\b", "going to"),
        (r"\bwanna\b", "want to"),
        (r"\bdunno\b", "do not know"),
    )
)
_MAY_CONTRACT = re.compile(r"'|\b(?:cannot|gonna|wanna|dunno)\b")
_SPACES = re.compile(r"[^\S\n]+")


def normalise(text: str) -> str:
    """Returns ``text`` in lower case, with plain punctuation, without quoted words and with contractions spelt out."""
    plain = _QUOTED.sub(" ", text.replace("“", '"').replace("”", '"')).translate(_TYPOGRAPHY).lower()
    if _MAY_CONTRACT.search(plain):
        for pattern, full in _CONTRACTIONS:
            plain = pattern.sub(full, plain)
    return _SPACES.sub(" ", plain).strip()


_PASSED_OVER = Unclear("values that are told, not offered")


@dataclass(slots=True)
class _Clause:
    text: str
    terms: dict[str, Any]
    clash: bool
    asked: bool
    reserved: bool
    assured: bool = False


def read_speech(text: str, find: Finder) -> tuple[Act, ...]:
    """Returns what an utterance does, in the order of its clauses.

    Args:
        text: the utterance as it was said.
        find: the family's finder of the values that can be agreed upon.
    """
    tokenised, mentions = find(normalise(text))
    if len(mentions) > patterns.MOST_MENTIONS:
        return (Unclear(f"{len(mentions)} values in one utterance"),)
    acts: list[Act] = []
    assured = False  # whether the sentence before was no more than "Fine."
    for match in patterns.SENTENCE.finditer(tokenised):
        acts += _read_sentence(match.group(1), "?" in match.group(2), mentions, assured)
        assured = patterns.WEAK.fullmatch(match.group(1).strip()) is not None or "you win" in match.group(1)
    spoilt = patterns.SARCASM.search(tokenised) if any(isinstance(act, Accept | Offer) for act in acts) else None
    if spoilt:
        return (*(act for act in acts if isinstance(act, Reject)), Unclear(f"may not be meant ({spoilt.group()!r})"))
    return tuple(acts)


def _read_sentence(sentence: str, question: bool, mentions: tuple[Mention, ...], assured: bool) -> Iterator[Act]:
    if "if " in sentence:
        sentence = patterns.BENIGN_IF.sub(" ", sentence)
    sentence = patterns.IDIOM.sub(lambda m: " why not " if m.group().startswith("why") else " ", sentence)
    if len(sentence) > patterns.LONGEST:
        if patterns.TOKEN.search(sentence) or patterns.TOUCHES.search(sentence):
            yield Unclear("a sentence too long to be read with certainty")
        return
    sentence = patterns.UP_TO.sub(r"you \1\2 to", sentence)
    if mentions and _is_range(sentence, mentions):
        if not patterns.PAST.search(sentence) and not patterns.THIRD.search(sentence):
            yield Unclear("a range or a choice of values", dict.fromkeys(mention.issue for mention in mentions))
        return
    if patterns.CONDITION.search(sentence):
        yield from _read_conditional(sentence, question, mentions)
        return
    clauses = _clauses(_join_issues(sentence, mentions) if mentions else sentence, question, mentions)
    assured = assured or (not question and patterns.ASSURED.search(sentence) is not None)
    previous: Act | None = None
    for position, clause in enumerate(clauses):
        clause.assured = assured
        act = _read_clause(clause, previous, clauses[position + 1 :])
        if act is None and clause.reserved and isinstance(previous, Accept):
            act = Unclear("assent with a reservation")
        if act is not None:
            yield act
        if position + 1 == len(clauses):
            return
        if act is not None or clause.terms or patterns.YOURS.search(clause.text) or patterns.PAST.search(clause.text):
            previous = act or _PASSED_OVER


def _is_range(sentence: str, mentions: tuple[Mention, ...]) -> bool:
    """Whether two values of one issue are named as alternatives or as ends."""
    pairs = ([int(number) for number in match.groups() if number] for match in patterns.RANGE.finditer(sentence))
    return any(mentions[first].issue == mentions[second].issue for first, second in pairs)


def _join_issues(sentence: str, mentions: tuple[Mention, ...]) -> str:
    """Keeps "110k and July 1" in one clause: values of different issues that stand side by side."""

    def join(match: re.Match[str]) -> str:
        first, second = (mentions[int(number)] for number in match.group(1, 2))
        return match.group() if first.issue == second.issue else f"<{match.group(1)}> with <{match.group(2)}>"

    return patterns.SIDE_BY_SIDE.sub(join, sentence)


def _clauses(sentence: str, question: bool, mentions: tuple[Mention, ...]) -> list[_Clause]:
    parts = patterns.CLAUSE.split(sentence)  # texts at even places, what parts them at odd ones
    pairs = [(text.strip(" '\"-"), mark) for text, mark in zip(parts[::2], ["", *parts[1::2]], strict=True)]
    pairs = [(text, mark) for text, mark in pairs if text or mark in patterns.RESERVATIONS]
    tag = question and len(pairs) > 1 and len(pairs[-1][0].split()) <= 2
    opener = question and patterns.OPENER.match(sentence.strip()) is not None
    return [
        _clause(text, question and (tag or opener or place == len(pairs) - 1), mentions, mark in patterns.RESERVATIONS)
        for place, (text, mark) in enumerate(pairs)
    ]


def _clause(text: str, asked: bool, mentions: tuple[Mention, ...], reserved: bool = False) -> _Clause:
    terms: dict[str, Any] = {}
    clash = False
    for match in patterns.TOKEN.finditer(text):
        mention = mentions[int(match.group(1))]
        clash |= mention.value is None or terms.get(mention.issue, mention.value) != mention.value
        terms[mention.issue] = mention.value
    return _Clause(text, terms, clash, asked, reserved)


def _read_conditional(sentence: str, question: bool, mentions: tuple[Mention, ...]) -> Iterator[Act]:
    """A condition that is itself the price makes an offer; any other makes what hangs on it unclear."""
    whole = _clause(sentence, question, mentions)
    assent = any(patterns.ASSENT.fullmatch(part.strip()) for part in re.split(r",|\bif\b|\bthen\b", sentence))
    if (
        patterns.MUTUAL_IF.search(sentence)
        and not whole.clash
        and not patterns.PAST.search(sentence)
        and not patterns.NEGATION.search(sentence)
    ):
        outside = patterns.CONDITION_PART.sub(" ", sentence)
        if (
            assent
            or (patterns.TOKEN.search(outside) and patterns.OFFER.search(outside))
            or re.search(r"\bi (?:will|can|could|would)\b.*<", sentence)
        ):
            yield Offer(whole.terms, asked=True)
            return
    if whole.terms or assent or patterns.TOUCHES.search(sentence):
        yield Unclear("a condition that is not part of the terms")


def _read_clause(clause: _Clause, previous: Act | None, following: list[_Clause]) -> Act | None:
    text, terms = clause.text, clause.terms
    if patterns.WITHDRAWAL.search(text):
        return Withdraw()
    if patterns.REJECTION.search(text) or (
        terms and patterns.NEGATION.search(text) and not re.search(r"\bno less\b|\bnot a penny", text)
    ):
        if clause.asked and not terms:
            return None
        if terms and (patterns.DOUBT.search(text) or len(patterns.NEGATION.findall(text)) > 1):
            return Unclear("doubt or a double negation", terms)
        return Reject(None if clause.clash or not terms else terms)
    if not terms:
        return _read_without_terms(clause)
    if clause.clash or patterns.LIMIT.search(text):
        if patterns.PAST.search(text) or patterns.THIRD.search(text):
            return None
        return Unclear("a limit, a rough figure, two values at once, or one that cannot be agreed on", terms)
    return _read_with_terms(clause, previous, following)


def _read_without_terms(clause: _Clause) -> Act | None:
    text = clause.text
    if clause.asked:
        return None
    if patterns.ASSENT.fullmatch(text):
        return Accept()
    if patterns.WEAK.fullmatch(text):
        return None
    if re.search(r"\b(?:accept|deal|agree)\b", text) and patterns.HYPOTHESIS.search(text):
        return Unclear("assent that is only considered")
    return None


def _read_with_terms(clause: _Clause, previous: Act | None, following: list[_Clause]) -> Act | None:
    text, terms = clause.text, clause.terms
    if not clause.asked and (patterns.ASSENT.fullmatch(text) or patterns.ASSENT_TERMS.fullmatch(text)):
        return Accept(terms)
    if patterns.PAST.search(text) or patterns.THIRD.search(text):
        return None
    if patterns.HYPOTHESIS.search(text) and not patterns.ASKS_TO_CONSIDER.search(text):
        return Unclear("a value that is only considered", terms)
    bare = not patterns.BARE.sub("", text + " ").strip()
    if clause.asked:
        if (
            bare
            or patterns.PROPOSING_QUESTION.search(text)
            or (patterns.OFFER.search(text) and not patterns.YOURS.search(text))
        ):
            return (
                None
                if patterns.PROBING_QUESTION.search(text) or patterns.YOURS.search(text)
                else Offer(terms, asked=True)
            )
        return None
    if patterns.YOURS.search(text):
        return None
    if bare:
        return _inherit(clause, previous, following)
    return Offer(terms) if patterns.OFFER.search(text) else None


def _inherit(clause: _Clause, previous: Act | None, following: list[_Clause]) -> Act | None:
    """A clause of nothing but values continues what was said before it: "Deal, 110k, start in July".

    Alone it may as well echo the partner ("80. Hm."), so it counts as asked unless a word of assent is with it.
    """
    if previous is _PASSED_OVER:
        return None
    if isinstance(previous, Accept):
        return Accept({**(previous.terms or {}), **clause.terms})
    if isinstance(previous, Offer):
        return Offer(clause.terms, previous.asked)
    return Offer(clause.terms, asked=not clause.assured or any(other.asked for other in following[:1]))


__all__ = ["Finder", "Mention", "normalise", "read_speech"]
