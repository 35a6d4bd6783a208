"""``mutual_friend``: two people with private lists of friends find the one person who stands on both.

Source: the MutualFriends tasks among the scenarios of SOTOPIA (arXiv 2310.11667, appendix C.2).

**Rule.** Each seat has friends with a full name and attributes; exactly one friend has the same name *and* the same
attributes on both lists. The task is solved at the first moment when the standing claims of both sides name that
friend (:mod:`sotopia_env.tasks.mutual_friend_claims` says what a claim is); later talk changes nothing.

**Payoffs.** Each side gets 1 when the task is solved, else 0, minus 0.25 (:data:`PENALTY`) for every wrong person that
this side claimed before that, each person counted once and also when the claim was taken back.

**Levels.** ``easy``: 4 friends, 2 attributes; others share attributes with the friend. ``medium``: 6 friends, 3
attributes; on each list somebody else also shares the friend's first name. ``hard``: 8 friends, 4 attributes; and
one *namesake* stands on both lists with the same full name but other attributes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sotopia_env.tasks.family import ReferencePoints, SeatProblem, Terms, check_request, outcome_parameters, seat_people
from sotopia_env.tasks.mutual_friend_claims import Ledger, keep_ledger, read_utterance
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.sentence import plain
from sotopia_env.tasks.texts import mutual_friend as words
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import OutcomeResult
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Character, OutcomeSpec, Scenario, Seat, Task

NAME = "mutual_friend"
PENALTY = 0.25
"""What a wrong claim costs the side that made it."""
_FRIENDS = {"easy": 4, "medium": 6, "hard": 8}
_ATTRIBUTES = {"easy": 2, "medium": 3, "hard": 4}
_SHARED_ATTRIBUTE = 0.3  # chance that a distractor has an attribute of the mutual friend


class InformationProblem(SeatProblem, Protocol):
    """A seat's problem that is solved by telling each other facts, not by haggling."""

    def phrase_share(self, seed: int) -> str | None:
        """Words that tell a fact of the own private data not told before, or ``None`` when all has been told."""
        ...


@dataclass(frozen=True, slots=True)
class Friend:
    """Somebody on a list: full name, and attribute values by attribute."""

    name: str
    facts: Mapping[str, str]

    def describe(self) -> str:
        """Name and attributes in words."""
        return f"{self.name} ({', '.join(words.FACTS[kind].format(value=v) for kind, v in self.facts.items())})"

    def record(self) -> dict[str, str]:
        """Name and attributes as one flat object."""
        return {"name": self.name, **self.facts}


class _Drawer:
    """Draws people with unused names around one mutual friend."""

    def __init__(self, rng: random.Random, level: str, characters: Sequence[Character]) -> None:
        taken = {name for c in characters for name in (c.first_name, c.last_name)}
        self._rng = rng
        self._firsts = rng.sample([name for name in words.FIRST_NAMES if name not in taken], 2 * _FRIENDS[level] + 2)
        self._lasts = rng.sample([name for name in words.LAST_NAMES if name not in taken], 2 * _FRIENDS[level] + 2)
        self.attributes = tuple(rng.sample(tuple(words.ATTRIBUTES), _ATTRIBUTES[level]))
        self.mutual = Friend(self.name(), {kind: rng.choice(words.ATTRIBUTES[kind]) for kind in self.attributes})

    def name(self, first: str | None = None) -> str:
        return f"{first or self._firsts.pop()} {self._lasts.pop()}"

    def other(self, name: str | None = None, unlike: Mapping[str, str] | None = None) -> Friend:
        """Somebody who shares some attributes with the mutual friend, and at least one not."""
        unlike = unlike or self.mutual.facts
        while True:
            facts = {
                kind: self.mutual.facts[kind]
                if self._rng.random() < _SHARED_ATTRIBUTE
                else self._rng.choice(words.ATTRIBUTES[kind])
                for kind in self.attributes
            }
            if facts not in (self.mutual.facts, unlike):
                return Friend(name or self.name(), facts)


def _draw_lists(rng: random.Random, level: str, drawer: _Drawer) -> tuple[tuple[Friend, ...], tuple[Friend, ...]]:
    lists: tuple[list[Friend], list[Friend]] = ([drawer.mutual], [drawer.mutual])
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
    return tuple(lists[0]), tuple(lists[1])


