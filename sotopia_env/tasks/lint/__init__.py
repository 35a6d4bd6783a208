"""A lint for tasks, templates, scenarios and casts: files of any of them, and the package's own sets."""

from sotopia_env.tasks.lint.material import BUILT_IN, Material, Record, read_material
from sotopia_env.tasks.lint.report import Problem, lint

__all__ = ["BUILT_IN", "Material", "Problem", "Record", "lint", "read_material"]
