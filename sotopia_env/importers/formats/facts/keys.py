"""Keys of lists that name facts in other words than the facts themselves, and what is said about each.

A key names a fact if the two are equal but for case, blanks and Unicode form. Otherwise it names the only fact of which
it contains every word, or all of whose words contain it (*by words*: ``the total budget`` and ``Total budget``). A key
that fits no fact, or several, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sotopia_env.foundation.errors import nearest_name
from sotopia_env.outcomes.amounts import fold

_MEND = "to count it, write a key of pre_interaction_knowledge"


@dataclass(slots=True)
class KeyMatches:
    """The facts that the keys of a record name.

    Attributes:
        notes: a sentence for every key that is left out or read by its words, with the rule before the colon.
        matches: number of keys that name a fact.
        strays: the fields and keys that name none, in order.
    """

    notes: list[str] = field(default_factory=list)
    matches: int = 0
    strays: list[tuple[str, str]] = field(default_factory=list)

    def facts(self, where: str, keys: Iterable[str], facts: Iterable[str]) -> list[str]:
        """Returns the facts that ``keys`` name.

        Args:
            where: path of the list in the record.
            keys: the entries of the list.
            facts: the facts that the list can be about.
        """
        candidates = list(facts)
        matches = [fact for key in keys if (fact := self._fact(where, key, candidates)) is not None]
        self.matches += len(matches)
        return list(dict.fromkeys(matches))

    def _fact(self, where: str, key: str, facts: list[str]) -> str | None:
        same = [fact for fact in facts if fold(fact) == fold(key)]
        alike = same or [fact for fact in facts if _words(fact) <= _words(key) or _words(key) <= _words(fact)]
        name = where.rpartition(".")[2]
        if len(alike) != 1:
            self.strays.append((where, key))
            nearest = nearest_name(key, facts)
            fits = f"fits {len(alike)} facts" if alike else "names no fact"
            close = f", such as {nearest!r}" if nearest else ""
            self.notes.append(f"{name} (unmatched): {key!r} {fits} and is left out; {_MEND}{close}")
            return None
        if not same:
            self.notes.append(f"{name} (by words): {key!r} is read as {alike[0]!r}")
        return alike[0]


def _words(text: str) -> frozenset[str]:
    """The words of a text without punctuation."""
    return frozenset("".join(character if character.isalnum() else " " for character in fold(text)).split())
