"""Procedural task families with verified outcomes, readers of task files, and the task sets of the package.

Importing this package generates and reads nothing; the module of a family is imported on first use.
"""

from __future__ import annotations

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
from sotopia_env.tasks.open_scenario import OpenScenario, task_key
from sotopia_env.tasks.people import draw_characters, draw_relationship
from sotopia_env.tasks.phrases import phrase, share
from sotopia_env.tasks.procedural import Source, TaskStream, stream
from sotopia_env.tasks.task_files import CASTINGS, OpenTasks, load, read_task_file
from sotopia_env.tasks.templates import (
    Template,
    everyday_group_tasks,
    everyday_templates,
    instantiate,
)

__all__ = [
    "CASTINGS",
    "CASTS",
    "DRAWN",
    "FAMILIES",
    "LEVELS",
    "STARTER",
    "Draft",
    "Family",
    "OpenScenario",
    "OpenTasks",
    "Phrases",
    "Source",
    "TaskStream",
    "Template",
    "cast_scenarios",
    "check",
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
    "load",
    "phrase",
    "read_cast",
    "read_task_file",
    "register_family",
    "share",
    "starter_cast",
    "starter_scenarios",
    "starter_tasks",
    "stream",
    "task_key",
    "warnings",
]
