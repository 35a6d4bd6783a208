"""Procedural task families with verified outcomes, task files, and the task sets of the package.

Nothing is generated or read at import; a family's module is loaded when it is first asked for.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import Any

from sotopia_env.errors import InvalidTaskError, InvalidValueError, Where
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
from sotopia_env.tasks.families import (
    FAMILIES,
    LEVELS,
    Draft,
    Family,
    Phrases,
    family,
    family_of,
    generate,
    register_family,
)
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
from sotopia_env.world.taskset import TaskSet, read_values, to_record


def load(path: str | os.PathLike[str], refused: list[str] | None = None) -> TaskSet:
    """Reads a file of tasks as :meth:`~sotopia_env.world.taskset.TaskSet.load` does, and checks every one of them.

    Args:
        path: the file.
        refused: a list to which a sentence is appended for every record that is left out because it cannot be used;
            ``None`` raises at the first one.

    Raises:
        InvalidTaskError: names file, line, field, value and nearest valid name; see :func:`check`. Or there is no task.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidValueError(field="path", expected="the path of a task file", got=path)
    tasks: dict[str, Task] = {}
    for where, raw in read_values(Path(path), refused):
        try:
            task = _checked(raw, where, tasks)
        except InvalidTaskError as error:
            if refused is None:
                raise
            refused.append(str(error))
            continue
        tasks[task.id] = task
    if not tasks:
        hint = f"the first one refused: {refused[0]}" if refused else ""
        raise InvalidTaskError(expected="at least one task", hint=hint, where=path)
    return TaskSet(list(tasks.values()))


def _checked(raw: Any, where: Where, others: Container[str]) -> Task:
    """The task in a value, which can be played and whose id is not among the others."""
    task = to_record(raw, Task, where)
    try:
        check(task)
    except InvalidTaskError as error:
        raise InvalidTaskError.of(error, where=where) from None
    if task.id in others:
        raise InvalidTaskError(
            "task ids must be unique", field="id", got=task.id, hint="rename one of them", where=where
        )
    return task


__all__ = [
    "CASTS",
    "DRAWN",
    "FAMILIES",
    "LEVELS",
    "SELECTIONS",
    "STARTER",
    "Draft",
    "Family",
    "Material",
    "OpenScenario",
    "Phrases",
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
    "register_family",
    "share",
    "starter_cast",
    "starter_scenarios",
    "starter_tasks",
    "stream",
    "task_key",
    "warnings",
]
