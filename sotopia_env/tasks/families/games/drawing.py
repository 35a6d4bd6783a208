"""Families of games of choices, drawn from files of data.

A file has games (rules, payoffs and the parameters that vary), everyday settings that name what can be chosen, and what
differs by level. Its abstract options become those of the setting, its payoffs are multiplied by a scale of the
setting, and every seat's coming choice is a variable, so that it can be announced.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.foundation.records import Name, Record
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.facts import Facts, Variable
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.world.scenario import Character, Seat


class GameSetting(Record):
    """An everyday situation of a game.

    Attributes:
        options: the names of the game's options here.
        contexts: the situation in words, with ``{people}`` and each option's abstract name as a field.
        goals: what a seat wants.
        unit: what the payoffs are counted in.
        scales: numbers of which one multiplies all payoffs by table.
    """

    options: dict[Name, str] = Field(default_factory=dict)
    contexts: tuple[str, ...] = Field(min_length=1)
    goals: tuple[str, ...] = Field(min_length=1)
    unit: str
    scales: tuple[int, ...] = (1,)


class GameData(Record):
    """One game: at most ten lines of data.

    Attributes:
        rules: the rules (:class:`~sotopia_env.outcomes.games.rules.ChoicesRules`) on every level.
        worth: the payoffs of every seat, or a list of one per seat; a row of ``counts`` goes on with its last number.
        draws: parameters that vary from task to task; their names may stand in place of numbers of ``worth``.
        settings: names of settings of the file; all of them, if it is empty.
    """

    rules: dict[str, Any]
    worth: dict[str, Any] | list[dict[str, Any]]
    draws: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    settings: tuple[str, ...] = ()

    @property
    def versions(self) -> list[dict[str, float]]:
        """Every combination of the parameters."""
        return [dict(zip(self.draws, row, strict=True)) for row in itertools.product(*self.draws.values())]


class GameLevel(Record):
    """What differs by level: the number of seats, and rules that replace those of the game."""

    seats: int = Field(default=2, ge=2, le=8)
    rules: dict[str, Any] = Field(default_factory=dict)


class GameTexts(FamilyTexts):
    """The file of a family.

    Attributes:
        about: what the family is, for its page.
        games: the games, which take turns.
        settings: everyday situations.
        levels: what differs by level.
        published: what differs in the design of a published experiment, on every level; ``None`` where the hardest
            level is that design.
    """

    about: str
    games: dict[str, GameData]
    settings: dict[str, GameSetting]
    levels: dict[str, GameLevel]
    published: GameLevel | None = None


PUBLISHED = "published"
"""The version of a family in the design of a published experiment: ``trust-published``."""
MECHANISMS = ("contract", "reputation", "mediation", "ending", PUBLISHED)
"""What a family can be played with: ``dilemma-contract`` is ``dilemma`` with contracts."""
_CONTINUES, _MOST_ROUNDS = 0.75, 50
"""The probability of a further round in games with a random ending, and the highest number of rounds."""
_PAST = 4
"""The number of earlier choices of every seat that its reputation consists of."""


def read_game_family(name: str, mechanism: str = "") -> Family:
    """Returns the family of the file ``name`` in this folder.

    Args:
        name: the name of the file.
        mechanism: one of :data:`MECHANISMS`, or empty.

    Raises:
        InvalidTaskError: the file does not describe a family.
    """
    path = Path(__file__).with_name(f"{name}.yaml")
    try:
        texts = GameTexts.model_validate(read_yaml(path))
    except ValidationError as error:
        raise InvalidTaskError.of(invalid(error), where=str(path)) from None
    whole = f"{name}-{mechanism}" if mechanism else name
    return Family(whole, partial(_draw, texts, mechanism), texts.phrases, about=texts.about, mechanism=mechanism)


def _draw(texts: GameTexts, mechanism: str, rng: random.Random, index: int, level: str) -> Draft:
    names = [*texts.games]
    design = texts.published if mechanism == PUBLISHED and texts.published is not None else texts.levels[level]
    game, seats = texts.games[names[index % len(names)]], design.seats
    values = game.versions[index // len(names) % len(game.versions)]
    setting = texts.settings[rng.choice(game.settings or tuple(texts.settings))]
    characters = draw_characters(rng, seats)
    scale = rng.choice(setting.scales)
    words = {"people": conjunction([one.name for one in characters]), "unit": setting.unit, **setting.options}
    context = rng.choice(setting.contexts).format(**words)
    sides = tuple(_seat(rng, texts, rng.choice(setting.goals).format(**words)) for _ in characters)
    rules = {**game.rules, **design.rules}
    # Drawn last, so that a task differs from that without a mechanism in nothing else.
    rules |= _mechanism(mechanism, rules, rng, seats)
    worths = [_whole(worth, seats) for worth in (game.worth if isinstance(game.worth, list) else [game.worth] * seats)]
    outcome = OutcomeSpec.model_validate(
        {
            "protocol": {"kind": "choices", **_named(rules, setting.options)},
            "worth": [_valued(_named(worth, setting.options), values, scale) for worth in worths],
        }
    )
    assert isinstance(outcome.protocol, ChoicesRules)
    return Draft(
        characters=characters,
        context=context,
        seats=sides,
        outcome=outcome,
        facts=_facts(characters, outcome.protocol),
        shared_data={"game": names[index % len(names)], "unit": setting.unit, "parameters": values},
        tags=("mixed",),
        max_turns=_turns(outcome.protocol, seats),
    )


def _seat(rng: random.Random, texts: GameTexts, goal: str) -> Seat:
    return Seat(goals=(goal,), hints=(rng.choice(texts.hints),))


def _whole(worth: Mapping[str, Any], seats: int) -> Mapping[str, Any]:
    """A worth whose rows of counts go on with their last number, so that one row serves any number of seats."""
    if "counts" not in worth:
        return worth
    rows = {option: [*row, *row[-1:] * seats][:seats] for option, row in worth["counts"].items()}
    return {**worth, "counts": rows}


def _mechanism(name: str, rules: Mapping[str, Any], rng: random.Random, seats: int) -> dict[str, Any]:
    """The rules of a mechanism, in the game's abstract options."""
    if name in ("", "contract", PUBLISHED):
        return {"contract": True} if name == "contract" else {}
    if name == "ending":
        return {"rounds": _MOST_ROUNDS, "ending": {"continues": _CONTINUES, "draw": rng.randrange(2**31)}}
    own = rules.get("own_options", {})
    shared = ChoicesRules.model_validate(rules).shared
    if name == "mediation":
        # The first option is that of whoever co-operates; the second one protects.
        return {"mediator": {"together": shared[0], "otherwise": shared[1]}}
    agents = [f"agent_{seat}" for seat in range(seats)]
    return {"records": {agent: [rng.choice(own.get(agent, shared)) for _ in range(_PAST)] for agent in agents}}


