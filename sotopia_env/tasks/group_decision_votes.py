"""Reading public votes from free speech, and counting them.

A vote is a statement of the speaker's own, present, unconditional choice that names exactly one option: "I vote for
the museum", "my vote goes to …", "count me in for …", "put me down for …", "… gets my vote", "I change my vote to …",
or the explicit act ``vote: museum``. Preferences ("I like …", "let's go with …"), questions, hedges, conditions,
denials, reports of other votes or other times, quoted words and "same here" are no votes: a vote names its option, so
that reading it needs nothing but the utterance. Two different votes in one utterance cancel each other, with the
reason kept.

What follows the option in its clause must be harmless (:mod:`sotopia_env.tasks.asides`): "… to be dropped", "… last",
"… pending the price" are no votes for it. So must short interjections be ("Psych!"), and nothing after the vote may
deny, retract, reserve, or name another option; reasons ("because …") may. "I withdraw my vote", "I take that back" and
a denial of the own standing vote ("I don't vote for … after all") take it back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from sotopia_env.tasks.asides import FRAME, RESERVATION, harmless, may_retract, spoils, taken_back
from sotopia_env.tasks.running import RunningReader
from sotopia_env.tasks.sentence import NEGATION, Sentence, far_weakness, near_weakness, plain, sentences, weakness
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn

_TRIGGER = re.compile(r"\bvot|count me|put me down|sign me up|mark me down", re.IGNORECASE)
_BOUNDARY = re.compile(
    r",| - |-- |:|\(|\)|\b(?:but|so|because|since|although|though|and|as (?=it|we|i|the|that|there))\b"
)
_REASON = re.compile(r"(?:because|since|although|though|as)$")
_CONTRAST = re.compile(r"\b(?:and )?(?:not|over|rather than|instead of|ahead of) (?:for )?(?:the |a |our )?@\d+@")
_DENIED = re.compile(
    r"\bi (?:do not|don't|am not|will not|won't|no longer|can not|cannot|am no longer) (?:vote|voting|count|support)\b"
)
_WEAK_LIST = (
    "a an and at by day evening for from in into night of on or our out the through to together tour trip visit with"
    " afternoon morning weekend hour class session party town city local old new open big little"
)
_WEAK_WORDS = frozenset(_WEAK_LIST.split())
_OPTION = (
    r"(?:(?:the|a|an|our|that|this|going|to|doing|having|option|plan|idea|of|holding|taking|visiting|for|on"
    r"|lovely|great"
    r"|good|good old|trusty) )*@(\d+)@"
)
_I = (
    r"\bi (?:(?:hereby|now|will|also|still|happily|gladly|officially|formally|publicly|definitely|firmly|do"
    r"|am|want to"
    r"|would like to|wish to|must|shall|too|then|therefore|just|simply|can only|have decided to|once again) )*"
)
_VOTES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_I}(?:vote|voting|cast (?:my|a) (?:\w+ )?(?:vote|ballot)) (?:too |again |openly |publicly "
        rf"|with pleasure )?"
        rf"(?:(?:for|in favou?r of|to|on) )?{_OPTION}",
        rf"\bmy (?:\w+ )?vote (?:now |still |therefore |again |then )?(?:goes|is|stays|remains|moves|stands"
        rf"|counts|falls"
        rf"|will go|will be|shall go|shall be|is going|is cast) (?:now |firmly |still |clearly |publicly )?"
        rf"(?:(?:to|for|with|on|in favou?r of|at) )?{_OPTION}",
        rf"\b(?:count me in|count me|put me down|sign me up|mark me down|you can count me in|put me) "
        rf"(?:as (?:a )?(?:vote|voting|yes) )?(?:for|as voting for|on the list for) {_OPTION}",
        rf"{_OPTION} (?:now |still |clearly |definitely |has earned |really )?(?:has|gets|wins|receives"
        rf"|earns|takes|it is and gets) "
        rf"my (?:\w+ )?vote\b",
        rf"(?:{_I}|\blet me )(?:change|changing|switch|switching|move|moving|shift|shifting|give"
        rf"|giving) my (?:\w+ )?vote "
        rf"(?:over |away |now )*(?:from (?:the |a |our )?(?:@\d+@|\w+) )?(?:over )?(?:and vote for|to"
        rf"|for) {_OPTION}",
        rf"^(?:and |here is |that is )?(?:one|a|another) vote (?:from me )?for {_OPTION}(?: from (?:me|my side))?$",
        rf"\bi give {_OPTION} my (?:\w+ )?vote\b",
    )
)
_EXPLICIT = re.compile(r"^\W*(?:my )?(?:final |public )?vote\s*[:=]\s*(?P<rest>[^\n]+?)\W*$", re.MULTILINE)
_WITHDRAWAL = re.compile(rf"{_I}(?:withdraw|withdrawing|retract|retracting|take back|taking back|cancel|abstain)\b")
_MENTION = re.compile(r"@\d+@")
_FEW = 3
_JOINED = re.compile(r"@\d+@ ?(?:or|and|/|&|,) ?(?:the |a |an |our |for )*@\d+@")


@dataclass(frozen=True, slots=True)
class Ballot:
    """What one utterance says about the speaker's own vote.

    Attributes:
        option: the option voted for, or ``None``.
        withdrawn: the speaker takes an earlier vote back.
        problem: why words that look like a vote are none; empty when there is nothing to explain.
        denied: the option that the speaker says not to vote for.
    """

    option: str | None = None
    withdrawn: bool = False
    problem: str = ""
    denied: str | None = None


_SILENT = Ballot()


@lru_cache(maxsize=1024)
def _book(options: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, int]]:
    """A pattern that finds the options' names and their own distinctive words, and which option each one means."""
    meaning = {plain(name): number for number, name in enumerate(options)}
    words = [set(re.findall(r"\w+", plain(name))) for name in options]
    for number, own in enumerate(words):
        others = set().union(*(other for index, other in enumerate(words) if index != number))
        for word in own - others - _WEAK_WORDS:
            if len(word) > 3:
                meaning.setdefault(word, number)
    listed = "|".join(re.escape(name) for name in sorted(meaning, key=len, reverse=True))
    return re.compile(rf"\b(?:{listed})\b"), meaning


