"""The everyday set: ninety two-seat scenarios with forty characters, as package data.

It has the size of the published task space: 40 characters, 90 scenarios, 5 castings each (SOTOPIA, arXiv 2310.11667,
section 2.1). More than a third of the scenarios have an outcome, so that their rewards are exact.
"""

from __future__ import annotations

from functools import lru_cache

from sotopia_env.tasks.builtin import built_in_cast, built_in_scenarios
from sotopia_env.world.scenario import Scenario
from sotopia_env.world.taskset import Cast, TaskSet, sample_tasks


@lru_cache(maxsize=1)
def everyday_cast() -> Cast:
    """Returns the 40 characters with their 150 relationships; each romantic pair is one possible world."""
    return built_in_cast("everyday_cast")


@lru_cache(maxsize=1)
def everyday_scenarios() -> tuple[Scenario, ...]:
    """Returns the 90 scenarios: social ones, then bargains."""
    return built_in_scenarios("everyday_scenarios_social", "everyday_scenarios_bargains")


@lru_cache(maxsize=1)
def everyday_tasks() -> TaskSet:
    """Returns the scenarios with five castings each, 450 tasks in all; always the same ones."""
    return sample_tasks(everyday_scenarios(), everyday_cast(), per_scenario=5, seed=0)
