"""``mutual_friend``: two people with private lists of friends identify the only person on both lists.

Source: the MutualFriends tasks among the scenarios of SOTOPIA (arXiv 2310.11667, appendix C.2).

Each seat has friends with a full name and attributes. Exactly one friend has the same name *and* the same attributes
on both lists. The task is solved when both seats have claimed that friend; each seat has two tries (:data:`TRIES`). A
side gets 1 for a solved task and 0 otherwise, minus 0.25 (:data:`COST`) for each of its wrong claims.

**Levels.** ``easy``: 4 friends, 2 attributes; some friends share attributes with the mutual one. ``medium``: 6 friends,
3 attributes; each list also has another friend with the mutual friend's first name. ``hard``: 8 friends, 4 attributes;
and one *namesake* is on both lists, with the same full name but different attributes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.outcomes import ClaimsRules, OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.worth import ClaimsWorth
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import pick
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Character, Seat


class _MutualFriendTexts(FamilyTexts):
    """Names and attributes of friends, and templates of contexts and goals.

    Attributes:
        first_names: first names of friends.
        last_names: last names of friends.
        attributes: values, by attribute.
        facts: templates that state an attribute of a friend, by attribute.
        contexts: texts that open the context.
        rules: texts that state the rules.
        goals: templates of goals.
        lists: templates that introduce a seat's list.
        shares: templates that tell the partner about a friend.
    """

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    attributes: dict[str, tuple[str, ...]]
    facts: dict[str, str]
    contexts: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]
    lists: tuple[str, ...]
    shares: tuple[str, ...]


texts = read_texts(_MutualFriendTexts, "mutual_friend")
NAME = "mutual_friend"
TRIES = 2
COST = 0.25
"""Cost of a wrong claim to the side that made it."""
_FRIENDS = {"easy": 4, "medium": 6, "hard": 8}
_ATTRIBUTES = {"easy": 2, "medium": 3, "hard": 4}
_SHARED_ATTRIBUTE = 0.3  # probability that another friend gets the mutual friend's value of an attribute


@dataclass(frozen=True, slots=True)
class Friend:
    """A person on a list: full name, and values by attribute."""

    name: str
    facts: Mapping[str, str]

    def describe(self) -> str:
        """Returns name and attributes in words."""
        return f"{self.name} ({', '.join(_facts(self.facts))})"

    def record(self) -> dict[str, str]:
        """Returns name and attributes as one flat object."""
        return {"name": self.name, **self.facts}


def _facts(facts: Mapping[str, str]) -> list[str]:
    return [texts.facts[kind].format(value=value) for kind, value in facts.items() if kind in texts.facts]


class _Drawer:
    """Draws friends with unique names around one mutual friend."""

    def __init__(self, rng: random.Random, level: str, characters: Sequence[Character]) -> None:
        # No friend shares a name with a character: words that name a friend must not mean a participant.
        character_names = {name for c in characters for name in (c.first_name, c.last_name)}
        self._rng = rng
        self._firsts = rng.sample(
            [name for name in texts.first_names if name not in character_names], 2 * _FRIENDS[level] + 2
        )
        self._lasts = rng.sample(
            [name for name in texts.last_names if name not in character_names], 2 * _FRIENDS[level] + 2
        )
        self.attributes = tuple(rng.sample(tuple(texts.attributes), _ATTRIBUTES[level]))
        self.mutual = Friend(self.name(), {kind: rng.choice(texts.attributes[kind]) for kind in self.attributes})

    def name(self, first: str | None = None) -> str:
        return f"{first or self._firsts.pop()} {self._lasts.pop()}"

    def other(self, name: str | None = None, unlike: Mapping[str, str] | None = None) -> Friend:
        """Returns a friend who differs from the mutual friend, and from ``unlike``, in at least one attribute."""
        unlike = unlike or self.mutual.facts
        while True:
            facts = {
                kind: self.mutual.facts[kind]
                if self._rng.random() < _SHARED_ATTRIBUTE
                else self._rng.choice(texts.attributes[kind])
                for kind in self.attributes
            }
            if facts not in (self.mutual.facts, unlike):
                return Friend(name or self.name(), facts)


def _draw_lists(rng: random.Random, level: str, drawer: _Drawer) -> tuple[list[Friend], list[Friend]]:
    lists = ([drawer.mutual], [drawer.mutual])
    if level != "easy":
        for side in lists:
            # A friend with the mutual friend's first name, so that a first name is not enough.
            side.append(drawer.other(drawer.name(drawer.mutual.name.split(" ")[0])))
    if level == "hard":
        # A common full name with different attributes, so that a full name is not enough.
        namesake = drawer.other()
        lists[0].append(namesake)
        lists[1].append(drawer.other(namesake.name, namesake.facts))
    for side in lists:
        side.extend(drawer.other() for _ in range(_FRIENDS[level] - len(side)))
        rng.shuffle(side)
    return lists


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    characters = draw_characters(rng, 2)
    drawer = _Drawer(rng, level, characters)
    lists = _draw_lists(rng, level, drawer)
    # Sorted, so that the order of the public candidates tells nothing about the lists.
    names = tuple(sorted({friend.name for side in lists for friend in side}))
    return Draft(
        characters=characters,
        context=f"{rng.choice(texts.contexts)} {rng.choice(texts.rules)}",
        seats=tuple(_seat(rng, lists[i], drawer.attributes, characters[1 - i].name) for i in range(2)),
        outcome=OutcomeSpec(
            protocol=ClaimsRules(candidates=names, answer=drawer.mutual.name, tries=TRIES),
            worth=(ClaimsWorth(right=1.0, wrong=-COST),) * 2,
        ),
        shared_data={"attributes": list(drawer.attributes)},
        tags=("cooperative",),
    )


def _seat(rng: random.Random, friends: Sequence[Friend], attributes: Sequence[str], other: str) -> Seat:
    return Seat(
        goals=(rng.choice(texts.goals).format(other=other),),
        hints=(rng.choice(texts.hints).format(attributes=" and ".join(attributes)),),
        private_info=rng.choice(texts.lists).format(friends="; ".join(friend.describe() for friend in friends)),
        private_data={"role": "finder", "friends": [friend.record() for friend in friends]},
    )


def beliefs(observation: Observation) -> dict[str, float]:
    """Returns the probability that each friend of the seat is the mutual one, given the partner's words.

    This is how scripted seats read plain facts: a friend whom the partner names with the same attributes is likely,
    with different attributes impossible. The result affects a scripted seat's words and claims, never the outcome.

    Args:
        observation: observation of the seat.

    Returns:
        Probabilities by name; they sum to 1, or are all 0 if every friend is ruled out.
    """
    claims = observation.table.claims if observation.table is not None else None
    wrong = claims.wrong.get(observation.agent, ()) if claims is not None else ()
    weights = {name: 0.0 if name in wrong else _weight(observation, facts) for name, facts in _friends(observation)}
    total = sum(weights.values())
    return {name: weight / total if total else 0.0 for name, weight in weights.items()}


def _friends(observation: Observation) -> list[tuple[str, Mapping[str, str]]]:
    data: Any = observation.briefing.private_data
    return [(friend["name"], friend) for friend in data["friends"]]


def _weight(observation: Observation, friend: Mapping[str, str]) -> float:
    utterances = (turn.action.argument for turn in observation.turns if turn.actor != observation.agent)
    return math.prod(_evidence(friend, words) for words in utterances if friend["name"] in words)


def _evidence(friend: Mapping[str, str], words: str) -> float:
    """The factor by which a partner's ``words``, which name ``friend``, change the odds of ``friend``."""
    matches = 0
    for kind, value in friend.items():
        if value in words:
            matches += 1
        elif any(other in words for other in texts.attributes.get(kind, ())):
            return 0.0
    # Large against the prior odds of at most 1 to 7, so that one such utterance decides; words with all facts count
    # twice as much as words that leave some out, which may still mean a namesake.
    return 60.0 if matches == len(friend) else 30.0


def _share(observation: Observation, seed: int) -> str | None:
    """Words with all facts of the first friend who is not ruled out and whom this seat has not mentioned yet."""
    odds = beliefs(observation)
    own = [turn.action.argument for turn in observation.turns if turn.actor == observation.agent]
    for name, friend in _friends(observation):
        if odds[name] > 0 and not any(name in words for words in own):
            facts = conjunction(_facts(friend))
            return pick(texts.shares, seed).format(name=name, first=name.split(" ")[0], facts=facts)
    return None


FAMILY = Family(NAME, _draw, texts.phrases, _share)
"""The family; the module's docstring states its rules."""
