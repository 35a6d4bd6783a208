"""``briefing``: people with different parts of the facts decide together, and some facts are not for everybody.

Each seat is the expert on one side of the matter and knows its value for every option; an option is worth, to
everybody alike, the number of sides that speak for it. So the best choice is known only to those who ask and tell
(a hidden profile: Stasser and Titus, 1985). All vote in the end, and a majority decides.

**Levels.** ``easy``: three seats, and everything may be told to everybody. ``medium``: besides, each seat has a
confidential fact, which one partner is to learn in private and nobody else may know. ``hard``: four seats, nothing can
be proved, who knows a confidential fact is not said, and each seat has a fact that nobody else may know at all.

The channel rules are those of SOTOPIA-TOM (arXiv 2605.02307): public facts may go to all, private ones to the right
person directly, and some to nobody.

**Languages.** ``briefing-es`` and ``briefing-zh`` are the same tasks in Spanish and in Chinese, for the same
seeds; the frame of observations remains English, and people are not described.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import BallotRules, OutcomeSpec
from sotopia_env.outcomes.facts import Facts, Variable
from sotopia_env.outcomes.worth import FactsWorth
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.world.scenario import Seat


class _Item(Record):
    """A fact with its possible values."""

    name: str
    options: tuple[str, ...]


class _Job(Record):
    """What one seat is the expert on, and what it knows besides."""

    title: str
    criterion: str
    good: str
    bad: str
    confidential: _Item
    secret: _Item


class _Occasion(Record):
    """A decision, its possible options, and the jobs of those who decide."""

    decision: str
    options: tuple[str, ...]
    contexts: tuple[str, ...]
    jobs: tuple[_Job, ...]


class _BriefingTexts(FamilyTexts):
    """Occasions, and templates of rules and goals."""

    settings: dict[str, _Occasion]
    rules: tuple[str, ...]
    levels: dict[str, str]
    goals: tuple[str, ...]


texts = read_texts(_BriefingTexts, "briefing")
NAME = "briefing"
OPTIONS = 3
_SEATS = {"easy": 3, "medium": 3, "hard": 4}
_TURNS = {"easy": 5, "medium": 6, "hard": 7}


@dataclass(frozen=True, slots=True)
class _Matter:
    """The decision of one task: its options, the jobs in seat order, and whether each side speaks for each option."""

    options: tuple[str, ...]
    jobs: tuple[_Job, ...]
    favourable: tuple[tuple[bool, ...], ...]  # (seat, option)

    def name(self, seat: int, option: str) -> str:
        return self.jobs[seat].criterion.format(option=option)

    def outcome(self) -> OutcomeSpec:
        facts = {
            self.name(seat, option): {job.good: {option: 1.0}}
            for seat, job in enumerate(self.jobs)
            for option in self.options
        }
        rules = BallotRules(options=self.options, rule="majority", opens=2)
        return OutcomeSpec(protocol=rules, worth=(FactsWorth(facts=facts),) * len(self.jobs))


def _draw(texts: _BriefingTexts, rng: random.Random, index: int, level: str) -> Draft:
    occasion = texts.settings[rng.choice(tuple(texts.settings))]
    seats = _SEATS[level]
    characters = draw_characters(rng, seats)
    matter = _Matter(
        tuple(rng.sample(occasion.options, OPTIONS)), tuple(rng.sample(occasion.jobs, seats)), _profile(rng, seats)
    )
    words = {"people": texts.enumeration([c.name for c in characters]), "options": texts.enumeration(matter.options)}
    context = rng.choice(occasion.contexts).format(**words)
    return Draft(
        characters=characters,
        context=f"{context} {rng.choice(texts.rules)}{texts.levels[level]}",
        seats=tuple(
            Seat(
                goals=(rng.choice(texts.goals).format(title=job.title, decision=occasion.decision),),
                hints=(rng.choice(texts.hints),),
                private_data={"role": job.title},
            )
            for job in matter.jobs
        ),
        outcome=matter.outcome(),
        facts=Facts(variables=(*_sides(rng, matter, level), *_private(rng, matter.jobs, level))),
        shared_data={"decision": occasion.decision},
        tags=("cooperative",),
        private_messages=True,
        max_turns=_TURNS[level] * seats,
    )


def _profile(rng: random.Random, seats: int) -> tuple[tuple[bool, ...], ...]:
    """Draws until one option is best and no seat can tell which from its own side of the matter."""
    while True:
        rows = tuple(tuple(rng.random() < 0.5 for _ in range(OPTIONS)) for _ in range(seats))
        totals = [sum(column) for column in zip(*rows, strict=True)]
        best = totals.index(max(totals))
        # A seat could tell if only the best option had its side in its favour.
        if totals.count(max(totals)) == 1 and all(sum(row) != 1 or not row[best] for row in rows):
            return rows


def _sides(rng: random.Random, matter: _Matter, level: str) -> list[Variable]:
    """The facts on which the worth of the options depends; everybody may know them."""
    agents = [f"agent_{seat}" for seat in range(len(matter.jobs))]
    return [
        Variable(
            name=matter.name(seat, option),
            options=tuple(rng.sample((job.good, job.bad), 2)),
            value=job.good if favourable else job.bad,
            known_by=(agents[seat],),
            expert=agents[seat],
            wanted_by=tuple(agent for agent in agents if agent != agents[seat]),
            evidence=level != "hard",
        )
        for seat, job in enumerate(matter.jobs)
        for option, favourable in zip(matter.options, matter.favourable[seat], strict=True)
    ]


def _private(rng: random.Random, jobs: Sequence[_Job], level: str) -> list[Variable]:
    """What each seat may tell one partner in private, and what it may tell nobody."""
    shift = rng.randrange(1, len(jobs))
    result = []
    for seat, job in enumerate(jobs):
        partner = f"agent_{(seat + shift) % len(jobs)}"
        fields: Mapping[str, object] = {"known_by": (f"agent_{seat}",), "evidence": level != "hard"}
        if level != "easy":
            # Whom to ask is said on the lower level only.
            expert = f"agent_{seat}" if level == "medium" else ""
            confidential = {"may_know": (partner,), "wanted_by": (partner,), "channel": "private", "expert": expert}
            result.append(_variable(rng, job.confidential, {**fields, **confidential}))
        if level == "hard":
            result.append(_variable(rng, job.secret, {**fields, "may_know": ()}))
    return result


def _variable(rng: random.Random, item: _Item, fields: Mapping[str, object]) -> Variable:
    options = tuple(rng.sample(item.options, len(item.options)))
    return Variable.model_validate({"name": item.name, "options": options, "value": rng.choice(options), **fields})


FAMILY = Family(NAME, partial(_draw, texts), texts.phrases)
"""The family; the module's docstring states its rules."""


def in_language(language: str) -> Family:
    """Returns the family with its texts in another language: the same tasks, for the same seeds."""
    words = read_texts(_BriefingTexts, NAME, language)
    return Family(f"{NAME}-{language}", partial(_draw, words), words.phrases, language=language)
