"""What may stand beside an assent, a vote or a claim, and what takes it back.

"Deal, and thank you!" is a deal; "Deal, pending references." is not, and there are more ways to spoil an assent than
a list could name. So the list is of what is harmless: thanks, cheers, farewells, compliments, handshakes, and the
signing and paying that any deal brings. It is a list of *words*: an aside is harmless when all its words are. Whatever
else stands beside an assent leaves it unclear.
"""

from __future__ import annotations

import re
from functools import lru_cache

_CHEERS = (
    "thanks thank thankful you very much so a lot many appreciate appreciated grateful pleasure pleased happy glad"
    " delighted thrilled excited great good nice lovely wonderful excellent perfect perfectly fantastic brilliant fair"
    " splendid super cool awesome amazing fine okay ok yes yeah yep yup sure right alright all well then now oh ah wow"
    " hm hmm hooray hurray yay cheers congratulations congrats welcome sir madam friend friends dear folks mate"
    " everyone everybody indeed absolutely definitely exactly certainly truly really quite just too also honestly"
    " gladly happily finally too hello hi hey goodbye bye farewell best wishes luck kind generous gracious reasonable"
    " sensible right correct true small world smart clear please"
)
_GRAMMAR = (
    "it is this that these are am be i we us me my our your yours the an for with of on in at to and as by will shall"
    " let have has had both together what such"
)
_DOINGS = (
    "doing business working work works worked go sounds sound looks settled settle settles bargain price offer"
    " deal compromise choice decision solution outcome arrangement agreement agree agreed team company aboard board"
    " day evening morning afternoon week weekend enjoy enjoyed joining join talking meeting meet dealing"
    " shake hands hand sign signed contract papers paperwork write down today cash pay money home"
)
_QUESTIONS = "where when how who can could do should would may next pick collect up come start begin ready"
_ASKING = frozenset(_QUESTIONS.split())
_WORDS = frozenset(f"{_CHEERS} {_GRAMMAR} {_DOINGS}".split())
# Turns of phrase with words that are not harmless everywhere.
_PHRASES = re.compile(
    r"\b(?:see you(?: (?:soon|there|then|around|later|on|in))?|(?:i |we )?(?:am |are )?look(?:ing)? forward to"
    r"(?: (?:it|that|this|working|meeting|seeing|joining|starting|having|our|you|with))*"
    r"|take (?:good |great )?care(?: of (?:it|them|yourself))?|(?:i |we )?(?:can not|can't|cannot) wait"
    r"(?: to (?:start|begin|join|get started|see|try|use|work)(?: (?:it|you|with you|working))?)?"
    r"|no (?:problem|worries|hard feelings|doubt)|why not|of course"
    r"|look(?= (?:very |really )?(?:good|great|lovely|nice|wonderful|perfect))|work(?:ed|s)? (?:(?:it|this"
    r"|that|things) )?out"
    r"|well done|(?:fair|good) enough|you (?:have )?convinced me|you win|in advance"
    r"|you (?:do )?drive a hard bargain|that is that|from (?:me|my side)|(?:i|we) (?:are|am) (?:on|in)"
    r"|(?:with|from) (?:all )?my (?:whole )?heart|with pleasure|my final (?:word|answer|vote|decision)|(?:so )?that is"
    r" final|i stand by (?:it|that)|i stick (?:to|with) (?:it|that)|as well|so be it|for sure|once (?:more|again)|after"
    r" all|(?:that|it|this) (?:was|has been)|(?:could|were able to|managed to|have) (?=work|settle|agree|meet)"
    r"|(?:glad|happy|pleased) (?:that )?we (?:could )?(?:found|find) (?:it|this|common ground|a (?:fair )?(?:deal|price"
    r"|solution|compromise|way))|i think(?= (?:it|that|this) is)|that i can live with|i can live with (?:it|that|this)"
    r"|i (?:will |shall )?(?:send|prepare|draw up|get|bring)(?: you)? the (?:contract|papers|paperwork|cash|money))\b"
)
_PHRASE_WORDS = frozenset(["looking", *re.findall("[a-z']+", _PHRASES.pattern)])
_NO_WORDS = frozenset[str]()
_TENTATIVE = re.compile(
    r"\b(?:for now|for today|as (?:to|for)|on my|all you|at my|(?:kind|sort) of|luck with|that is what)\b"
)
_PLAIN = re.compile(r"[a-z' ,.!?;:()\"-]*")
_WORD = re.compile(r"[a-z']+")