def _seat(rng: random.Random, friends: Sequence[Friend], attributes: Sequence[str], other: str) -> Seat:
    listed = "; ".join(friend.describe() for friend in friends)
    return Seat(
        goals=(rng.choice(words.GOALS).format(other=other),),
        hints=(rng.choice(words.HINTS).format(attributes=" and ".join(attributes)),),
        private_info=rng.choice(words.LISTS).format(friends=listed),
        private_data={"role": "finder", "friends": [friend.record() for friend in friends]},
    )


@dataclass(frozen=True, slots=True)
class _Spec:
    """What the outcome specification holds: everybody on the lists, and the mutual friend's name."""

    people: tuple[str, ...]
    friend: str


def _spec(task: Task) -> _Spec:
    key = (NAME, "spec")
    if key not in task.memo:
        given = outcome_parameters(task, NAME)
        task.memo[key] = _Spec(tuple(given["people"]), given["friend"])
    found: _Spec = task.memo[key]
    return found


_REFERENCE = ReferencePoints((1.0, 1.0), (0.0, 0.0), ((1.0, 1.0),), (1.0, 1.0), 2.0)


class MutualFriend:
    """The family ``mutual_friend``; see the module's text for its rules."""

    @property
    def name(self) -> str:
        """``"mutual_friend"``."""
        return NAME

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns the task number ``index`` of the sequence fixed by ``seed``; equal arguments, equal task.

        Raises:
            InvalidValueError: the level is unknown, or index or seed is negative.
        """
        rng = check_request(NAME, index, seed, level)
        characters = draw_characters(rng, 2)
        drawer = _Drawer(rng, level, characters)
        lists = _draw_lists(rng, level, drawer)
        people = tuple(dict.fromkeys(friend.name for side in lists for friend in side))
        scenario = Scenario(
            id=f"{NAME}-{level}-{seed}-{index}",
            context=f"{rng.choice(words.CONTEXTS)} {rng.choice(words.RULES)}",
            seats=tuple(_seat(rng, lists[i], drawer.attributes, characters[1 - i].name) for i in range(2)),
            shared_data={"family": NAME, "attributes": list(drawer.attributes)},
            source=f"procedural family {NAME}",
            tags=(NAME, "cooperative"),
            outcome=OutcomeSpec(family=NAME, parameters={"friend": drawer.mutual.name, "people": list(people)}),
        )
        return seat_people(rng, scenario, characters)

    def read(self, task: Task, turns: Sequence[Turn]) -> OutcomeResult:
        """Returns whether the friend was found; terms are ``{"friend": name}`` when both named the same person."""
        spec = _spec(task)
        ledger = keep_ledger(turns, spec.people, spec.friend)
        payoffs = [float(ledger.solved) - PENALTY * _wrong(ledger, agent, spec.friend) for agent in task.agents]
        named = [ledger.claim_of(agent) for agent in task.agents]
        terms = {"friend": named[0]} if named[0] is not None and named[0] == named[1] else {}
        return self.reference(task).result(ledger.solved, _reason(ledger, task, spec.friend), terms, payoffs)

    def reference(self, task: Task) -> ReferencePoints:
        """Returns the reference points: 1 for each side when solved, 0 for each when not."""
        return _REFERENCE

    def problem(self, observation: Observation) -> InformationProblem:
        """Returns the seat's problem: which friend to name, and what to tell."""
        return FriendProblem(observation)


def _wrong(ledger: Ledger, agent: str, friend: str) -> int:
    return len({name for holder, name in ledger.claims if holder == agent and name != friend})


def _reason(ledger: Ledger, task: Task, friend: str) -> str:
    if ledger.solved:
        return f"both named {friend}, the mutual friend"
    named = [f"{agent} named {ledger.claim_of(agent) or 'nobody'}" for agent in task.agents]
    doubts = "; ".join(f"{agent}: {problem}" for agent, problem in ledger.problems[-3:])
    return f"{' and '.join(named)}; the mutual friend is {friend}" + (
        f"; not read as claims: {doubts}" if doubts else ""
    )


