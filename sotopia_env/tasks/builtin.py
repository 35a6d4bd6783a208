"""Reader of the casts and scenarios that ship with the package."""

from __future__ import annotations

import importlib
import importlib.resources
from typing import Any

from sotopia_env.json_text import decode_json
from sotopia_env.world.scenario import Scenario
from sotopia_env.world.taskset import Cast


def _data(name: str) -> Any:
    file = importlib.resources.files("sotopia_env").joinpath("data", f"{name}.json")
    return decode_json(file.read_text(encoding="utf-8"))


def built_in_cast(name: str) -> Cast:
    """Returns the characters in the data file ``name``, with what they are to each other."""
    return Cast.model_validate(_data(name))


def built_in_scenarios(*names: str) -> tuple[Scenario, ...]:
    """Returns the scenarios in the data files ``names``, file by file."""
    return tuple(Scenario.model_validate(item) for name in names for item in _data(name))
