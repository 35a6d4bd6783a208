"""Putting drawn people into the seats of a generated scenario."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

from sotopia_env.errors import InvalidTaskError, InvalidValueError, UnknownNameError, name_hint
from sotopia_env.scenario import Character, Relationship, RelationshipKind, Scenario, Task
from sotopia_env.tasks.family import LEVELS
from sotopia_env.tasks.people import draw_relationship


def check_request(family: str, index: int, seed: int, level: str) -> random.Random:
    """Returns the generator of random numbers for one task of ``family``.

    Raises:
        UnknownNameError: ``level`` is none of :data:`sotopia_env.tasks.family.LEVELS`.
        InvalidValueError: ``index`` or ``seed`` is no whole number of at least 0.
    """
    if level not in LEVELS:
        raise UnknownNameError(f"level: {name_hint(str(level), LEVELS)}")
    for field, value in (("index", index), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidValueError(f"{field}: expected a whole number of at least 0, got {value!r}")
    return random.Random(f"{family} {level} {seed} {index}")


def seat_people(rng: random.Random, scenario: Scenario, characters: tuple[Character, ...]) -> Task:
    """Returns ``scenario`` with ``characters`` in its seats and a drawn relationship for every pair.

    A romantic relationship is drawn at most once. The task takes the scenario's id.
    """
    kinds = list(RelationshipKind)
    relationships: list[Relationship] = []
    for pair in itertools.combinations(range(len(characters)), 2):
        relationship = draw_relationship(rng, characters, pair, kinds)
        if relationship.kind is RelationshipKind.ROMANTIC:
            kinds.remove(RelationshipKind.ROMANTIC)
        relationships.append(relationship)
    return Task(id=scenario.id, scenario=scenario, characters=characters, relationships=tuple(relationships))


def outcome_parameters(task: Task, family: str) -> Mapping[str, Any]:
    """Returns the parameters of the outcome specification of ``task``.

    Raises:
        InvalidTaskError: the task has no outcome specification, or that of another family.
    """
    outcome = task.scenario.outcome
    if outcome is None or outcome.family != family:
        got = "none" if outcome is None else repr(outcome.family)
        raise InvalidTaskError(f"task {task.id!r}, outcome.family: expected {family!r}, got {got}")
    return outcome.parameters


__all__ = ["check_request", "outcome_parameters", "seat_people"]
