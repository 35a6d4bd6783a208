"""``mini_mafia``: three people of whom one did it, one knows it and one knows nothing talk twice and vote in secret.

Source: Mini-Mafia (arXiv 2509.23023). Its night is fixed (the mafioso killed one of four, and the detective looked at
the mafioso), so that an episode is its day: two rounds of talk and one vote of the three who are left, nine turns. Who
gets the most votes is arrested, and a lot decides a tie. The town (detective and villager) gets 1 if that is the
mafioso, the mafioso gets 1 if it is somebody else. Only words decide, because roles cannot be shown.

**Levels.** ``easy``: roles can be shown, which is proof. ``medium``: the game of the source. ``hard``: the mafioso also
knows who the detective is. :func:`town_chance` enumerates the chance of the town for seats that vote by what they know.

**Languages.** ``mini_mafia-es`` and ``mini_mafia-zh`` are the same tasks in Spanish and in Chinese, for the same
seeds; the frame of observations remains English, and people are not described.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial

from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import BallotRules, OutcomeSpec
from sotopia_env.outcomes.facts import Deal, Facts, Variable
from sotopia_env.outcomes.worth import FactsWorth
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.world.scenario import Character, Seat


class _Setting(Record):
    """The names of the three roles (hidden, informed, plain), and what happens to the one who is chosen."""

    roles: tuple[str, str, str]
    contexts: tuple[str, ...]
    verdict: str


class _MafiaTexts(FamilyTexts):
    """Settings, and templates of rules and goals; and the names of the variables that belong to a person."""

    role_name: str
    vote_name: str
    settings: dict[str, _Setting]
    rules: tuple[str, ...]
    levels: dict[str, str]
    hidden_goals: tuple[str, ...]
    informed_goals: tuple[str, ...]
    plain_goals: tuple[str, ...]


texts = read_texts(_MafiaTexts, "mini_mafia")
NAME = "mini_mafia"
SEATS = 3
TALKS = 2
HIDDEN, INFORMED, PLAIN = range(3)
"""Indices of the roles: the mafioso, the detective and the villager."""


def _draw(texts: _MafiaTexts, rng: random.Random, index: int, level: str) -> Draft:
    *characters, victim = draw_characters(rng, SEATS + 1)
    setting = texts.settings[rng.choice(tuple(texts.settings))]
    names = [character.name for character in characters]
    words = {**dict(zip(("hidden", "informed", "plain"), setting.roles, strict=True)), "verdict": setting.verdict}
    holders = rng.sample(range(SEATS), SEATS)  # role to seat
    roles = {seat: role for role, seat in enumerate(holders)}
    context = rng.choice(setting.contexts).format(victim=victim.name, people=texts.enumeration(names))
    goals = (texts.hidden_goals, texts.informed_goals, texts.plain_goals)
    return Draft(
        characters=tuple(characters),
        context=f"{context} {rng.choice(texts.rules).format(**words)}{texts.levels[level].format(**words)}",
        seats=tuple(
            Seat(
                goals=(rng.choice(goals[roles[seat]]).format(**words),),
                hints=(rng.choice(texts.hints),),
                private_data={"role": setting.roles[roles[seat]]},
            )
            for seat in range(SEATS)
        ),
        outcome=_outcome(names, [texts.role_name.format(name=name) for name in names], roles, setting.roles),
        facts=_facts(texts, characters, roles, setting.roles, level),
        shared_data={"roles": dict(zip(("hidden", "informed", "plain"), setting.roles, strict=True))},
        tags=("mixed",),
        max_turns=(TALKS + 1) * SEATS,
    )


def role_of(name: str) -> str:
    """Returns the name of the variable that is the role of a person."""
    return texts.role_name.format(name=name)


def _outcome(
    names: Sequence[str], variables: Sequence[str], roles: Mapping[int, int], labels: Sequence[str]
) -> OutcomeSpec:
    # What the worth of the town says is true whoever it is, so that reading it tells nothing.
    town = FactsWorth(facts={role: {labels[HIDDEN]: {name: 1.0}} for role, name in zip(variables, names, strict=True)})
    worths = []
    for seat, (role, name) in enumerate(zip(variables, names, strict=True)):
        others = {other: 1.0 for other in names if other != name}
        hidden = FactsWorth(facts={role: {labels[HIDDEN]: others}})
        worths.append(hidden if roles[seat] == HIDDEN else town)
    rules = BallotRules(options=tuple(names), secret=True, ties="lot", opens=TALKS, own=False)
    return OutcomeSpec(protocol=rules, worth=tuple(worths))


def _facts(
    texts: _MafiaTexts, characters: Sequence[Character], roles: Mapping[int, int], labels: Sequence[str], level: str
) -> Facts:
    names = [character.name for character in characters]
    hidden = next(seat for seat, role in roles.items() if role == HIDDEN)
    scapegoat = next(seat for seat, role in roles.items() if role == INFORMED)
    dealt = tuple(
        Variable(
            name=texts.role_name.format(name=name),
            options=tuple(labels),
            value=labels[roles[seat]],
            kind="role",
            of=f"agent_{seat}",
            evidence=level == "easy",
            aims={f"agent_{hidden}": labels[HIDDEN if seat == scapegoat else INFORMED if seat == hidden else PLAIN]},
        )
        for seat, name in enumerate(names)
    )
    votes = tuple(
        Variable(
            name=texts.vote_name.format(name=name),
            options=tuple(other for other in names if other != name),
            kind="choice",
            of=f"agent_{seat}",
        )
        for seat, name in enumerate(names)
    )
    informs: dict[str, tuple[str, ...]] = {labels[INFORMED]: (labels[HIDDEN],)}
    if level == "hard":
        informs[labels[HIDDEN]] = (labels[INFORMED],)
    deal = Deal(variables=tuple(variable.name for variable in dealt), values=tuple(sorted(labels)), informs=informs)
    return Facts(variables=(*dealt, *votes), deals=(deal,))


def town_chance(votes: Sequence[Iterable[int]]) -> Fraction:
    """Returns the exact chance that the mafioso is arrested, by enumeration of all votes.

    Args:
        votes: for the mafioso, the detective and the villager (0, 1 and 2), the persons for whom each may vote, each
            with equal chance.
    """
    ballots = list(itertools.product(*map(tuple, votes)))
    total = Fraction(0)
    for ballot in ballots:
        counts = Counter(ballot)
        tied = [person for person, count in counts.items() if count == max(counts.values())]
        total += Fraction(HIDDEN in tied, len(tied))
    return total / len(ballots)


FAMILY = Family(NAME, partial(_draw, texts), texts.phrases)
"""The family; the module's docstring states its rules."""


def in_language(language: str) -> Family:
    """Returns the family with its texts in another language: the same tasks, for the same seeds."""
    words = read_texts(_MafiaTexts, NAME, language)
    return Family(f"{NAME}-{language}", partial(_draw, words), words.phrases, language=language)
