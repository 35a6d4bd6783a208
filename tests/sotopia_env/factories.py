"""Small records for the tests; every field can be overridden."""

from __future__ import annotations

import itertools
from typing import Any

from sotopia_env.world.scenario import BigFive, Character, Relationship, RelationshipKind, Scenario, Seat, Task

TRAITS = BigFive(openness="high", conscientiousness="low", extraversion="high", agreeableness="low", neuroticism="high")
FIRST_NAMES = ("Ada", "Bram", "Chidi", "Dagny", "Emre")


def character(first_name: str = "Ada", **fields: Any) -> Character:
    values: dict[str, Any] = {
        "last_name": "Testa",
        "age": 30,
        "gender": "woman",
        "pronouns": "she/her",
        "occupation": "gardener",
        "big_five": TRAITS,
        "decision_style": "analytical",
    }
    return Character(first_name=first_name, **{**values, **fields})


def scenario(seat_count: int = 2, **fields: Any) -> Scenario:
    values: dict[str, Any] = {
        "id": "test-scenario",
        "context": "A few people stand at a bus stop in the rain.",
        "seats": tuple(Seat(goals=(f"Goal of seat {seat}.",)) for seat in range(seat_count)),
    }
    return Scenario(**{**values, **fields})


def task(seats: int = 2, kind: RelationshipKind | str = RelationshipKind.FRIEND, **fields: Any) -> Task:
    values: dict[str, Any] = {
        "id": "test-task",
        "scenario": scenario(seats),
        "characters": tuple(character(name) for name in FIRST_NAMES[:seats]),
        "relationships": tuple(
            Relationship(seats=pair, kind=RelationshipKind(kind)) for pair in itertools.combinations(range(seats), 2)
        ),
    }
    return Task(**{**values, **fields})
