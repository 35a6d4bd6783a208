"""The task sets that ship with the package as data files: twelve starter scenarios and ninety everyday ones.

The everyday set has the size of the published task space: 40 characters, 90 scenarios, 5 castings each (SOTOPIA, arXiv
2310.11667, section 2.1). More than a third of its scenarios have an outcome, so that their rewards are exact.
"""

from __future__ import annotations

import importlib.resources
from functools import lru_cache
from typing import Any

from sotopia_env.foundation.json_text import decode_json
from sotopia_env.world.scenario import Scenario
from sotopia_env.world.taskset import Cast, TaskSet, sample_tasks


def _data(name: str) -> Any:
    file = importlib.resources.files("sotopia_env").joinpath("data", f"{name}.json")
    return decode_json(file.read_text(encoding="utf-8"))


def _cast(name: str) -> Cast:
    """Returns the characters in the data file ``name``, with their relationships."""
    return Cast.model_validate(_data(name))


def _scenarios(*names: str) -> tuple[Scenario, ...]:
    """Returns the scenarios in the data files ``names``, file by file."""
    return tuple(Scenario.model_validate(item) for name in names for item in _data(name))


@lru_cache(maxsize=1)
def starter_cast() -> Cast:
    """Returns the characters of the starter set with their relationships."""
    return _cast("starter_cast")


@lru_cache(maxsize=1)
def starter_scenarios() -> tuple[Scenario, ...]:
    """Returns the scenarios of the starter set."""
    return _scenarios("starter_scenarios")


@lru_cache(maxsize=1)
def starter_tasks() -> TaskSet:
    """Returns the tasks of the starter set: each scenario with two castings, always the same ones."""
    return sample_tasks(starter_scenarios(), starter_cast(), per_scenario=2, seed=0)


@lru_cache(maxsize=1)
def everyday_cast() -> Cast:
    """Returns the 40 characters of the everyday set with their 150 relationships."""
    # The romantic pairs contradict each other (a character may be in several): each is one possible world.
    return _cast("everyday_cast")


@lru_cache(maxsize=1)
def everyday_scenarios() -> tuple[Scenario, ...]:
    """Returns the 90 scenarios of the everyday set: the social ones, then the bargains."""
    return _scenarios("everyday_scenarios_social", "everyday_scenarios_bargains")


@lru_cache(maxsize=1)
def everyday_tasks() -> TaskSet:
    """Returns the 450 tasks of the everyday set: each scenario with five castings, always the same ones."""
    return sample_tasks(everyday_scenarios(), everyday_cast(), per_scenario=5, seed=0)
