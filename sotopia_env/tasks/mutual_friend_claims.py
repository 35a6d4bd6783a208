"""Reading claims about the mutual friend from free speech.

* A **claim** says, as a statement, that one named person is the mutual friend: "our mutual friend is X", "it must be
  X", "we both know X", "X it is", or the explicit act ``claim: X``.
* A **confirmation** is a claim too: after the partner's latest utterance claimed X, or asked whether X *is the mutual
  friend*, a plain "yes", "that's right" or "I know X too" claims X. After the mere question "do you know X?" it does
  not.
* No claims are: questions (with "right?" too), hedges ("it could be X", "my guess is X"), conditions, denials, reports
  of what somebody said, quoted words, two names in one claim, two different claims in one utterance, and a first name
  that two of the known people share. The reason is kept.
* What follows the name in its clause, or the yes, must be harmless (:mod:`sotopia_env.tasks.asides`) or tell a fact
  about the friend: "X's brother", "I know X from your stories" and "exactly the name I expected" claim nothing.
* A denial ("it is not X", "I don't know X") takes back the speaker's own claim of X, and so does "I take that back".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from sotopia_env.tasks.asides import FRAME, RESERVATION, harmless, may_retract, spoils, taken_back
from sotopia_env.tasks.running import RunningReader
from sotopia_env.tasks.sentence import NEGATION, Sentence, far_weakness, plain, sentences, weakness
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn

_ADVERB = (
    r"(?:(?:now|then|definitely|clearly|surely|certainly|indeed|obviously|in fact|really|of course"
    r"|actually) )?"
)
_BE = rf"(?:is|must be|has to be|has got to be|can only be|is none other than) {_ADVERB}"
_FRIEND = (
    r"(?:(?:mutual|common|shared) (?:friend|acquaintance|contact|connection|person)|friend (?:that )?(?:we"
    r"|you and i) (?:both )?"
    r"(?:share|have in common|have|know)|friend in common|(?:one|person|friend|man|woman) (?:that |who "
    r"|whom )?we both know"
    r"|link between us|connection between us)"
)
_END = r"(?=$|,|:| -| (?:then|for sure|indeed|after all|of course|we both know|who we|whom we|that we)\b)"
_CLAIMS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b(?:our|the|that|your and my|my and your) (?:one |only )?{_FRIEND},? {_BE}(?:called |named )?@",
        rf"@,? {_BE}(?:our|the|that|your and my) (?:one |only )?(?:{_FRIEND}|answer|match"
        rf"|one (?:we are looking for|for both"
        rf" of us|on both (?:our )?lists))\b",
        rf"\bit {_BE}@{_END}",
        rf"\b(?:the answer|the match|our answer|our match|my answer|my final answer) {_BE}@",
        rf"@ (?:must be|has to be|is) the one{_END}",
        r"\bwe (?:both|two both) know @",
        r"\bwe (?:have|share) @ (?:in common|as a (?:mutual |common )?friend)",
        r"@ (?:is on both (?:our )?lists|is a friend of both of us|it is(?=$|,)|must be it\b)",
        r"\bi (?:claim|name|declare|say it is|am naming|will name) @",
        r"\blet us name @",
    )
)
_KNOWS = re.compile(r"\bi (?:also )?know @(?: (?:too|as well)\b)?|@ (?:is|was) (?:also )?my friend(?: too| as well)?\b")
_QUESTION_TAIL = re.compile(
    r"[,:-]?\s*(?:do you agree|don't you agree|would you agree|agreed|agree"
    r"|what do you say)$"
)
_ASSENT = re.compile(
    r"^(?:(?:oh|ah|wow|well|great|wonderful|haha|hey|and)[, ]+)*(?:yes|yeah|yep|yup|exactly|agreed|indeed"
    r"|absolutely|correct|confirmed|bingo"
    r"|that is (?:right|correct|true|it|the one)|you are right|you have got it|i agree|i confirm(?: it"
    r"| that)?|me too|same here"
    r"|of course|definitely|precisely|right you are|that is (?:him|her|them))\b"
)
# A cheap first look: most utterances neither name a friend nor can begin with a yes.
_MAY_ASSENT = re.compile(
    r"[\W_]*(?:(?:oh|ah|wow|well|great|wonderful|haha|hey|and)[, ]+)*(?:yes|yeah|yep|yup|exactly|agreed|indeed"
    r"|absolutely|correct|confirmed|bingo|that|you|i agree|i confirm|me too|same|of course|definitely|precisely"
    r"|right|claim|confirm)\b"
)
_WORD = re.compile(r"[^\W_]+")
_SPOILED = re.compile(
    r"\b(?:but|let me|wait|hold on|check|tell me|what about|how about|though|however|which|who|another"
    r"|different|other|hmm+"
    r"|think|go on|listen|i see|maybe next)\b"
)
_PART = re.compile(r",| - |-- |:|\(|\)|\b(?:and|so|because|since|but|then)\b")
_FACT = re.compile(
    r"(?:(?:i|we|he|she|they|it|@)(?: (?:also|both|really|still|too|have|had|first|did|all|once))* )?"
    r"(?:(?:know|knew|known|met) (?:him|her|them|@|each other)|went to|works? (?:for|at|in|with)|worked (?:for|at|in"
    r"|with)|lives? in|lived in|keeps?|studied|shares?|plays?|sings?|attend\w*|graduated|taught|loves?"
    r"|(?:is|was) (?:(?:my|our|a) (?:\w+ )?(?:friend|colleague|classmate|schoolmate|neighbou?r|flatmate|roommate"
    r"|teammate|pal|buddy)|on (?:my|our|both)(?: our)? lists?$|into|from|the one$))\b"
)
_SECOND_HAND = re.compile(
    r"\b(?:your?s?|stranger|name|mystery|enemy|news|television|tv|stories|story|rumou?rs?|internet|online|only)\b"
)
_ACQUAINTED = re.compile(
    r"(?:very |quite |really )*(?:well )?(?:from (?:school|work|university|college|childhood|home|class|town))?"
)
_AFTER_NAME = re.compile(r",| - |:|\b(?:who|whom|that|because|since|so|and|but|then|we both know|which|as we|i am)\b")
_EXPLICIT = re.compile(r"^\W*(?:claim|confirm)\s*[:=]\s*(?P<rest>[^\n]+?)\W*$", re.MULTILINE)
_RESTS = re.compile(r",| - |:|\b(?:but|so|because|since|therefore|then)\b")


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one utterance says about the mutual friend, before it is set against what went before.

    Attributes:
        claims: people stated to be the mutual friend.
        asks: people of whom it asks whether they are the mutual friend.
        denials: people of whom it says that they are not, or that the speaker does not know them.
        known: people it states to know.
        assents: whether it says yes, to whatever it answers.
        mentions: every person it names.
        problem: why words that look like a claim are none.
        withdrawn: whether it takes back what the speaker said before.
    """

    claims: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    assents: bool = False
    mentions: tuple[str, ...] = ()
    problem: str = ""
    withdrawn: bool = False


