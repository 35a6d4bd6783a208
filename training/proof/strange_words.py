"""What others say, in words out of place and words that are none: so that a tiny model learns to read past them.

A real base model has met every word, and a thing said in a thousand ways; it is not put off by one more. A model of
less than a million parameters that has read one family's sentences takes a new one for something else altogether: it
names a wrong price every second time, or takes an offer for a reason to agree. So in what it hears, in the base model's
talk, in the episodes it clones and from its partners in multi-turn GRPO, words are replaced at random, prices left
alone: with words of all families or with letters that are no word. What the model says itself, what happened and its
scores are as they were.
"""

from __future__ import annotations

import random
import re
import string
from dataclasses import dataclass, replace
from functools import cache

from sotopia_env.tasks.texts import bargaining as bargaining_words
from sotopia_env.tasks.texts import division as division_words
from sotopia_env.tasks.texts import group_decision as group_decision_words
from sotopia_env.tasks.texts import hiring as hiring_words
from sotopia_env.tasks.texts import mutual_friend as mutual_friend_words
from sotopia_env.world.action import ActionType
from sotopia_env.world.episode import Episode, RecordedTurn

_SAID = (
    *(*bargaining_words.HINTS, *bargaining_words.OFFERS, *bargaining_words.ACCEPTS),
    *(*division_words.HINTS, *division_words.OFFERS, *division_words.ACCEPTANCES),
    *(*group_decision_words.HINTS, *group_decision_words.VOTES, *group_decision_words.JOINING),
    *(*hiring_words.HINTS, *hiring_words.OFFERS, *hiring_words.ACCEPTS),
    *(*mutual_friend_words.HINTS, *mutual_friend_words.CLAIMS, *mutual_friend_words.CONFIRMATIONS),
    *mutual_friend_words.SHARES,
)
"""What may be said in any family, and what its rules say about it; names of placeholders count as words."""
_WORD = re.compile(r"[A-Za-z']+")
_KEPT, _KNOWN = 0.3, 0.9
"""The share of words that stay, and of words of the dictionary among those that come in their place."""
_AFTER, _BEFORE = 0.3, 0.2
"""How often words are added after and before."""


@dataclass(frozen=True)
class StrangeWords:
    """Replaces words of what is heard, the same way whenever it is asked about the same episode.

    Attributes:
        share: of the utterances that are changed.
    """

    share: float

    def heard_by(self, episode: Episode, seat: str) -> Episode:
        """Returns an episode as one seat may have heard it; its own words and all numbers are as they were."""
        turns = tuple(item if item.turn.actor == seat else self._heard(item, episode.key) for item in episode.turns)
        return episode.model_copy(update={"turns": turns})

    def _heard(self, item: RecordedTurn, key: str) -> RecordedTurn:
        action, rng = item.turn.action, random.Random(f"{key}:{item.turn.index}")
        if action.action_type is not ActionType.SPEAK or rng.random() >= self.share:
            return item
        changed = replace(action, argument=strangely(action.argument, rng))
        return item.model_copy(update={"turn": replace(item.turn, action=changed)})


def strangely(text: str, rng: random.Random) -> str:
    """Returns a text with most words replaced, its numbers as they were, and sometimes more words beside it."""
    changed = _WORD.sub(lambda found: _instead(found[0], rng), text)
    drawn = rng.random()
    if drawn < _AFTER:
        return f"{changed} {_more(rng)}."
    return f"{_more(rng)} {changed}" if drawn < _AFTER + _BEFORE else changed


def _more(rng: random.Random) -> str:
    return " ".join(_instead("", rng) for _ in range(rng.randint(2, 6)))


def _instead(word: str, rng: random.Random) -> str:
    if word and rng.random() < _KEPT:
        return word
    if rng.random() < _KNOWN:
        other = rng.choice(dictionary())
    else:
        other = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 7)))
    return other.capitalize() if word[:1].isupper() else other


@cache
def dictionary() -> tuple[str, ...]:
    """The words in which any family is negotiated, in lower case and in alphabetical order.

    The single words of the tests' phrasings are among them, as a real base model has met every word: out of place,
    beside others that are as likely, and never as a phrasing.
    """
    return tuple(sorted({word.lower() for text in _SAID for word in _WORD.findall(text)}))


__all__ = ["StrangeWords", "dictionary", "strangely"]