def _named(value: Any, options: Mapping[str, str]) -> Any:
    """A part of the data with the setting's names in place of abstract options, as keys and as values."""
    if isinstance(value, Mapping):
        return {options.get(str(key), key): _named(item, options) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item, options) for item in value]
    return options.get(value, value) if isinstance(value, str) else value


def _valued(value: Any, parameters: Mapping[str, float], scale: int) -> Any:
    """Payoffs with numbers in place of parameters, times the scale."""
    if isinstance(value, Mapping):
        # What an option or an amount is called is no number, and coefficients of amounts are not scaled.
        fixed = {key for key in value if key in ("of", "per", "constant")}
        return {key: item if key in fixed else _valued(item, parameters, scale) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valued(item, parameters, scale) for item in value]
    return scale * (parameters[value] if isinstance(value, str) else value)


def _facts(characters: tuple[Character, ...], rules: ChoicesRules) -> Facts:
    return Facts(variables=tuple(_choices(characters, rules)), norms=("promises",))


def _choices(characters: tuple[Character, ...], rules: ChoicesRules) -> Iterator[Variable]:
    for seat, person in enumerate(characters):
        agent = f"agent_{seat}"
        yield Variable(name=f"choice of {person.name}", options=rules.options_of(agent), kind="choice", of=agent)


def _turns(rules: ChoicesRules, seats: int) -> int:
    """Turns for all rounds, and some more, so that one refused move or a contract does not end the game."""
    return seats * (rules.rounds * (rules.talks + max(1, len(rules.stages))) + (4 if rules.contract else 2))