_NOTHING = Utterance()


@lru_cache(maxsize=2048)
def _book(people: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern for full and first names, and whom each means; a first name that several share means ``""``."""
    meaning = {plain(name): name for name in people}
    for name in people:
        first = plain(name).split(" ")[0]
        meaning[first] = name if meaning.get(first, name) == name else ""
    listed = "|".join(re.escape(name) for name in sorted(meaning, key=len, reverse=True))
    return re.compile(rf"\b(?:{listed})\b"), meaning


@lru_cache(maxsize=2048)
def _name_words(people: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word for name in people for word in _WORD.findall(plain(name)))


@lru_cache(maxsize=16384)
def read_utterance(text: str, people: tuple[str, ...]) -> Utterance:
    """Returns what ``text`` says about ``people`` (full names)."""
    low = plain(text)
    if _name_words(people).isdisjoint(_WORD.findall(low)) and not _MAY_ASSENT.match(low):
        return _BACK if may_retract(low) and _takes_back(text) else _NOTHING
    pattern, meaning = _book(people)
    found = tuple(dict.fromkeys(meaning[match.group()] for match in pattern.finditer(low)))
    acts = [
        tuple(dict.fromkeys(meaning[name.group()] for name in pattern.finditer(match.group("rest"))))
        for match in _EXPLICIT.finditer(low)
    ]
    if acts:
        named = {name for names in acts for name in names}
        beside = " ".join(pattern.sub("", match.group("rest")) for match in _EXPLICIT.finditer(low))
        if len(named) != 1 or "" in named or weakness(low) or not harmless(beside.strip()):
            return Utterance(mentions=found, problem="an explicit claim must name exactly one known person")
        return Utterance(claims=tuple(named), mentions=found)
    spoken = sentences(text)
    assents = _assents(spoken, pattern, len(found))
    back = may_retract(low) and _takes_back(text)
    if not found:
        return _BACK if back else Utterance(assents=True) if assents else _NOTHING
    parts = [_read_sentence(sentence, people) for sentence in spoken]
    claims = tuple(dict.fromkeys(name for part in parts for name in part.claims))
    denials = tuple(name for part in parts for name in part.denials)
    problem = next((part.problem for part in parts if part.problem), "")
    if len(claims) > 1:
        claims, problem = (), f"claims {' and '.join(claims)} in one breath"
    elif claims and (reason := _spoilt(spoken, parts, pattern, meaning)):
        claims, problem = (), reason
    elif claims and claims[0] in denials:
        claims, problem = (), "a claim and its denial in one breath"
    return Utterance(
        claims,
        tuple(name for part in parts for name in part.asks),
        denials,
        tuple(name for part in parts for name in part.known),
        assents and not problem,
        found,
        problem,
        back,
    )


_BACK = Utterance(withdrawn=True)


def _takes_back(text: str) -> bool:
    return any(taken_back(s.text) and not s.question and not weakness(s.text) for s in sentences(text))


def _spoilt(
    spoken: Sequence[Sentence], parts: Sequence[Utterance], pattern: re.Pattern[str], meaning: dict[str, str]
) -> str:
    """Why what is said after a claim leaves it none."""
    first = next(place for place, part in enumerate(parts) if part.claims)
    name = parts[first].claims[0]
    for sentence in spoken[first + 1 :]:
        words = pattern.sub(lambda match: "" if meaning[match.group()] == name else "@", sentence.text)
        if found := FRAME.search(words) or RESERVATION.search(words):
            return f"taken back or reserved ({found.group()!r})"
        if not sentence.question and (reason := spoils(words)):
            return reason
    return ""


def _assents(spoken: Sequence[Sentence], pattern: re.Pattern[str], named: int) -> bool:
    """Whether the utterance begins with a yes, and all that stands beside it is harmless or a fact about the friend."""
    if not spoken or named > 1 or spoken[0].question:
        return False
    start = _ASSENT.match(spoken[0].text)
    if start is None or not _beside_yes(pattern.sub("@", spoken[0].text[start.end() :])):
        return False
    for sentence in spoken:
        bare = pattern.sub("@", sentence.text)
        if _SPOILED.search(bare) or weakness(bare.replace("of course", "")):
            return False
    return all(
        _beside_yes(pattern.sub("@", sentence.text.removeprefix("how "))) for sentence in spoken[1:]
    ) and not any(sentence.question and not sentence.text.startswith("how ") for sentence in spoken)


def _beside_yes(words: str) -> bool:
    """Whether every part of ``words`` leaves a yes beside it what it is."""
    return all(harmless(part) or _is_fact(part) for part in map(str.strip, _PART.split(words)))


def _is_fact(part: str) -> bool:
    if "@" in part and (_claims(part) or (_KNOWS.search(part) and _acquainted(part))):
        return True
    return _FACT.match(part) is not None and not (
        FRAME.search(part) or RESERVATION.search(part) or _SECOND_HAND.search(part)
    )


def _read_sentence(sentence: Sentence, people: tuple[str, ...]) -> Utterance:
    pattern, meaning = _book(people)
    names = tuple(dict.fromkeys(meaning[match.group()] for match in pattern.finditer(sentence.text)))
    if not names:
        return _NOTHING
    if sentence.question:
        return _read_question(sentence.text, names, pattern)
    if far := far_weakness(sentence.text):
        return Utterance(problem=far) if _claims(pattern.sub("@", sentence.text)) else _NOTHING
    whole = pattern.sub("@", sentence.text)
    if (found := FRAME.search(whole)) and _claims(whole) and not NEGATION.search(whole):
        return Utterance(problem=f"may not be meant ({found.group()!r})")
    if len(names) == 1 and not weakness(whole):
        return _read_statement(whole, names[0])
    parts = [_read_clause(part, pattern, meaning) for part in _RESTS.split(sentence.text)]
    return Utterance(
        claims=tuple(name for part in parts for name in part.claims),
        denials=tuple(name for part in parts for name in part.denials),
        known=tuple(name for part in parts for name in part.known),
        problem=next((part.problem for part in parts if part.problem), ""),
    )


def _read_question(text: str, names: tuple[str, ...], pattern: re.Pattern[str]) -> Utterance:
    statement = _QUESTION_TAIL.sub("", text)
    if statement != text and len(names) == 1 and not weakness(statement):
        return _read_statement(pattern.sub("@", statement), names[0])
    marked = pattern.sub("@", text)
    asked = re.search(_FRIEND, marked) or re.search(
        rf"\b(?:is|could|can|might|would) (?:it|that|this) (?:be )?@|\bit {_BE}@", marked
    )
    if asked and len(names) == 1 and names[0]:
        return Utterance(asks=names, problem="a question")
    return Utterance(problem="a question")


def _read_statement(marked: str, name: str) -> Utterance:
    """A whole sentence about one person that is weakened by nothing."""
    claimed = _claims(marked)
    if not name:
        return Utterance(problem="a first name that several people have") if claimed else _NOTHING
    if claimed:
        return Utterance(claims=(name,))
    if any(pattern.search(marked) for pattern in _CLAIMS):
        return Utterance(problem="more beside the name than a claim")
    return Utterance(known=(name,)) if _KNOWS.search(marked) and _acquainted(marked) else _NOTHING


def _acquainted(marked: str) -> bool:
    """Whether the speaker knows the person at first hand, as far as the words behind the name tell."""
    found = _KNOWS.search(marked)
    parts = [part.strip() for part in _AFTER_NAME.split(marked[found.end() :])] if found else [""]
    if not (harmless(parts[0]) or _ACQUAINTED.fullmatch(parts[0])):
        return False
    return all(harmless(part) or _is_fact(part) for part in parts[1:])


def _read_clause(text: str, pattern: re.Pattern[str], meaning: dict[str, str]) -> Utterance:
    names = tuple(dict.fromkeys(meaning[match.group()] for match in pattern.finditer(text)))
    marked = pattern.sub("@", text)
    if not names:
        return _NOTHING
    if len(names) > 1:
        return Utterance(problem="several people in one claim") if _claims(marked) else _NOTHING
    if NEGATION.search(marked):
        return Utterance(denials=tuple(name for name in names if name), problem="a denial")
    if reason := weakness(marked):
        return Utterance(problem=reason)
    return _read_statement(marked.strip(), names[0])


def _claims(marked: str) -> bool:
    """Whether ``marked`` claims the person ``@``, with nothing behind it that makes it another claim."""
    return any(
        (found := pattern.search(marked)) is not None and _ends_well(marked[found.end() :]) for pattern in _CLAIMS
    )


def _ends_well(tail: str) -> bool:
    """Whether what follows a claim in its sentence leaves it one."""
    parts = _AFTER_NAME.split(tail)
    first = parts[0].strip()
    if not (harmless(first) or _ACQUAINTED.fullmatch(first)):
        return False
    return not any(RESERVATION.search(part) or ("@" not in part and _cuts(part.strip())) for part in parts[1:])


def _cuts(part: str) -> bool:
    return len(part.split()) == 1 and bool(spoils(part))


@dataclass(frozen=True, slots=True)
class Ledger:
    """Who has claimed whom.

    Attributes:
        standing: per agent, the claim it has not taken back or replaced.
        claims: every claim so far as ``(agent, name)``, oldest first, repetitions included.
        denials: ``(agent, name)`` for everybody an agent denied.
        pending: what the latest speaker proposed, as ``(agent, name)``; what a plain yes of the other answers.
        asked_in: the round of ``pending``; in simultaneous order nobody can answer what was said in the same round.
        problems: what looked like a claim and was none, as ``(agent, reason)``.
        solved: whether both agents' standing claims were the ``answer`` at some moment.
    """

    standing: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    denials: tuple[tuple[str, str], ...] = ()
    pending: tuple[str, str] | None = None
    asked_in: int = -1
    problems: tuple[tuple[str, str], ...] = ()
    solved: bool = False

    def claim_of(self, agent: str) -> str | None:
        """The agent's standing claim."""
        return next((name for holder, name in self.standing if holder == agent), None)


def keep_ledger(turns: Sequence[Turn], people: tuple[str, ...], answer: str | None = None) -> Ledger:
    """Returns the claims made in ``turns``; with ``answer`` it stops where both sides have named it."""
    return _reader(people, answer).read(turns)


@lru_cache(maxsize=1024)
def _reader(people: tuple[str, ...], answer: str | None) -> RunningReader[Ledger]:
    return RunningReader(_NO_CLAIMS, partial(_follow, people, answer))


_NO_CLAIMS = Ledger()
_SPOKEN = (ActionType.SPEAK, ActionType.ACTION)


def _follow(people: tuple[str, ...], answer: str | None, ledger: Ledger, turn: Turn) -> Ledger:
    """The ledger after one more turn."""
    if turn.action.action_type not in _SPOKEN or ledger.solved:
        return ledger
    said = read_utterance(turn.action.argument, people)
    unheard = turn.veiled and ledger.asked_in == turn.round
    if said is not _NOTHING:
        heard = None if unheard else ledger.pending
        ledger = _enter(replace(ledger, pending=heard, asked_in=turn.round), turn.actor, said)
    elif ledger.pending is not None and ledger.pending[0] != turn.actor and not unheard:
        ledger = replace(ledger, pending=None)
    solved = len(ledger.standing) == 2 and all(name == answer for _, name in ledger.standing)
    return replace(ledger, solved=True) if solved else ledger


def _enter(ledger: Ledger, agent: str, said: Utterance) -> Ledger:
    claim = said.claims[0] if said.claims else _confirmed(ledger, agent, said)
    standing = tuple(
        (holder, name)
        for holder, name in ledger.standing
        if holder != agent or not (claim or said.withdrawn or name in said.denials)
    )
    proposed = claim or (said.asks[0] if len(set(said.asks)) == 1 else None)
    return Ledger(
        standing=(*standing, (agent, claim)) if claim else standing,
        claims=(*ledger.claims, (agent, claim)) if claim else ledger.claims,
        denials=(*ledger.denials, *((agent, name) for name in said.denials)),
        pending=(agent, proposed) if proposed else None,
        asked_in=ledger.asked_in,
        problems=(*ledger.problems, (agent, said.problem)) if said.problem and not claim else ledger.problems,
    )


def _confirmed(ledger: Ledger, agent: str, said: Utterance) -> str | None:
    """Whom the utterance confirms, given what the other side proposed in its latest turn."""
    if ledger.pending is None or ledger.pending[0] == agent:
        return None
    name = ledger.pending[1]
    if said.known == (name,) and not said.denials and not said.asks:
        return name
    return name if said.assents and set(said.mentions) <= {name} else None


__all__ = ["Ledger", "Utterance", "keep_ledger", "read_utterance"]