FRAME = re.compile(
    r"\b(?:hate|hates|hated|loathe|dread|detest|despise|fool\w*|silly|stupid|crazy|insane|mad|idiot\w*|moron\w*"
    r"|nuts|lunatic|ridiculous|absurd|laughable|nightmare\w*|unfair|outrage\w*|worst|terrible|awful|horrible|tragedy"
    r"|disaster|shame|regret\w*|forbid\w*|pretend\w*|imagine|imagining|picture this|dream\w*|dead body|opposite day"
    r"|parallel|another (?:life|world|universe)|in a world|fantasy|joke|jokes|joking|kidding|kill|fail|die|lie|lies"
    r"|lying|liar|steal|evil|sarcas\w*|irony|ironic\w*|hell|pigs|refuse|would say|nobody|no one|never|void"
    r"|invalid|null|tests?|fake|reject\w*|protest"
    r"|parody|prank|trick\w*|fell for|fingers|not (?:serious|really)|veto\w*|undecided|confidence|fallback)\b"
)
"""Words that judge or pretend: what stands in a sentence with one of them may be the contrary of what is meant."""
RETRACTION = re.compile(
    r"\b(?:(?:actually|wait|sorry|hmm*|well|oh|hang on|hold on|no)[, ]+(?:no|not)\b|no wait|never ?mind"
    r"|(?:on|upon) second thou?ghts?|forget (?:it|that|this|what i said|my vote|me|about)|psych|sike|gotcha|as if"
    r"|(?:just )?(?:kidding|joking)|scratch|strike (?:that|it|my)|cancel\w*|disregard|ignore|or not|not really"
    r"|i (?:really )?mean[t]?|make (?:that|it)|wanted to say|should have said|meant to say|supposed to|correction|oops"
    r"|typo|mistake|misspoke|(?:the )?other way (?:a)?round|reverse that|vice versa|chang(?:e|ed|ing) my mind"
    r"|(?:take|taking|took) (?:that|it|this|my \w+|everything|all)(?: of (?:it|that))? back|take back|withdraw\w*"
    r"|retract\w*|revok\w*|rescind\w*|fell for|fooled|tricked|fingers)\b"
)
"""Words by which speakers correct themselves or take back what they just said."""
RESERVATION = re.compile(
    r"\b(?:pending|plus|minus|less|without|subject to|contingent|except\w*|excluding|provided|providing|assuming"
    r"|depending|barring|apart from|other than|but not|only (?:for|as|if|when|in|on)|under protest|in principle"
    r"|terms and conditions|reserv\w+)\b"
)
"""Words that hang an assent on something else."""
_TAKEN_BACK = re.compile(
    r"^\W*(?:(?:sorry|wait|oh|hmm+|hm|well|actually|ok|okay|no|please|and|so|but|then|now|hey|everyone|folks)\b[, ]*)*"
    r"(?:i (?:(?:now|hereby|must|have|will|want to|would like to|am|therefore|also|have to|do) )*"
    r"(?:(?:take|taking|took|taken) (?:that|it|this|back|my \w+|what i said)|withdraw\w*|retract\w*|revok\w*|rescind\w*"
    r"|cancel\w*|chang(?:e|ed|ing) my mind|no longer (?:vote|support|stand|claim))"
    r"|(?:scratch|strike|cancel|forget|disregard|ignore|withdraw|retract|erase|delete) (?:that|it|this|my \w+"
    r"|what i (?:just )?said)|take (?:that|it|my \w+) back|count me out|put me down for nothing)\b"
)
_STEMS = ("tak", "tract", "withdr", "cancel", "scratch", "strike", "chang", "forget", "revok", "rescind", "count me")
_MORE_STEMS = ("ignore", "disregard", "erase", "delete", "longer", "put me")


def may_retract(text: str) -> bool:
    """A cheap first look for :func:`taken_back`, at an utterance in any case."""
    low = text.lower()
    return any(stem in low for stem in _STEMS) or any(stem in low for stem in _MORE_STEMS)


SHORT = 3
"""Words of a sentence that is a mere interjection; one that is not harmless ("Psych!") is taken for a retraction."""


@lru_cache(maxsize=8192)
def harmless(words: str, asked: bool = False) -> bool:
    """Whether ``words`` add nothing to an assent, a vote or a claim beside which they stand.

    Args:
        words: lower case, contractions spelt out; nothing at all is harmless.
        asked: whether they are a question: "where do I sign" is harmless as one.
    """
    if _PLAIN.fullmatch(words) is None or _TENTATIVE.search(words):
        return False
    strange = {word for word in _WORD.findall(words) if word not in _WORDS}
    if strange - _PHRASE_WORDS - (_ASKING if asked else _NO_WORDS):  # most asides end here, at little cost
        return False
    if strange:
        strange = {word for word in _WORD.findall(_PHRASES.sub(" ", words)) if word not in _WORDS}
    return not strange or (asked and strange <= _ASKING)


def taken_back(words: str) -> bool:
    """Whether a sentence (no question) takes back what its speaker said before."""
    return _TAKEN_BACK.search(words) is not None


def spoils(words: str, asked: bool = False) -> str:
    """Returns why a sentence after a vote, an offer or a claim spoils it (``""`` when it does not)."""
    found = RETRACTION.search(words)
    if found and not asked:
        return f"taken back in the same breath ({found.group()!r})"
    if not asked and len(words.split()) <= SHORT and not harmless(words):
        return f"more beside it ({words[:40]!r})"
    return ""


__all__ = ["FRAME", "RESERVATION", "RETRACTION", "harmless", "may_retract", "spoils", "taken_back"]
