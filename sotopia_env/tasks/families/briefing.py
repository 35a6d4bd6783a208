"""``briefing``: people who know different things about several options must talk and then vote for one together.

Each option is good or bad by one or two *factors*, such as the snow on a pass, and each factor is known to one person
alone, which everybody knows. All gain alike from the choice, so only pooling what is known leads to the best one. This
is a hidden profile (Stasser and Titus 1985) with sharing rules as in SOTOPIA-TOM (arXiv 2605.02307): the personal
*side facts* of the higher levels do not matter for the vote, and each may be told to one person in private, or to
nobody.

**Levels.** ``easy``: three people, three options with one factor each, which can be proved. ``medium``: two factors an
option, without proof, and a side fact of each person that one other person wants to learn and the third may not know.
``hard``: four people and options, and a secret of each person besides that nobody else may know.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import BallotRules, OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.facts import Facts, Variable, beliefs
from sotopia_env.outcomes.worth import FactsWorth
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.world.scenario import Seat


class _Venue(Record):
    """Options with their factors, whose values are listed from the best to the worst, and what is gained."""

    contexts: tuple[str, ...]
    gain: str
    options: dict[str, dict[str, tuple[str, str, str]]]


class _BriefingTexts(FamilyTexts):
    """Venues, personal facts, and templates of rules and goals."""

    settings: dict[str, _Venue]
    sides: dict[str, tuple[str, str, str]]
    rules: tuple[str, ...]
    side_rules: tuple[str, ...]
    goals: tuple[str, ...]
    side_goals: tuple[str, ...]
    secret_goals: tuple[str, ...]


texts = read_texts(_BriefingTexts, "briefing")
NAME = "briefing"
_GAINS = ((6.0, 3.0, 0.0), (5.0, 2.0, 0.0))
"""What the values of the first and the second factor of an option are worth, from the best to the worst."""


@dataclass(frozen=True, slots=True)
class _Level:
    seats: int
    factors: int
    talks: int
    sides: int


_LEVELS = {"easy": _Level(3, 1, 2, 0), "medium": _Level(3, 2, 3, 1), "hard": _Level(4, 2, 4, 2)}


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    size = _LEVELS[level]
    characters = draw_characters(rng, size.seats)
    names = [character.name for character in characters]
    venue = texts.settings[rng.choice(tuple(texts.settings))]
    options = dict(rng.sample(tuple(venue.options.items()), size.seats))
    worth = _worth(options, size.factors)
    factors = _factors(rng, options, size, worth, level == "easy")
    sides = _sides(rng, names, size.sides)
    rules = rng.choice(texts.rules).format(talks=size.talks)
    side_rules = rng.choice(texts.side_rules) if sides else ""
    listed = conjunction(list(options))
    goals = [rng.choice(texts.goals).format(options=listed) for _ in names]
    for variable in sides:
        goals[_number(variable.of)] += _side_goal(rng, variable, names)
    return Draft(
        characters=tuple(characters),
        context=f"{rng.choice(venue.contexts).format(people=conjunction(names))} {rules}{side_rules}",
        seats=tuple(Seat(goals=(goal,), hints=(rng.choice(texts.hints),)) for goal in goals),
        outcome=OutcomeSpec(
            protocol=BallotRules(options=tuple(options), ties="lot", opens=size.talks), worth=(worth,) * size.seats
        ),
        facts=Facts(variables=(*factors, *sides), norms=("honesty",)),
        shared_data={"unit": venue.gain},
        tags=("cooperative",),
        private_messages=bool(sides),
        max_turns=(size.talks + 1) * size.seats,
    )


def _number(agent: str) -> int:
    return int(agent.removeprefix("agent_"))


def _worth(options: Mapping[str, Mapping[str, tuple[str, ...]]], factors: int) -> FactsWorth:
    return FactsWorth(
        facts={
            factor: {value: {option: gain} for value, gain in zip(values, gains, strict=True) if gain}
            for option, by_factor in options.items()
            for (factor, values), gains in zip(list(by_factor.items())[:factors], _GAINS[:factors], strict=True)
        }
    )


def _factors(
    rng: random.Random,
    options: Mapping[str, Mapping[str, tuple[str, ...]]],
    size: _Level,
    worth: FactsWorth,
    evidence: bool,
) -> tuple[Variable, ...]:
    """Draws values until one option is the best, and at most one person would choose it by its own facts alone."""
    pairs = [pair for by_factor in options.values() for pair in list(by_factor.items())[: size.factors]]
    agents = [f"agent_{seat}" for seat in range(size.seats)]
    # The two factors of an option are neighbours, so that they go to two people.
    first = rng.randrange(size.seats)
    holders = [agents[(first + number) % size.seats] for number in range(len(pairs))]
    while True:
        variables = tuple(
            Variable(
                name=name,
                options=values,
                value=rng.choice(values),
                of=holder,
                known_by=(holder,),
                evidence=evidence,
                wanted_by=tuple(agent for agent in agents if agent != holder),
            )
            for (name, values), holder in zip(pairs, holders, strict=True)
        )
        if _is_hidden(variables, tuple(options), worth, agents):
            return variables


def _is_hidden(variables: Sequence[Variable], options: Sequence[str], worth: FactsWorth, agents: Sequence[str]) -> bool:
    truth = {variable.name: variable.value or "" for variable in variables}
    gains = {option: worth.gains(option, beliefs(variables, (), truth)) for option in options}
    best, second = sorted(gains.values())[:-3:-1]
    if best == second:
        return False
    right = max(gains, key=gains.__getitem__)
    believers = 0
    for agent in agents:
        known = {variable.name: truth[variable.name] for variable in variables if variable.of == agent}
        alone = {option: worth.gains(option, beliefs(variables, (), known)) for option in options}
        believers += alone[right] >= max(alone.values())
    return believers <= 1


def _sides(rng: random.Random, names: Sequence[str], number: int) -> tuple[Variable, ...]:
    """Draws one side fact of each person for a neighbour, and, if ``number`` is 2, one for nobody."""
    variables = []
    for seat, name in enumerate(names):
        holder, asker = f"agent_{seat}", f"agent_{(seat + 1) % len(names)}"
        for (template, values), wanted_by in zip(
            rng.sample(tuple(texts.sides.items()), number), ((asker,), ()), strict=False
        ):
            variables.append(
                Variable(
                    name=template.format(name=name),
                    options=values,
                    value=rng.choice(values),
                    of=holder,
                    known_by=(holder,),
                    may_know=wanted_by,
                    channel="private",
                    evidence=False,
                    wanted_by=wanted_by,
                )
            )
    return tuple(variables)


def _side_goal(rng: random.Random, variable: Variable, names: Sequence[str]) -> str:
    if not variable.wanted_by:
        return rng.choice(texts.secret_goals).format(item=variable.name)
    return rng.choice(texts.side_goals).format(asker=names[_number(variable.wanted_by[0])], item=variable.name)


FAMILY = Family(NAME, _draw, texts.phrases)
"""The family; the module's docstring states its rules."""
