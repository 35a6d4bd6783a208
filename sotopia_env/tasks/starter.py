"""The starter set: twelve everyday scenarios with twelve characters, as package data."""

from __future__ import annotations

from functools import lru_cache

from sotopia_env.tasks.builtin import built_in_cast, built_in_scenarios
from sotopia_env.world.scenario import Scenario
from sotopia_env.world.taskset import Cast, TaskSet, sample_tasks


@lru_cache(maxsize=1)
def starter_cast() -> Cast:
    """Returns the shipped characters with what they are to each other."""
    return built_in_cast("starter_cast")


@lru_cache(maxsize=1)
def starter_scenarios() -> tuple[Scenario, ...]:
    """Returns the shipped scenarios."""
    return built_in_scenarios("starter_scenarios")


@lru_cache(maxsize=1)
def starter_tasks() -> TaskSet:
    """Returns the shipped scenarios, each with two castings of the shipped characters; always the same tasks."""
    return sample_tasks(starter_scenarios(), starter_cast(), per_scenario=2, seed=0)
