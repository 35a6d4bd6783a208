"""The list of offensive words, and a fast matcher.

The list is that of the package ``better_profanity``. The package's own matcher, which also tries spelling variants such
as ``sh1t``, is not used because it takes about 20 ms per text. Only exact words and phrases of the list match, in lower
case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sotopia_env.foundation.errors import EvaluationError

_ORDINARY_TEXT = """
breasts busty club drunk dummy enlargement erect erection erotic facial fat fondle foobar fubar gay gays gigolo god
gonads hell hemp heroin herpes hitler hiv homey hooch hookah hump humped hymen inbred incest jerked junkie junky kill
knob len leper lesbians lmao loin loins lust maxi menses menstruate menstruation meth molest murder naked napalm
nappy nazi nazism nipple nude nudes omg opiate opium oral orally organ orgasm orgasmic orgasms ovary ovum ovums
paddy panties panty pasty pawn pcp pee penetrate penetration penis peyote playboy pms porn pornography pot potty
prostitute prude pubic pubis racy rape raped rapist rectal rectum rectus reefer reich revue rum rump sadism sandbar
scantily screw screwed seaman seamen seduce semen sex sexual slave slope snatch sniper snuff sodom sperm steamy
stoned strip stroke suck sucked sucking tampon tawdry testes testicle testis thrust tinkle tramp transsexual undies
unwed urinal urine uterus vagina valium viagra virgin vixen vodka vomit voyeur vulgar vulva wad weed whiz willies
willy womb woody wtf
"""
ORDINARY_WORDS = frozenset(_ORDINARY_TEXT.split())
"""Words of the list with an everyday sense (food, medicine, law, identity), which are not counted."""


@dataclass(frozen=True, slots=True)
class ToxicWords:
    """The list, prepared for matching.

    Attributes:
        words: the single words.
        phrases: the phrases by their first words.
        triggers: all words and the first words of all phrases.
    """

    words: frozenset[str]
    phrases: dict[str, tuple[str, ...]]
    triggers: frozenset[str]

    def matches(self, words: list[str], names: Iterable[str] = ()) -> list[str]:
        """Returns the words and phrases of the list in ``words``, without ``names``, in alphabetical order."""
        # True for most utterances, and much cheaper than building the text for phrases.
        if self.triggers.isdisjoint(words):
            return []
        hits = set(self.words.intersection(words).difference(names))
        text = f" {' '.join(words)} "
        starts = self.phrases.keys() & set(words)
        return sorted(hits | {phrase for start in starts for phrase in self.phrases[start] if f" {phrase} " in text})


@cache
def toxic_words() -> ToxicWords:
    """Reads the word list, in the first evaluation and not at import.

    Raises:
        EvaluationError: the installed ``better_profanity`` has no word list at the expected path.
    """
    entries = {line.strip().lower() for line in _path().read_text(encoding="utf-8").splitlines()}
    single = {entry for entry in entries if entry and " " not in entry and "*" not in entry}
    phrases: dict[str, tuple[str, ...]] = {}
    for phrase in sorted(entry for entry in entries if " " in entry):
        first = phrase.split()[0]
        phrases[first] = (*phrases.get(first, ()), phrase)
    words = frozenset(single - ORDINARY_WORDS)
    return ToxicWords(words, phrases, words | phrases.keys())


def _path() -> Path:
    # Importing the package would build its matcher; its data file can be located without importing it.
    spec = find_spec("better_profanity")
    path = Path(spec.origin).with_name("profanity_wordlist.txt") if spec and spec.origin else None
    if path is None or not path.is_file():
        raise EvaluationError("social rules: expected the word list of the package better_profanity, found none")
    return path
