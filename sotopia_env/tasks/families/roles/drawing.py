"""Families of games with hidden roles, drawn from files of data.

A file has the rules (:class:`~sotopia_env.outcomes.roles.rules.RolesRules`), how many seats get which role on each
level, and texts. The roles are variables that are dealt to the seats, and every seat gets 1 if its team wins.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.foundation.records import Name, Record
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.facts import Deal, Facts, Variable
from sotopia_env.outcomes.roles.rules import RolesRules
from sotopia_env.tasks.families.family import LEVELS, Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.world.scenario import Character, Seat


class RolesLevel(Record):
    """What differs by level.

    Attributes:
        deal: the number of seats that get each role.
        reveal: what is told about whoever is eliminated.
        phases: by name of a phase, the rules that replace those of the game.
        without: the names of phases that are left out.
    """

    deal: dict[Name, Annotated[int, Field(ge=0)]]
    reveal: Literal["none", "team", "role"] = "none"
    phases: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    without: tuple[Name, ...] = ()


class RolesTexts(FamilyTexts):
    """The file of a family.

    Attributes:
        about: what the family is, for its page.
        roles: the roles, as in the rules; those that a level does not deal are left out of its rules.
        informs: by role, the roles whose holders its holder knows from the start.
        phases: the phases, as in the rules.
        wins: the conditions, as in the rules.
        cycles: the number of cycles after which the game ends; by default, that of seats, which is always enough.
        levels: what differs by level.
        contexts: the situation in words, with ``{people}``.
        goals: what a seat wants, by role.
    """

    about: str
    roles: dict[Name, dict[str, Any]]
    informs: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    phases: tuple[dict[str, Any], ...]
    wins: tuple[dict[str, Any], ...]
    cycles: Annotated[int, Field(ge=1, le=50)] | None = None
    levels: dict[str, RolesLevel]
    contexts: tuple[str, ...] = Field(min_length=1)
    goals: dict[Name, Annotated[tuple[str, ...], Field(min_length=1)]]
    hints: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if missing := [level for level in LEVELS if level not in self.levels]:
            raise InvalidValueError(field="levels", expected=f"rules for {conjunction(LEVELS)}", got=f"no {missing[0]}")
        phases = [str(phase.get("name")) for phase in self.phases]
        _check_names("levels", self.levels, LEVELS)
        _check_names("informs", self.informs, self.roles)
        for role, others in self.informs.items():
            _check_names(f"informs.{role}", others, self.roles)
        for name, level in self.levels.items():
            _check_names(f"levels.{name}.deal", level.deal, self.roles)
            _check_names(f"levels.{name}.phases", level.phases, phases)
            _check_names(f"levels.{name}.without", level.without, phases)
            for phase in self.phases:
                _check_actors(name, level, {**phase, **level.phases.get(str(phase.get("name")), {})}, self.roles)
            if silent := [role for role, count in level.deal.items() if count and role not in self.goals]:
                hint = f"add a line for {silent[0]!r} to 'goals'"
                raise InvalidValueError("a role without goals", field="goals", got=silent[0], hint=hint)
        return self


def _check_names(field: str, names: Iterable[str], valid: Iterable[str]) -> None:
    valid = tuple(valid)
    if strange := [name for name in names if name not in valid]:
        raise UnknownNameError(field=field, got=strange[0], valid=valid)


def _check_actors(name: str, level: RolesLevel, phase: dict[str, Any], roles: Iterable[str]) -> None:
    """Raises InvalidValueError if a role that acts in a phase is one of the game's, but not dealt on the level."""
    who = phase.get("who", "all")
    if isinstance(who, str) or phase.get("name") in level.without:
        return
    if absent := [role for role in who if role in roles and not level.deal.get(role)]:
        hint = f"deal {absent[0]!r} there, or name the phase in 'levels.{name}.without'"
        problem = f"{absent[0]!r} acts in this phase and is not dealt"
        raise InvalidValueError(problem, field=f"levels.{name}.deal", got=phase.get("name"), hint=hint)


