"""The hook by which an environment accepts names in place of objects.

An environment plays objects: tasks, an evaluator, partners. Names (``task="bargaining"``, ``evaluator="verified"``,
``partner="boulware"``) are read by functions of :mod:`sotopia_env.naming`, which knows model clients and plug-ins. Like
the entry points of Gymnasium's registry, these functions are listed as text and imported on first use, so that an
environment without names imports none of this.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

READERS: Mapping[str, str] = {
    "task": "sotopia_env.naming.task_sources:episode_tasks",
    "evaluator": "sotopia_env.naming.evaluators:make_evaluator",
    "partner": "sotopia_env.naming.policies:make_policy",
}
"""The function that reads the names of each option, as ``module:function``."""


def resolve(option: str, name: str) -> Any:
    """Returns the object that ``name`` means in an option: a task set or stream, an evaluator, or a policy.

    Raises:
        UnknownNameError: there is no such name.
        InvalidValueError: the name has an invalid option.
        InvalidTaskError: the name is that of a file which cannot be read as tasks.
    """
    return pkgutil.resolve_name(READERS[option])(name)