def _marked(words: str, options: tuple[str, ...]) -> str:
    """``words`` with every mention of option *k* written ``@k@``; neighbouring mentions of one option become one."""
    pattern, meaning = _book(options)
    marked = pattern.sub(lambda found: f"@{meaning[found.group()]}@", words)
    return re.sub(r"(@\d+@)(?:[ -]\1)+", r"\1", marked)


@lru_cache(maxsize=16384)
def read_ballot(text: str, options: tuple[str, ...]) -> Ballot:
    """Returns what ``text``, said publicly, says about the speaker's vote among ``options``."""
    if not _TRIGGER.search(text):
        return _retraction(text) if may_retract(text) else _SILENT
    acts = [_explicit(found.group("rest"), options) for found in _EXPLICIT.finditer(plain(text))]
    spoken = sentences(text)
    found = acts or [_ballot_of(s.text, s.question, options) if _TRIGGER.search(s.text) else _SILENT for s in spoken]
    chosen = {ballot.option for ballot in found if ballot.option is not None}
    if len(chosen) > 1:
        return Ballot(problem=f"votes for {' and '.join(sorted(chosen))} in one breath")
    if chosen:
        first = next(place for place, ballot in enumerate(found) if ballot.option is not None)
        reason = "" if acts else _spoilt(spoken[first + 1 :], options, chosen)
        return Ballot(problem=reason) if reason else Ballot(option=chosen.pop())
    if any(ballot.withdrawn for ballot in found) or _retraction(text).withdrawn:
        return Ballot(withdrawn=True)
    return next((ballot for ballot in found if ballot.problem), _SILENT)


def _retraction(text: str) -> Ballot:
    """A ballot taken back, when a sentence of ``text`` does so."""
    back = any(taken_back(s.text) and not s.question and not weakness(s.text) for s in sentences(text))
    return Ballot(withdrawn=True) if back else _SILENT


def _spoilt(later: Sequence[Sentence], options: tuple[str, ...], chosen: set[str]) -> str:
    """Why the sentences after a vote leave it none."""
    for sentence in later:
        marked = _marked(sentence.text, options)
        if sentence.question and "@" not in marked and not marked.startswith(("do not", "don't")):
            continue
        reason = _doubt(marked, options, chosen) or ("" if "@" in marked else spoils(marked))
        if reason:
            return reason
    return ""


def _doubt(marked: str, options: tuple[str, ...], chosen: set[str]) -> str:
    """Why words after a vote leave it none, however many they are."""
    words = _CONTRAST.sub("", marked)
    if any(options[int(number)] not in chosen for number in re.findall(r"@(\d+)@", words)):
        return "another option after the vote"
    for pattern in (FRAME, RESERVATION, NEGATION):
        if found := pattern.search(words):
            return f"taken back or reserved ({found.group()!r})"
    return spoils(words) if len(words.split()) > _FEW else ""


def _explicit(rest: str, options: tuple[str, ...]) -> Ballot:
    marked = _CONTRAST.sub("", _marked(rest, options))
    named = set(re.findall(r"@(\d+)@", marked))
    reason = weakness(marked)
    if len(named) == 1 and not reason:
        if not harmless(_MENTION.sub("", marked)):
            return Ballot(problem=f"more beside the vote ({rest[:40]!r})")
        return Ballot(option=options[int(named.pop())])
    return Ballot(problem=reason or f"an explicit vote must name exactly one option, this one names {len(named)}")