def read_roles_family(name: str) -> Family:
    """Returns the family of the file ``name`` in this folder.

    Raises:
        InvalidTaskError: the file does not describe a family.
    """
    return roles_family(Path(__file__).with_name(f"{name}.yaml"))


def roles_family(path: Path) -> Family:
    """Returns the family of a file of data, under the name of the file.

    Raises:
        InvalidTaskError: the file does not describe a family.
    """
    try:
        texts = RolesTexts.model_validate(read_yaml(path))
        family = Family(path.stem, partial(_draw, texts), texts.phrases, about=texts.about)
        # One game of each level: what only the seats of a game show is refused here, not in the middle of a run.
        for level in texts.levels:
            family.generate(0, 0, level)
    except ValidationError as error:
        raise InvalidTaskError.of(invalid(error), where=str(path)) from None
    return family


def _rules(texts: RolesTexts, level: RolesLevel) -> RolesRules:
    """The rules on a level, with the roles that are dealt there."""
    phases = [
        {**({"reveal": level.reveal} if phase.get("effect") in ("eliminate", "kill") else {}), **phase}
        | level.phases.get(str(phase.get("name")), {})
        for phase in texts.phases
        if phase.get("name") not in level.without
    ]
    roles = {name: role for name, role in texts.roles.items() if level.deal.get(name)}
    cycles = texts.cycles or sum(level.deal.values())
    return RolesRules.model_validate({"roles": roles, "phases": phases, "wins": texts.wins, "cycles": cycles})


def _draw(texts: RolesTexts, rng: random.Random, index: int, level: str) -> Draft:
    design = texts.levels[level]
    rules = _rules(texts, design)
    dealt = [role for role, count in design.deal.items() for _ in range(count)]
    rng.shuffle(dealt)
    characters = draw_characters(rng, len(dealt))
    people = conjunction([one.name for one in characters])
    return Draft(
        characters=characters,
        context=rng.choice(texts.contexts).replace("{people}", people),
        seats=tuple(
            Seat(goals=(rng.choice(texts.goals[role]),), hints=(rng.choice(texts.hints),), private_data={"role": role})
            for role in dealt
        ),
        outcome=OutcomeSpec(protocol=rules, worth=tuple(_worth(rules, role) for role in dealt)),
        facts=_facts(texts, rules, characters, dealt),
        tags=("mixed",),
        max_turns=rules.turns(len(dealt)),
    )


def _worth(rules: RolesRules, role: str) -> Any:
    return {"options": {team: float(team == rules.roles[role].team) for team in rules.options}}


def _facts(texts: RolesTexts, rules: RolesRules, characters: tuple[Character, ...], dealt: list[str]) -> Facts:
    """The roles, which are dealt; and the teams where these are told alone."""
    informs = {role: others for role, others in texts.informs.items() if role in rules.roles}
    teams = [rules.roles[role].team for role in dealt]
    own = _variables("role", characters, dealt)
    facts = Facts(variables=own, deals=(_deal(own, informs),))
    if all(phase.reveal != "team" for phase in rules.phases):
        return facts
    knowledge = {f"agent_{seat}": facts.initial(f"agent_{seat}") for seat in range(len(dealt))}
    informed = [tuple(agent for agent, names in knowledge.items() if variable.name in names) for variable in own]
    more = _variables("team", characters, teams, informed)
    return Facts(variables=(*own, *more), deals=(*facts.deals, _deal(more, {})))


def _deal(variables: tuple[Variable, ...], informs: dict[str, tuple[str, ...]]) -> Deal:
    values = tuple(str(variable.value) for variable in variables)
    return Deal(variables=tuple(variable.name for variable in variables), values=values, informs=informs)


def _variables(
    noun: str, characters: tuple[Character, ...], values: list[str], informed: Sequence[tuple[str, ...]] = ()
) -> tuple[Variable, ...]:
    return tuple(
        Variable(
            name=f"{noun} of {one.name}",
            options=tuple(sorted(set(values))),
            value=value,
            kind="role",
            of=f"agent_{seat}",
            known_by=informed[seat] if informed else (),
            evidence=False,
        )
        for seat, (one, value) in enumerate(zip(characters, values, strict=True))
    )
