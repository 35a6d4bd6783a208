"""A lint for tasks, templates, scenarios and casts: files of any of them, and the package's own sets."""

from sotopia_env.tasks.lint.material import BUILT_IN, Material, read_material
from sotopia_env.tasks.lint.report import Problem, lint
from sotopia_env.tasks.task_files import Record

__all__ = ["BUILT_IN", "Material", "Problem", "Record", "lint", "read_material"]
