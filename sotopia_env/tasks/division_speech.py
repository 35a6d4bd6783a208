"""Reading offers to divide items, and assent to them, from free speech.

An offer says for *every* piece who gets it: by naming the shares of both ("I take both books and you get the hat"), or
one share and the rest ("I keep the ball, you get everything else"). A wish for some pieces only ("I'd like the hats")
is no offer. Numbers may be digits or words; "the hats" means all of them, "the hat" is clear only where there is one;
"one each" gives one to both. The explicit form is ``offer: book=1; hat=0``, where the numbers are the speaker's share
and the other gets the rest.

What makes an offer unreadable, with the reason kept: more pieces than there are, fewer without a rest, nobody or two
owners named for a piece, alternatives ("or"), "maybe", exceptions ("everything but …"), conditions other than a share
itself, reports. Questions are offers only when they propose ("How about …", "Can I take …").
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sotopia_env.tasks.agreement import Accept, Act, Offer, Reject, Unclear, Withdraw
from sotopia_env.tasks.asides import FRAME, harmless
from sotopia_env.tasks.bargain_speech import Aside, Said, read_speech, scan, weigh
from sotopia_env.tasks.explicit import ExplicitAct, read_explicit
from sotopia_env.tasks.sentence import CONDITION, PAST, REPORT, Sentence, plain, sentences

_WORD = re.compile(r"[^\W_]+")
_SHARE_TEXT = (
    "rest else other others left remaining remainder remains leftovers everything anything all lot nothing none empty"
    " things items pieces"
)
_SHARE_WORDS = frozenset(_SHARE_TEXT.split())
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = {word: number for number, word in enumerate(_NUMBER_WORDS)}
_QUANTITY = (
    r"(?P<q>(?:all|both|every|each)(?: (?:of )?(?:the|your|my|our|those|these))?(?: (?:\d+|zero|one|two"
    r"|three|four|five|six))?"
    r"|(?:none|neither|half|one|two|three|four|five|six|\d+) of (?:the|those|these)(?: (?:\d+|two|three"
    r"|four|five|six))?"
    r"|half (?:the|of the)|no|neither|(?:just |only |exactly )?(?:an?|a single|the|those|these|that"
    r"|the other|another)"
    r"(?: (?:\d+|one|two|three|four|five|six|single|last))?|(?:just |only |exactly |the )?(?:\d+|zero|one"
    r"|two|three|four|five|six))"
)
_REST = re.compile(
    r"\b(?:(?:all|all of|everything|anything|all that is) (?:the )?(?:rest|else|other (?:things|items"
    r"|pieces)|others|left(?: over)?|remaining(?: \w+)?)"
    r"|(?:the|all the) (?:rest|remainder|remaining (?:ones|things|items|pieces)|other (?:things|items"
    r"|pieces)|others)(?: of (?:it|them|the (?:things|items|pieces|lot)))?"
    r"|what(?:ever)? (?:is left|remains|is left over)|the leftovers)\b"
)
_ALL = re.compile(
    r"\b(?:everything|all of (?:it|them)|the (?:whole )?lot|it all|them all|all (?:the )?(?:things|items|pieces))\b"
)
_NOTHING = re.compile(r"\b(?:nothing(?: at all)?|none at all|empty-handed)\b")
_EXCEPT = re.compile(r"\b(?:except|but(?= <)|apart from|other than|besides|minus|without|instead of|rather than)\b")
_NOISE = re.compile(
    r"\b(?:worth|values?|valued|valuing|points?|care|cares|hates?|likes?|love|interest\w*|matters?"
    r"|knows?|how many|there (?:is|are)|we have|in total|why"
    r"|favou?rite|lovely|beautiful|nice|pretty|important|useful|thank\w*|about)\b"
)
_NEGATION = re.compile(
    r"\b(?:not|never|cannot|nor|hardly|refuse|less than|fewer than|more than|at least|at most)\b|n't\b"
)
_PAST_VERB = re.compile(r"\b(?:took|got|kept|gave|had)\b")
_VAGUE = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|might|may|one day|some ?day|eventually|later|some|a few"
    r"|a couple|several|most|around|roughly)\b"
)
_SPLIT = re.compile(
    r"[,;:()]| - |\b(?:while|whereas|but|so|then|if)\b|\band (?=(?:i|you|the rest|leave|give|let|keep|for"
    r"|in return|in exchange)\b|<r>|the <)"
    r"|(?<=for me) and\b|(?<=for you) and\b|(?<=to me) and\b|(?<=to you) and\b|(?<=mine) and\b|(?<=yours) and\b"
)
_LEAD = re.compile(r"[,:]| - ")
_TO_YOU = re.compile(
    r"\b(?:give|leave|offer|hand|let|grant|send|pass|leaving|giving|want|leaves|gives)(?: \w+)? you\b"
    r"|\b(?:to|for|with) you\b|\byours\b|\byour (?:share|part|side)\b"
)
_TO_ME = re.compile(
    r"\b(?:give|leave|offer|hand|let|grant|send|pass|leaving|giving|leaves|gives)(?: \w+)? me\b|\b(?:to|for"
    r"|with) me\b|\bmine\b|\bmy (?:share|part|side)\b"
)
_I = re.compile(r"\b(?:i|i'd|me)\b")
_YOU = re.compile(r"\b(?:you|you'd)\b")
_POSTFIX = re.compile(r">[^<]*\b(?:(?:for|to) (?:me|you)|mine|yours)\b[^<]*$")
# A list of pieces and nothing else: what may take its owner from the clause beside it.
_BARE = re.compile(
    r"(?:<\w+>|and|plus|also|with|as well|too|then|please|well|so|ok|okay|just|only|my|the|a|an|proposal|offer|idea"
    r"|plan|how about|what about|like this|this|share|fair|yes|no|all|in return|in exchange|together|[ .'-])+"
)
_TOKEN = re.compile(r"<\w+>")
# Words that may stand beside shares: giving and taking, courtesies, counting.
_KNOWN_TEXT = (
    "i you me we us my mine your yours our ours d ll m re s let get gets take takes keep keeps have has want"
    " need would like love will can could may shall should give gives giving leave leaves leaving offer hand"
    " grant send pass to for with and of the a an in return exchange how about what if propose proposal"
    " suggest suggestion say deal split share shares part side each both apiece please then just only also so"
    " be is are go goes going it all this way that fair do does prefer happy glad okay ok fine yes no well"
    " right now here plan idea too as everyone one two three four five six together plus themselves yourself"
    " myself must really gladly prefer own remaining whole off belong belongs receive receives end up divide"
    " by left over agree accept am are them they those these ve t did don accepted agreed great good perfect"
)
_KNOWN = frozenset(_KNOWN_TEXT.split())
_LEADING = re.compile(
    r"(?:(?:so|and|well|my|the|here is|this is|our|proposal|idea|plan|offer|suggestion|counter|counteroffer|how about"
    r"|what|about|this|like|let us|do|split|it|we|propose|suggest|i|a|fair|new|another|now|then|listen|look|hmm|okay|ok"
    r"|no|in return|in exchange|final|agreed|deal|is|say|done|accepted|accept)(?: |$))+"
)
_EACH = re.compile(r"\b(?:we each|we both|each of us|both of us|each|apiece)\b")
_PROPOSING = re.compile(
    r"^(?:(?:so|well|and|ok|okay|hmm|then|alright|all right)[, ]+)*(?:how about|what about|what if|shall we"
    r"|shall i|could we|can we|could i|can i"
    r"|may i|would you (?:accept|agree|be|take)|should we|do we agree|is it ok|would it be|why (?:do not"
    r"|don't) (?:we|you|i)|i |you (?!want)|let|my proposal|deal)\b"
)


@dataclass(frozen=True, slots=True)
class Item:
    """A kind of thing to divide: its name, its plural, and how many there are."""

    name: str
    plural: str
    count: int


@dataclass(slots=True)
class _Shares:
    """What an utterance gives to the speaker (0) and to the other (1) so far."""

    counts: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    rest: int | None = None
    everything: int | None = None
    problem: str = ""
    touched: bool = False
    asked: bool = False

    def give(self, owner: int, item: int, number: int) -> None:
        if self.counts[owner].get(item, number) != number:
            self.problem = self.problem or "two numbers for one share"
        self.counts[owner][item] = number

    def close(self, items: tuple[Item, ...]) -> None:
        """At the end of a sentence, writes the rest out, so that a later sentence may repeat it but not change it."""
        if self.rest is None or not (self.counts[0] or self.counts[1]):
            return
        for item, kind in enumerate(items):
            other = self.counts[1 - self.rest].setdefault(item, 0)
            if other + self.counts[self.rest].get(item, 0) > kind.count:
                self.problem = self.problem or f"more {kind.plural} than there are"
            self.counts[self.rest][item] = kind.count - other


@lru_cache(maxsize=1024)
def _finder(items: tuple[Item, ...]) -> tuple[re.Pattern[str], dict[str, tuple[int, bool]]]:
    forms: dict[str, tuple[int, bool]] = {}
    for number, item in enumerate(items):
        forms[plain(item.plural)] = (number, True)
        forms.setdefault(plain(item.name), (number, False))
    listed = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?:\b{_QUANTITY} )?\b(?P<form>{listed})\b(?! of\b)"), forms


@lru_cache(maxsize=1024)
def _vocabulary(items: tuple[Item, ...]) -> frozenset[str]:
    """Words of which a text that divides anything contains at least one."""
    forms = " ".join(plain(f"{item.name} {item.plural}") for item in items)
    return _SHARE_WORDS.union(_WORD.findall(forms))


def _number(quantity: str | None, plural: bool, count: int) -> int | None:
    """How many pieces ``quantity`` means where there are ``count``; ``None`` when that is not clear."""
    words = (quantity or "").split()
    told = [int(word) if word.isdigit() else _NUMBERS[word] for word in words if word.isdigit() or word in _NUMBERS]
    if "all" in words or "every" in words:
        return count if not told or told[-1] == count else None
    if "both" in words:
        return 2 if count == 2 else None
    if "half" in words:
        return count // 2 if count % 2 == 0 else None
    if words and words[0] in ("no", "none", "neither"):
        return 0
    if told:
        return told[0]
    if "each" in words:
        return None
    if plural:
        return count if not words or words[-1] in ("the", "those", "these") else None
    if not words or words[-1] in ("the", "that", "last"):
        return 1 if count == 1 else None
    return 1 if words[-1] in ("a", "an", "single") else None


@lru_cache(maxsize=16384)
def read_division(text: str, items: tuple[Item, ...], me: str, you: str) -> tuple[Act, ...]:
    """Returns what ``text``, said by agent ``me`` to agent ``you``, does; terms are shares by agent id."""
    explicit = read_explicit(text)
    if explicit is not None:
        return (_read_act(explicit, items, me, you),)
    if _vocabulary(items).isdisjoint(_WORD.findall(plain(text))):
        return read_speech(text, lambda words: (words, ()))
    shares = _Shares()
    before, after = list[str](), list[str]()  # what is said without naming pieces, around the last naming
    for sentence in sentences(text):
        marked, numbers = _mark(sentence.text, items)
        if "<" in marked:
            known = shares.touched
            shares.touched = False
            _read_sentence(marked, sentence, numbers, items, shares)
            divides, shares.touched = shares.touched, shares.touched or known
            if divides:
                before += [*after, _lead(marked)]
                after = []
                continue
        after.append(sentence.text + ("?" if sentence.question else "."))
    offer = [Said(act, "", 1000, 0) for act in _settle(shares, items, me, you)]
    return weigh([*_talk(before, 0), *offer, *_talk(after, 1001)])


def _talk(said: Sequence[str], first: int) -> list[Said | Aside]:
    """Assent, refusal and withdrawal in sentences that name no pieces, and what else they say."""
    words = " ".join(part for part in said if part)
    return scan(words, lambda text: (text, ()), first) if words else []


def _lead(marked: str) -> str:
    """The words before the first clause that names pieces or people: the "deal" of "deal, I take the hats"."""
    parts = list(itertools.takewhile(lambda part: "<" not in part and not _owner_words(part), _LEAD.split(marked)))
    return f"{', '.join(part.strip() for part in parts)}." if parts else ""


def _mark(text: str, items: tuple[Item, ...]) -> tuple[str, list[tuple[int, int | None]]]:
    """``text`` with each mention of items written ``<k>``, rest ``<r>``, everything ``<a>``, nothing ``<n>``."""
    pattern, forms = _finder(items)
    numbers: list[tuple[int, int | None]] = []

    def note(match: re.Match[str]) -> str:
        item, plural = forms[match.group("form")]
        numbers.append((item, _number(match.group("q"), plural, items[item].count)))
        return f"<{len(numbers) - 1}>"

    marked = pattern.sub(note, text)
    return _NOTHING.sub("<n>", _ALL.sub("<a>", _REST.sub("<r>", marked))), numbers


def _read_sentence(
    marked: str, sentence: Sentence, numbers: list[tuple[int, int | None]], items: tuple[Item, ...], shares: _Shares
) -> None:
    if sentence.question and not _PROPOSING.match(marked):
        return
    shares.asked = shares.asked or sentence.question
    reason = _why_unreadable(marked)
    if reason:
        shares.touched, shares.problem = True, shares.problem or reason
        return
    owner: int | None = None
    waiting: list[str] = []
    for segment in (part.strip() for part in _SPLIT.split(marked)):
        if "<" not in segment and not _owner_words(segment):
            if not shares.touched and not harmless(segment.rstrip("?"), asked=True) and not _LEADING.fullmatch(segment):
                shares.problem = shares.problem or f"words before the shares ({segment[:40]!r})"
            continue
        found = _owner(segment)
        owner = found if found is not None else owner
        if "<" not in segment:
            continue
        if _NOISE.search(segment.replace("how about", "").replace("what about", "")):
            continue
        shares.touched = True
        if strange := _strange(segment):
            shares.problem = shares.problem or f"words beside the shares ({strange!r})"
            continue
        if _NEGATION.search(segment):
            shares.problem = shares.problem or "a denial beside a share"
            continue
        if found is None and not _BARE.fullmatch(segment) and not _EACH.search(segment):
            shares.problem = shares.problem or "it is not said which of the two gets what"
            continue
        if _EACH.search(segment):
            _give(segment, (0, 1), numbers, items, shares)
        elif found is None and owner is None:
            waiting.append(segment)
        elif owner is not None:
            for early in waiting:
                _give(early, (owner,), numbers, items, shares)
            waiting.clear()
            _give(segment, (owner,), numbers, items, shares)
            if found is not None and _POSTFIX.search(segment):  # "one hat for me, a book and a ball for you"
                owner = None
    if waiting:
        shares.problem = shares.problem or "it is not said who gets what"
    shares.close(items)


def _strange(segment: str) -> str:
    """The first word beside shares that is not known to leave them as they are."""
    return next((word for word in _WORD.findall(_TOKEN.sub(" ", segment)) if word not in _KNOWN), "")


def _why_unreadable(marked: str) -> str:
    for pattern, reason in (
        (REPORT, "a report"),
        (PAST, "of the past"),
        (_VAGUE, "alternatives or vagueness"),
        (_EXCEPT, "an exception"),
        (FRAME, "may not be meant"),
    ):
        if found := pattern.search(marked):
            return f"{reason} ({found.group()!r})"
    if "if" not in marked and (found := _PAST_VERB.search(marked)):
        return f"of the past ({found.group()!r})"
    condition = CONDITION.search(marked.replace("what if", ""))
    if condition and not (condition.group() == "if" and "<" in marked.split("if", 1)[1].split(",")[0]):
        return f"a condition ({condition.group()!r})"
    return ""


def _owner_words(segment: str) -> bool:
    return bool(_TO_YOU.search(segment) or _TO_ME.search(segment) or _I.search(segment) or _YOU.search(segment))


def _owner(segment: str) -> int | None:
    """Who gets what a segment names: 0 the speaker, 1 the other, ``None`` when it does not say."""
    to_you, to_me = _TO_YOU.search(segment), _TO_ME.search(segment)
    if to_you or to_me:
        return (1 if to_you else 0) if not (to_you and to_me) else None
    first, second = _I.search(segment), _YOU.search(segment)
    if first and second:
        return None
    return 0 if first else 1 if second else None


def _give(
    segment: str, owners: Sequence[int], numbers: list[tuple[int, int | None]], items: tuple[Item, ...], shares: _Shares
) -> None:
    for token in re.findall(r"<(\w+)>", segment):
        for owner in owners:
            if token == "n":
                for item in range(len(items)):
                    shares.counts[owner].setdefault(item, 0)
            elif token == "r":
                if shares.rest not in (None, owner):
                    shares.problem = shares.problem or "both get the rest"
                shares.rest = owner
            elif token == "a":
                shares.everything = owner
                for item, kind in enumerate(items):
                    shares.give(owner, item, kind.count)
            else:
                item, number = numbers[int(token)]
                if number is None:
                    shares.problem = shares.problem or f"it is not clear how many {items[item].plural}"
                else:
                    shares.give(owner, item, number)


def _settle(shares: _Shares, items: tuple[Item, ...], me: str, you: str) -> list[Act]:
    """The offer that the shares make, or why they make none."""
    if not shares.touched:
        return []
    if shares.problem:
        return [Unclear(shares.problem)]
    if None not in (shares.rest, shares.everything) and shares.rest != shares.everything:
        return [Unclear("everything for one, and a rest for the other")]
    if shares.rest is not None and not (shares.counts[0] or shares.counts[1]):
        return [Unclear("the rest, but of what is not said")]
    mine: dict[str, int] = {}
    for number, item in enumerate(items):
        own, other = shares.counts[0].get(number), shares.counts[1].get(number)
        if (own or 0) + (other or 0) > item.count:
            return [Unclear(f"more {item.plural} than there are")]
        if (own or 0) + (other or 0) == item.count:
            mine[item.name] = own or 0
        else:
            return [Unclear(f"it is not said who gets all the {item.plural}")]
    return [Offer(allocation(items, mine, me, you), shares.asked)]


def allocation(items: tuple[Item, ...], mine: Mapping[str, int], me: str, you: str) -> dict[str, dict[str, int]]:
    """Returns complete terms in which ``me`` gets ``mine`` and ``you`` the rest, agents in alphabetical order."""
    shares = {
        me: {item.name: mine[item.name] for item in items},
        you: {item.name: item.count - mine[item.name] for item in items},
    }
    return dict(sorted(shares.items()))


def _read_act(act: ExplicitAct, items: tuple[Item, ...], me: str, you: str) -> Act:
    if act.verb == "reject":
        return Reject()
    if act.verb == "withdraw":
        return Withdraw()
    if act.terms is None:
        return Accept()
    mine: dict[str, int] = {item.name: 0 for item in items}
    names = {form.casefold(): item for item in items for form in (item.name, item.plural)}
    for key, value in act.terms.items():
        item = names.get(key.casefold())
        if item is None or not str(value).isdigit() or int(str(value)) > item.count:
            return Unclear(f"an explicit share must be a number of existing pieces, got {key}={value}")
        mine[item.name] = int(str(value))
    terms = allocation(items, mine, me, you)
    return Accept(terms) if act.verb == "accept" else Offer(terms)


__all__ = ["Item", "allocation", "read_division"]
