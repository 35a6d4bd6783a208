"""The reader of custom dimensions in YAML files (SOTOPIA-S4 §3.3).

The file contains a list of entries, at the top level or under the key ``dimensions``; a task file may have both tasks
and dimensions::

    dimensions:
      - name: salary_optimality
        low: 1
        high: 5
        instruction: How close was the result to the salary that the agent had in mind?
"""

from __future__ import annotations

from pathlib import Path

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.world.custom_dimensions import custom_dimensions_of
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.taskset import YAML_KEYS


def load_dimensions(path: str | Path) -> tuple[CustomDimension, ...]:
    """Returns the dimensions in a YAML file, in its order.

    Raises:
        InvalidValueError: the file cannot be read or an entry is invalid. The message names the file, the entry, the
            field and, for a misspelt field, the nearest valid one.
    """
    content = read_yaml(path)
    if isinstance(content, dict):
        for key in content:
            if key not in YAML_KEYS:
                raise InvalidValueError("unknown key", field=str(key), got=key, valid=YAML_KEYS, where=path)
        content = content.get("dimensions")
    return custom_dimensions_of(content, path)
