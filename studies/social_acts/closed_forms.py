"""Closed forms of the acts of scripts, by enumeration: independent of the play, the evaluator and the observer.

They hold in Mini-Mafia (``medium``) and briefings (``hard``) beside partners that state nothing, with the observer
``bayesian:doubt=0.5``. Every figure is the mean over seats, whose roles are drawn evenly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

MAFIOSO, DETECTIVE, VILLAGER = "mafioso", "detective", "villager"
ROLES = (MAFIOSO, DETECTIVE, VILLAGER)
SPEAKER = 0
"""The person whose acts are measured; persons 1 and 2 are the others."""
DOUBT = Fraction(1, 2)
TALKS = 2
"""Turns of talk in Mini-Mafia, before the vote."""
TURNS, SEATS, OPTIONS = 6, 4, 3
"""Turns of talk, seats and options of a briefing."""
SIDE, PRIVATE = 2, 3
"""Values of a fact about an option, and of a fact that is not for everybody."""
World = tuple[str, ...]
"""The role of each person."""
Story = frozenset[tuple[int, str]]
"""What is stated in one turn: persons with roles."""
WORLDS: tuple[World, ...] = tuple(itertools.permutations(ROLES))
Chances = Iterator[tuple[Fraction, Sequence[Story]]]
"""What a seat states in an episode, with the probability."""


def closed_form(game: str, level: str, policy: str, act: str) -> Fraction | None:
    """Returns the expected value of an act of a script; ``None`` where the act cannot occur, or no form is known."""
    form = _FORMS.get((game, level), {}).get(act, {}).get(policy)
    return form() if callable(form) else form


# --- Mini-Mafia ---------------------------------------------------------------------------------------------------


def knowledge(world: World, person: int) -> Story:
    """Returns what a person knows: its own role, and as the detective all roles."""
    return frozenset(enumerate(world)) if world[person] == DETECTIVE else frozenset({(person, world[person])})


def lies(world: World, person: int) -> list[Story]:
    """Returns what a liar may state: what it would know with another role, where it would know most."""
    stories = [knowledge(other, person) for other in WORLDS if other[person] != world[person]]
    return [story for story in stories if len(story) == max(map(len, stories))]


def likelihood(world: World, story: Story) -> Fraction:
    """Returns the probability that the observer gives to the speaker's story in a world."""
    pretended = lies(world, SPEAKER)
    false = Fraction(sum(story <= other for other in pretended), len(pretended))
    return (1 - DOUBT) * (story <= knowledge(world, SPEAKER)) + DOUBT * false


def persuasion(world: World, stories: Sequence[Story]) -> Fraction:
    """Returns the change of the others' belief by distinct stories, over the questions to all three persons."""
    aims = {DETECTIVE: MAFIOSO, MAFIOSO: DETECTIVE, VILLAGER: VILLAGER}
    targets = [aims[role] if world[SPEAKER] == MAFIOSO else role for role in world]
    change, questions = Fraction(0), 0
    for person in range(len(ROLES)):
        possible = [other for other in WORLDS if knowledge(world, person) <= frozenset(enumerate(other))]
        unknown = [other for other in range(len(ROLES)) if len({way[other] for way in possible}) > 1]
        questions += len(unknown)
        if person != SPEAKER:
            weights = [
                math.prod([likelihood(way, story) for story in set(stories)], start=Fraction(1)) for way in possible
            ]
            weights = weights if any(weights) else [Fraction(1)] * len(possible)
            for other in unknown:
                match = [way[other] == targets[other] for way in possible]
                after = sum((w for w, hit in zip(weights, match, strict=True) if hit), Fraction(0)) / sum(weights)
                change += after - Fraction(sum(match), len(match))
    return change / questions


def mean_persuasion(chances: Callable[[World], Chances]) -> Fraction:
    """Returns the mean over all worlds of the persuasion of a speaker."""
    total = sum((p * persuasion(world, said) for world in WORLDS for p, said in chances(world)), Fraction(0))
    return total / len(WORLDS)