class FriendProblem:
    """A finder's problem, from its observation alone: its own list, and what was said.

    The worth of naming somebody is ``p - PENALTY * (1 - p)``, where ``p`` is how likely that person is the mutual
    friend given what the partner has told: a name with the same attributes makes it likely, with other attributes or
    a denial impossible.
    """

    __slots__ = ("_agent", "_friends", "_ledger", "_odds", "_people", "_turns")

    def __init__(self, observation: Observation) -> None:
        """Reads the own friends and the claims so far out of ``observation``."""
        data: Any = observation.briefing.private_data
        self._agent = observation.agent
        self._friends: list[Mapping[str, str]] = data["friends"]
        self._people = tuple(friend["name"] for friend in self._friends)
        self._turns = observation.turns
        self._ledger = keep_ledger(self._turns, self._people)
        self._odds: dict[str, float] | None = None

    def _likelihood(self, name: str) -> float:
        if self._odds is None:
            weights = {friend["name"]: self._weight(friend) for friend in self._friends}
            total = sum(weights.values())
            self._odds = {key: weight / total if total else 0.0 for key, weight in weights.items()}
        return self._odds.get(name, 0.0)

    def _weight(self, friend: Mapping[str, str]) -> float:
        name = friend["name"]
        if any(holder != self._agent and denied == name for holder, denied in self._ledger.denials):
            return 0.0
        weight = 1.0
        for turn in self._turns:
            said = turn.action.argument
            if (
                turn.action.action_type is not ActionType.SPEAK
                or name not in read_utterance(said, self._people).mentions
            ):
                continue
            if turn.actor == self._agent:
                weight *= 0.7  # told before, and the partner has not jumped at it
            else:
                weight *= _evidence(friend, plain(said))
        claimed = any(holder != self._agent and named == name for holder, named in self._ledger.standing)
        return weight * (20.0 if claimed else 1.0)

    def candidates(self) -> Sequence[tuple[Terms, float]]:
        """The own friends as ``{"friend": name}`` with the worth of naming them, best first."""
        ranked = sorted(self._people, key=lambda name: -self._likelihood(name))
        return [({"friend": name}, self.value({"friend": name})) for name in ranked]

    def value(self, terms: Terms) -> float:
        """Expected payoff of naming ``terms["friend"]``: 1 when certainly right, ``-PENALTY`` when certainly wrong."""
        likelihood = self._likelihood(terms["friend"])
        return likelihood - PENALTY * (1 - likelihood)

    def incoming(self) -> Terms | None:
        """The partner's standing claim of one of this seat's friends, unless this seat claims or denied the same."""
        own = self._ledger.claim_of(self._agent)
        for holder, name in self._ledger.standing:
            if holder != self._agent and name != own and (self._agent, name) not in self._ledger.denials:
                return {"friend": name}
        return None

    def outgoing(self) -> Sequence[Terms]:
        """This seat's own claims so far, oldest first."""
        return [{"friend": name} for holder, name in self._ledger.claims if holder == self._agent]

    def settled(self) -> bool:
        """Whether both sides' standing claims name the same person, right or wrong."""
        named = {name for _, name in self._ledger.standing}
        return len(self._ledger.standing) == 2 and len(named) == 1

    def phrase_offer(self, terms: Terms, seed: int) -> str:
        """A claim of ``terms``."""
        return words.CLAIMS[seed % len(words.CLAIMS)].format(name=terms["friend"])

    def phrase_accept(self, terms: Terms, seed: int) -> str:
        """A confirmation of the partner's claim of ``terms``."""
        return words.CONFIRMATIONS[seed % len(words.CONFIRMATIONS)].format(name=terms["friend"])

    def phrase_share(self, seed: int) -> str | None:
        """All facts of the first friend on the list who is not ruled out and of whom this seat has not told yet."""
        told = {
            name
            for turn in self._turns
            if turn.actor == self._agent
            for name in read_utterance(turn.action.argument, self._people).mentions
        }
        for friend in self._friends:
            if friend["name"] not in told and self._likelihood(friend["name"]) > 0:
                return _share(friend, seed)
        return None


def _evidence(friend: Mapping[str, str], said: str) -> float:
    """How the partner's words ``said``, which name ``friend``, change the odds that they mean the same person."""
    matches = 0
    for kind, value in friend.items():
        if kind == "name":
            continue
        if plain(value) in said:
            matches += 1
        elif any(plain(other) in said for other in words.ATTRIBUTES.get(kind, ())):
            return 0.0
    return 60.0 if matches == len(friend) - 1 else 4.0


def _share(friend: Mapping[str, str], seed: int) -> str:
    facts = [words.FACTS[kind].format(value=value) for kind, value in friend.items() if kind != "name"]
    told = f"{', '.join(facts[:-1])} and {facts[-1]}" if len(facts) > 1 else facts[0]
    name = friend["name"]
    return words.SHARES[seed % len(words.SHARES)].format(name=name, first=name.split(" ")[0], facts=told)


FAMILY = MutualFriend()
"""The one instance of the family."""

__all__ = ["FAMILY", "PENALTY", "Friend", "FriendProblem", "InformationProblem", "MutualFriend"]
