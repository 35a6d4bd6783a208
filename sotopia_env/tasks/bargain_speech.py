"""Reading offers and assent from free speech: what one utterance of a negotiator does.

The reading is cautious. An utterance is cut into sentences and clauses; values of the matter at hand (prices, start
dates) become tokens ``<0>``, ``<1>``; then each clause is tested against short lists of patterns, refusals first. What
is quoted, past, about third parties, about the partner's price, conditional on something else, or only approximate
offers nothing. A word of assent counts when its clause says nothing else, and when all that stands beside it in the
turn is harmless (:mod:`sotopia_env.tasks.asides`); otherwise it is unclear. An offer that the same turn corrects or
takes back does not stand. Sarcasm marked by words spoils assent; sarcasm that only a tone of voice would show cannot be
seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sotopia_env.tasks import speech_patterns as patterns
from sotopia_env.tasks.agreement import Accept, Act, Offer, Reject, Repeat, Unclear, Withdraw
from sotopia_env.tasks.asides import FRAME, harmless, spoils
from sotopia_env.tasks.sentence import CHEERING


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
    if not text.isascii():
        text = text.translate(CHEERING).replace("“", '"').replace("”", '"')
    # Quoted words leave a mark: 'I accept "as if"' is more than "I accept".
    plain = _QUOTED.sub(lambda quoted: " ~ " if quoted.group()[0] == '"' else " ", text).translate(_TYPOGRAPHY).lower()
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


class Aside(NamedTuple):
    """Words that are no act of their own; what they do to the acts beside them is for :func:`weigh` to say.

    Attributes:
        text: the words.
        terms: the values among them.
        asked: whether they are a question.
        sentence: number of their sentence in the utterance.
        place: number of their clause in the sentence.
        reserved: whether "but" or the like leads them in.
        told: whether they tell of the partner's, other people's or former values.
    """

    text: str
    terms: dict[str, Any]
    asked: bool
    sentence: int
    place: int
    reserved: bool = False
    told: bool = False


class Said(NamedTuple):
    """An act with its words and where they stand; see :class:`Aside`."""

    act: Act
    text: str
    sentence: int
    place: int
    reserved: bool = False


def read_speech(text: str, find: Finder) -> tuple[Act, ...]:
    """Returns what an utterance does, in the order of its clauses.

    Args:
        text: the utterance as it was said.
        find: the family's finder of the values that can be agreed upon.
    """
    return weigh(scan(text, find))


def scan(text: str, find: Finder, first: int = 0) -> list[Said | Aside]:
    """Returns the acts and asides of an utterance, before they are weighed against each other.

    Args:
        text: the utterance, or a part of one.
        find: the family's finder of values.
        first: number of its first sentence.
    """
    tokenised, mentions = find(normalise(text))
    if len(mentions) > patterns.MOST_MENTIONS:
        return [Said(Unclear(f"{len(mentions)} values in one utterance"), "", first, 0)]
    parts: list[Said | Aside] = []
    assured = False  # whether the sentence before was no more than "Fine."
    for number, match in enumerate(patterns.SENTENCE.finditer(tokenised), first):
        parts += _read_sentence(match.group(1), "?" in match.group(2), mentions, assured, number)
        assured = patterns.WEAK.fullmatch(match.group(1).strip()) is not None or "you win" in match.group(1)
    if any(isinstance(part, Said) and isinstance(part.act, Accept | Offer) for part in parts):
        spoilt = patterns.SARCASM.search(tokenised)
        if spoilt:
            refusals = [part for part in parts if isinstance(part, Said) and isinstance(part.act, Reject)]
            return [*refusals, Said(Unclear(f"may not be meant ({spoilt.group()!r})"), "", first, 0)]
    return parts


def weigh(parts: Sequence[Said | Aside]) -> tuple[Act, ...]:
    """Returns the acts of one utterance, with what the asides do to them."""
    first = next((i for i, part in enumerate(parts) if isinstance(part, Said) and _binds(part.act)), None)
    if first is None:
        return tuple(part.act for part in parts if isinstance(part, Said))
    accepted = next((i for i, part in enumerate(parts) if isinstance(part, Said) and _assents(part.act)), None)
    acts: list[Act] = []
    doubts: list[Act] = []
    for place, part in enumerate(parts):
        if isinstance(part, Said):
            acts.append(part.act)
            continue
        if accepted is not None:
            doubts += _beside_assent(part, parts, place, accepted)
        if place > first and not doubts:
            doubts += _after_offer(part)
    may_assent = any(isinstance(act, Offer) and not act.asked for act in acts)
    if may_assent and (doubts or not all(map(_plainly_put, parts))):
        acts = [Offer(act.terms, asked=True) if isinstance(act, Offer) else act for act in acts]
    return (*acts, *doubts)


def _binds(act: Act) -> bool:
    return isinstance(act, Accept | Offer)


def _assents(act: Act) -> bool:
    return isinstance(act, Accept)


def _beside_assent(aside: Aside, parts: Sequence[Said | Aside], place: int, accepted: int) -> list[Act]:
    """What an aside does to an assent of the same turn."""
    if place < accepted:
        apart = aside.sentence != parts[accepted].sentence
        if harmless(aside.text, aside.asked) or (apart and not patterns.SUSPECT.search(aside.text)):
            return []
        if any(part.reserved for part in parts[place + 1 : accepted + 1]):
            return []  # "I hoped for less, but deal" concedes; "in another life, deal" does not
        return [Unclear(f"a doubt before the assent ({aside.text[:40]!r})")]
    if aside.reserved:
        return [Unclear("assent with a reservation")]
    if not harmless(patterns.TOKEN.sub("", aside.text).strip() if aside.terms else aside.text, aside.asked):
        return [Unclear(f"assent with more beside it ({aside.text[:40]!r})")]
    return [Repeat(aside.terms)] if aside.terms else []


def _after_offer(aside: Aside) -> list[Act]:
    """What an aside does to an offer before it: other values and retractions blur it."""
    if aside.terms:
        return [] if aside.told else [Unclear("another value beside an offer", aside.terms)]
    reason = "" if patterns.CLOSING.fullmatch(aside.text) else spoils(aside.text, aside.asked or aside.place > 0)
    return [Unclear(reason, spoils=True)] if reason else []


def _plainly_put(part: Said | Aside) -> bool:
    """Whether nothing but values and courtesies is said, so that an offer may assent to an equal one."""
    if isinstance(part, Aside):
        return bool(part.terms) or harmless(part.text, part.asked)
    if not isinstance(part.act, Offer) or not part.text:
        return True
    return harmless(patterns.OFFERING.sub("", patterns.TOKEN.sub("", part.text)).strip(" ,"))


def _read_sentence(
    sentence: str, question: bool, mentions: tuple[Mention, ...], assured: bool, number: int
) -> Iterator[Said | Aside]:
    if "if " in sentence:
        sentence = patterns.BENIGN_IF.sub(" ", sentence)
    if "no" in sentence:  # all the idioms hold a "no" or a "not"
        sentence = patterns.IDIOM.sub(lambda m: " why not " if m.group().startswith("why") else " ", sentence)
    if " to" in sentence:
        sentence = patterns.UP_TO.sub(r"you \1\2 to", sentence)
    whole = _read_whole(sentence, question, mentions)
    if whole is not None:
        for read in whole:
            yield Said(read, "", number, 0)
        if not whole:
            yield Aside(sentence[:200], {}, question, number, 0)
        return
    clauses = _clauses(_join_issues(sentence, mentions) if mentions else sentence, question, mentions)
    assured = assured or (not question and patterns.ASSURED.search(sentence) is not None)
    previous: Act | None = None
    for position, clause in enumerate(clauses):
        clause.assured = assured
        act = _read_clause(clause, previous, clauses[position + 1 :])
        if isinstance(act, Offer | Accept) and (framed := FRAME.search(sentence)):
            act = Unclear(f"may not be meant ({framed.group()!r})", clause.terms or None)
        if act is None and clause.reserved and isinstance(previous, Accept):
            act = Unclear("assent with a reservation")
        if act is not None:
            yield Said(act, clause.text, number, position, clause.reserved)
        else:
            told = bool(clause.terms) and _is_told(clause.text)
            yield Aside(clause.text, clause.terms, clause.asked, number, position, clause.reserved, told)
        if act is not None or clause.terms or patterns.YOURS.search(clause.text) or patterns.PAST.search(clause.text):
            previous = act or _PASSED_OVER


def _is_told(text: str) -> bool:
    """Whether values are plainly the partner's, other people's or former ones, not a correction of the own."""
    return bool(patterns.YOURS.search(text) or patterns.THIRD.search(text) or patterns.SPENT.search(text))


def _read_whole(sentence: str, question: bool, mentions: tuple[Mention, ...]) -> list[Act] | None:
    """The acts of a sentence that is read as a whole; ``None`` for one to be read clause by clause."""
    if len(sentence) > patterns.LONGEST:
        touches = patterns.TOKEN.search(sentence) or patterns.TOUCHES.search(sentence)
        return [Unclear("a sentence too long to be read with certainty")] if touches else []
    if mentions and _is_range(sentence, mentions):
        if patterns.PAST.search(sentence) or patterns.THIRD.search(sentence):
            return []
        issues = dict.fromkeys(mention.issue for mention in mentions)
        return [Unclear("a range or a choice of values", issues)]
    if patterns.CONDITION.search(sentence):
        return list(_read_conditional(sentence, question, mentions))
    return None


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
    if _refuses(text) or (
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


def _refuses(text: str) -> bool:
    return any(stem in text for stem in patterns.REFUSING) and patterns.REJECTION.search(text) is not None


def _read_without_terms(clause: _Clause) -> Act | None:
    text = clause.text
    if clause.asked:
        return None
    if patterns.ASSENT.fullmatch(text):
        if patterns.TENTATIVE.search(text):
            return Unclear("assent that is only considered")
        if bool(patterns.OF_PAY.search(text)) != bool(patterns.OF_START.search(text)):
            return Unclear("assent to a part of the terms")
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


__all__ = ["Aside", "Finder", "Mention", "Said", "normalise", "read_speech", "scan", "weigh"]
