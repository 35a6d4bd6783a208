"""``mutual_friend``: two people with private lists of friends find the one person who stands on both.

Source: the MutualFriends tasks among the scenarios of SOTOPIA (arXiv 2310.11667, appendix C.2).

Each seat has friends with a full name and attributes; exactly one friend has the same name *and* the same attributes
on both lists. The task is solved when both seats have claimed that friend; each has two tries (:data:`TRIES`). A side
gets 1 when it is solved, else 0, minus 0.25 (:data:`COST`) for every wrong claim of its own.

**Levels.** ``easy``: 4 friends, 2 attributes; others share attributes with the friend. ``medium``: 6 friends, 3
attributes; on each list somebody else also shares the friend's first name. ``hard``: 8 friends, 4 attributes; and
one *namesake* stands on both lists with the same full name but other attributes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.outcomes import ClaimsRules, ClaimsWorth, OutcomeSpec
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import listed, pick
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Character, Seat


class _Texts(FamilyTexts):
    """Names and attributes of friends, and how contexts and goals are put.

    Attributes:
        attributes: values, by attribute.
        facts: what is said of a friend, by attribute.
        lists: what a seat's own list is called.
        shares: words that tell the partner about a friend.
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


texts = read_texts(_Texts, "mutual_friend")
NAME = "mutual_friend"
TRIES = 2
COST = 0.25
"""What a wrong claim costs the side that made it."""
_FRIENDS = {"easy": 4, "medium": 6, "hard": 8}
_ATTRIBUTES = {"easy": 2, "medium": 3, "hard": 4}
_SHARED_ATTRIBUTE = 0.3  # chance that another friend has an attribute of the mutual one


@dataclass(frozen=True, slots=True)
class Friend:
    """Somebody on a list: full name, and attribute values by attribute."""

    name: str
    facts: Mapping[str, str]

    def describe(self) -> str:
        """Name and attributes in words."""
        return f"{self.name} ({', '.join(_facts(self.facts))})"

    def record(self) -> dict[str, str]:
        """Name and attributes as one flat object."""
        return {"name": self.name, **self.facts}


def _facts(facts: Mapping[str, str]) -> list[str]:
    return [texts.facts[kind].format(value=value) for kind, value in facts.items() if kind in texts.facts]


class _Drawer:
    """Draws people with unused names around one mutual friend."""

    def __init__(self, rng: random.Random, level: str, characters: Sequence[Character]) -> None:
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
        """Somebody who shares some attributes with the mutual friend, and at least one not."""
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
            side.append(drawer.other(drawer.name(drawer.mutual.name.split(" ")[0])))
    if level == "hard":
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
    """Returns how likely each own friend is the mutual one, given what the partner has said; the numbers sum to 1.

    A scripted seat's reading of plain facts: told with the same attributes makes a friend likely, with others rules
    out. It decides what the seat says and claims, never what the episode comes to.
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
    """How a partner's ``words``, which name ``friend``, change the odds that both mean the same person."""
    matches = 0
    for kind, value in friend.items():
        if value in words:
            matches += 1
        elif any(other in words for other in texts.attributes.get(kind, ())):
            return 0.0
    return 60.0 if matches == len(friend) else 30.0


def _share(observation: Observation, seed: int) -> str | None:
    """All facts of the first friend on the list who is not ruled out and of whom this seat has not told yet."""
    odds = beliefs(observation)
    own = [turn.action.argument for turn in observation.turns if turn.actor == observation.agent]
    for name, friend in _friends(observation):
        if odds[name] > 0 and not any(name in words for words in own):
            facts = listed(_facts(friend))
            return pick(texts.shares, seed).format(name=name, first=name.split(" ")[0], facts=facts)
    return None


FAMILY = Family(NAME, _draw, texts.phrases, _share)
"""The family; see the module's text for its rules."""
