"""The starter set: twelve everyday scenarios with twelve characters, as package data."""

from __future__ import annotations

import importlib
import importlib.resources
from functools import lru_cache

from sotopia_env.json_text import decode_json
from sotopia_env.world.scenario import Scenario
from sotopia_env.world.taskset import Cast, TaskSet, sample_tasks


def _data(name: str) -> str:
    return importlib.resources.files("sotopia_env").joinpath("data", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def starter_cast() -> Cast:
    """Returns the shipped characters with what they are to each other."""
    return Cast.model_validate(decode_json(_data("starter_cast.json")))


@lru_cache(maxsize=1)
def starter_scenarios() -> tuple[Scenario, ...]:
    """Returns the shipped scenarios."""
    return tuple(Scenario.model_validate(item) for item in decode_json(_data("starter_scenarios.json")))


@lru_cache(maxsize=1)
def starter_tasks() -> TaskSet:
    """Returns the shipped scenarios, each with two castings of the shipped characters; always the same tasks."""
    return sample_tasks(starter_scenarios(), starter_cast(), per_scenario=2, seed=0)