def _ballot_of(words: str, question: bool, options: tuple[str, ...]) -> Ballot:
    if question:
        return Ballot(problem="a question")
    marked = _marked(words, options)
    if _WITHDRAWAL.search(marked) and not weakness(marked):
        return Ballot(withdrawn=True)
    found = [match for pattern in _VOTES for match in pattern.finditer(marked)]
    named = {int(match.group(1)) for match in found}
    if not found:
        return _no_vote(marked, options)
    if len(named) > 1 or _JOINED.search(marked):
        return Ballot(problem="several options in one vote")
    chosen = {options[number] for number in named}
    last = max(found, key=lambda match: match.end())
    reason = _weakness_around(marked, found[0]) or _trailing(marked[last.end() :], options, chosen)
    return Ballot(problem=reason, denied=_denied(marked, options)) if reason else Ballot(option=chosen.pop())


def _no_vote(marked: str, options: tuple[str, ...]) -> Ballot:
    if "@" not in marked:
        return _SILENT
    return Ballot(problem="no statement of an own vote", denied=_denied(marked, options))


def _denied(marked: str, options: tuple[str, ...]) -> str | None:
    """The one option that a sentence says its speaker does not vote for."""
    named = set(re.findall(r"@(\d+)@", marked))
    return options[int(named.pop())] if len(named) == 1 and _DENIED.search(marked) else None


def _trailing(tail: str, options: tuple[str, ...], chosen: set[str]) -> str:
    """Why what follows the option in its sentence leaves the vote none."""
    parts = _BOUNDARY.split(_CONTRAST.sub("", tail))
    marks = _BOUNDARY.findall(_CONTRAST.sub("", tail))
    if not harmless(parts[0].strip()):
        return f"more beside the vote ({parts[0].strip()[:40]!r})"
    for mark, part in zip(marks, parts[1:], strict=True):
        if _REASON.search(mark.strip()):
            found = FRAME.search(part)
            return f"a reason that may not be meant ({found.group()!r})" if found else ""
        reason = _doubt(part, options, chosen) or ("" if "@" in part else _interjection(part))
        if reason:
            return reason
    return ""


def _interjection(part: str) -> str:
    words = part.strip()
    return spoils(words) if words else ""


def _weakness_around(marked: str, match: re.Match[str]) -> str:
    """Why the vote is none: conditions and reports anywhere in the sentence, hedges and denials in its own clause."""
    start = max(marked.rfind(mark, 0, match.start() + 1) for mark in (",", ":", " but ", " so ", " - ", " because "))
    ends = [
        marked.find(mark, match.end()) for mark in (",", ":", " but ", " so ", " - ", " because ", " over ", " since ")
    ]
    end = min((position for position in ends if position >= 0), default=len(marked))
    framed = FRAME.search(marked[: match.start()])
    if (
        framed
        and " but " not in marked[framed.end() : match.start()]
        and ", i " not in marked[framed.end() : match.end()]
    ):
        return f"may not be meant ({framed.group()!r})"
    return far_weakness(marked) or near_weakness(marked[max(start, 0) : end])


@dataclass(frozen=True, slots=True)
class Poll:
    """The public votes as they stand.

    Attributes:
        votes: agent id to the option it votes for; agents without a vote are absent.
        cast: every public vote so far as ``(agent, option)``, oldest first.
        problems: what looked like a vote and was none, as ``(agent, reason)``.
    """

    votes: Mapping[str, str]
    cast: tuple[tuple[str, str], ...]
    problems: tuple[tuple[str, str], ...]

    def winner(self, seats: int) -> str | None:
        """The option that more than half of all ``seats`` vote for."""
        for option, count in Counter(self.votes.values()).items():
            if 2 * count > seats:
                return option
        return None


_NO_VOTES = Poll({}, (), ())
_SPOKEN = (ActionType.SPEAK, ActionType.ACTION)


def count_votes(turns: Sequence[Turn], options: tuple[str, ...]) -> Poll:
    """Returns the poll after ``turns``; only what was said to everybody counts."""
    return _reader(options).read(turns)


@lru_cache(maxsize=1024)
def _reader(options: tuple[str, ...]) -> RunningReader[Poll]:
    return RunningReader(_NO_VOTES, partial(_count, options))


def _count(options: tuple[str, ...], poll: Poll, turn: Turn) -> Poll:
    """The poll after one more turn."""
    if turn.action.action_type not in _SPOKEN:
        return poll
    agent, ballot = turn.actor, read_ballot(turn.action.argument, options)
    if ballot is _SILENT:
        return poll
    if turn.action.to:
        return replace(poll, problems=(*poll.problems, (agent, "a private message")))
    if ballot.option is not None:
        votes = {**poll.votes, agent: ballot.option}
        return replace(poll, votes=votes, cast=(*poll.cast, (agent, ballot.option)))
    if ballot.withdrawn:
        return replace(poll, votes={voter: vote for voter, vote in poll.votes.items() if voter != agent})
    denied = ballot.denied is not None and poll.votes.get(agent) == ballot.denied
    votes = {voter: vote for voter, vote in poll.votes.items() if not (denied and voter == agent)}
    return replace(poll, votes=votes, problems=(*poll.problems, (agent, ballot.problem)))


__all__ = ["Ballot", "Poll", "count_votes", "read_ballot"]
