"""Procedural task families with verified outcomes, task files, and the task sets of the package.

Nothing is generated or read at import; a family's module is loaded when it is first asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

from sotopia_env.errors import InvalidTaskError, InvalidValueError
from sotopia_env.tasks.builtin import (
    everyday_cast,
    everyday_scenarios,
    everyday_tasks,
    starter_cast,
    starter_scenarios,
    starter_tasks,
)
from sotopia_env.tasks.casting import CASTS, DRAWN, STARTER, cast_scenarios, read_cast
from sotopia_env.tasks.checks import check, warnings
from sotopia_env.tasks.composition import composition
from sotopia_env.tasks.families import FAMILIES, LEVELS, Family, family, family_of, generate
from sotopia_env.tasks.lint import Material, lint, read_material
from sotopia_env.tasks.open_scenario import OpenScenario, task_key
from sotopia_env.tasks.people import draw_characters, draw_relationship
from sotopia_env.tasks.phrases import phrase, share
from sotopia_env.tasks.procedural import Source, TaskStream, read_sources, stream
from sotopia_env.tasks.selection import SELECTIONS, Selection, read_selection
from sotopia_env.tasks.templates import (
    Template,
    everyday_group_tasks,
    everyday_templates,
    instantiate,
    read_templates,
)
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet, read_records


def load(path: str | os.PathLike[str]) -> TaskSet:
    """Reads a file of tasks as :meth:`~sotopia_env.world.taskset.TaskSet.load` does, and checks every one of them.

    Raises:
        InvalidTaskError: names file, line, field, value and nearest valid name; see :func:`check`.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidValueError(f"path: expected the path of a task file, got {path!r}")
    tasks = []
    for where, task in read_records(Path(path), Task):
        try:
            check(task)
        except InvalidTaskError as error:
            raise InvalidTaskError(f"{where}: {error}") from None
        tasks.append(task)
    if not tasks:
        raise InvalidTaskError(f"{path}: expected at least one task, got none")
    return TaskSet(tasks)


__all__ = [
    "CASTS",
    "DRAWN",
    "FAMILIES",
    "LEVELS",
    "SELECTIONS",
    "STARTER",
    "Family",
    "Material",
    "OpenScenario",
    "Selection",
    "Source",
    "TaskStream",
    "Template",
    "cast_scenarios",
    "check",
    "composition",
    "draw_characters",
    "draw_relationship",
    "everyday_cast",
    "everyday_group_tasks",
    "everyday_scenarios",
    "everyday_tasks",
    "everyday_templates",
    "family",
    "family_of",
    "generate",
    "instantiate",
    "lint",
    "load",
    "phrase",
    "read_cast",
    "read_material",
    "read_selection",
    "read_sources",
    "read_templates",
    "share",
    "starter_cast",
    "starter_scenarios",
    "starter_tasks",
    "stream",
    "task_key",
    "warnings",
]
