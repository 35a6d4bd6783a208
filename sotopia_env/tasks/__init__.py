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
from sotopia_env.tasks.casting import read_cast
from sotopia_env.tasks.checks import check, warnings
from sotopia_env.tasks.families.family import LEVELS, Draft, Family
from sotopia_env.tasks.families.registry import FAMILIES, family, family_of, generate, register_family
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.phrases import phrase, share
from sotopia_env.tasks.procedural import Source, TaskStream
from sotopia_env.tasks.task_files import CASTINGS, OpenTasks, load, read_task_file
from sotopia_env.tasks.templates import (
    Template,
    everyday_group_tasks,
    everyday_templates,
    instantiate,
)

__all__ = [
    "CASTINGS",
    "FAMILIES",
    "LEVELS",
    "Draft",
    "Family",
    "OpenTasks",
    "Source",
    "TaskStream",
    "Template",
    "check",
    "draw_characters",
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
    "warnings",
]