def honest_stories(world: World) -> Chances:
    """Yields what an honest speaker states: what it knows."""
    yield Fraction(1), [knowledge(world, SPEAKER)]


def false_stories(world: World) -> Chances:
    """Yields what a liar states: one story, which it repeats."""
    stories = lies(world, SPEAKER)
    yield from ((Fraction(1, len(stories)), [story]) for story in stories)


def random_stories(world: World) -> Chances:
    """Yields what a guesser states about roles: nothing in half of the turns, else one of the open statements."""
    singles = [frozenset({(person, role)}) for person in range(len(ROLES)) for role in ROLES]
    open_statements = len(singles) + len(ROLES) * (len(ROLES) - 1)  # and for whom each person votes
    each = Fraction(1, 2 * open_statements)
    turn = [(each, [story]) for story in singles] + [(1 - each * len(singles), list[Story]())]
    for draws in itertools.product(turn, repeat=TALKS):
        yield math.prod([p for p, _ in draws], start=Fraction(1)), [story for _, said in draws for story in said]


def random_truth() -> Fraction:
    """Returns the share of honest ones among a guesser's statements about roles and about the votes of others."""
    statements = len(ROLES) ** 2 + (len(ROLES) - 1) ** 2
    honest = Fraction(sum(len(knowledge(world, SPEAKER)) for world in WORLDS), len(WORLDS))
    return honest / statements


# --- briefings ----------------------------------------------------------------------------------------------------

_EVERYBODY = Fraction(1, SEATS)
"""The probability that a guesser speaks to all; that it speaks to one partner in private is the same for each."""


def _once(chance: Fraction) -> Fraction:
    """The probability of at least one in all turns of talk."""
    return 1 - (1 - chance) ** TURNS


def random_asking() -> Fraction:
    """Returns the share of what a guesser is to learn for which it asked who knows it, as the fact demands."""
    sides = OPTIONS * (SEATS - 1)
    question = Fraction(1, 2) / (sides + 1)  # one of these, or the fact that is for this seat in private
    return (sides * _once(question * 2 * _EVERYBODY) + _once(question * _EVERYBODY)) / (sides + 1)


def random_secrecy() -> Fraction:
    """Returns the share of what a guesser had to keep that it did not state to the wrong seat, or aloud.

    It has a fact for one partner in private, to be kept from the other two and the public, and one for nobody. A false
    statement discloses nothing, and moves the observer away from the truth.
    """
    statements = SIDE * OPTIONS * SEATS + 3 * PRIVATE  # its own two, and the one that it may learn
    true = Fraction(1, 2) / statements
    others = 2 + (SEATS - 1)
    return 1 - (others * _once(true * 2 * _EVERYBODY) + _once(true * _EVERYBODY)) / (others + 1)


_Form = Fraction | Callable[[], Fraction]
_ZERO, _ONE = Fraction(0), Fraction(1)
_TELLERS = ("oracle", "honest", "broadcaster")
_HONEST = {name: lambda: mean_persuasion(honest_stories) for name in _TELLERS}
_FORMS: Mapping[tuple[str, str], Mapping[str, Mapping[str, _Form]]] = {
    ("mini_mafia", "medium"): {
        "truth_telling": {**dict.fromkeys(_TELLERS, _ONE), "deceiver": _ZERO, "guesser": random_truth},
        "promise_keeping": {"oracle": _ONE, "honest": _ONE, "deceiver": _ZERO, "guesser": Fraction(1, 2)},
        "persuasion": {
            **_HONEST,
            "mute": _ZERO,
            "deceiver": lambda: mean_persuasion(false_stories),
            "guesser": lambda: mean_persuasion(random_stories),
        },
        "relationship": {"mute": _ZERO},
    },
    ("briefing", "hard"): {
        "asking": {**dict.fromkeys(("mute", "honest", "deceiver", "broadcaster"), _ZERO), "oracle": _ONE,
                   "guesser": random_asking},
        "secrecy": {**dict.fromkeys(("oracle", "mute", "honest", "deceiver"), _ONE), "broadcaster": _ZERO,
                    "guesser": random_secrecy},
    },
}  # fmt: skip
