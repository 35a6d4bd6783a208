"""What others say, in words that nobody has met: so that a tiny model learns to read past them.

A real base model has met a thing said in a thousand ways and is not put off by one more. A model of half a million
parameters that has read one family's sentences takes a new one for something else altogether: it names a wrong price
every second time, or takes an offer for a reason to agree. So in what it hears, in the base model's talk and in the
episodes it clones, words are replaced at random, prices left alone: with other words of the talk, out of place, or with
letters that are no word. What the model says itself, what happened and its scores are as they were.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sotopia_env.action import ActionType
from sotopia_env.episode import Episode, RecordedTurn

_WORD = re.compile(r"[A-Za-z']+")
_KEPT, _KNOWN = 0.3, 0.5
"""The share of words that stay, and of words of the talk among those that come in their place."""
_AFTER, _BEFORE = 0.3, 0.2
"""How often words are added after and before."""


@dataclass(frozen=True)
class StrangeWords:
    """Replaces words of what is heard, the same way whenever it is asked about the same episode.

    Attributes:
        words: of the talk, as often as they occur there.
        share: of the utterances that are changed.
    """

    words: Sequence[str]
    share: float

    @classmethod
    def of(cls, episodes: Iterable[Episode], share: float) -> StrangeWords:
        """Takes the words from what is said in some episodes."""
        said = (item.turn.action.argument for episode in episodes for item in episode.turns)
        return cls([word for text in said for word in _WORD.findall(text) if len(word) > 1], share)

    def heard_by(self, episode: Episode, seat: str) -> Episode:
        """Returns an episode as one seat may have heard it; its own words and all numbers are as they were."""
        turns = tuple(item if item.turn.actor == seat else self._heard(item, episode.key) for item in episode.turns)
        return episode.model_copy(update={"turns": turns})

    def _heard(self, item: RecordedTurn, key: str) -> RecordedTurn:
        action, rng = item.turn.action, random.Random(f"{key}:{item.turn.index}")
        if action.action_type is not ActionType.SPEAK or rng.random() > self.share:
            return item
        changed = replace(action, argument=self._utterance(action.argument, rng))
        return item.model_copy(update={"turn": replace(item.turn, action=changed)})

    def _utterance(self, text: str, rng: random.Random) -> str:
        changed = _WORD.sub(lambda found: self._instead(found[0], rng), text)
        drawn = rng.random()
        if drawn < _AFTER:
            return f"{changed} {self._more(rng)}."
        return f"{self._more(rng)} {changed}" if drawn < _AFTER + _BEFORE else changed

    def _more(self, rng: random.Random) -> str:
        return " ".join(self._instead("", rng) for _ in range(rng.randint(2, 6)))

    def _instead(self, word: str, rng: random.Random) -> str:
        if word and rng.random() < _KEPT:
            return word
        if rng.random() < _KNOWN:
            return rng.choice(self.words)
        letters = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9)))
        return letters.capitalize() if word[:1].isupper() else letters


__all__ = ["StrangeWords"]
