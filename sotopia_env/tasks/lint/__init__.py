"""A linter of tasks, templates, scenarios and casts, in files and in the package's own sets."""

from sotopia_env.tasks.lint.material import BUILT_IN, Material, read_material
from sotopia_env.tasks.lint.report import LintProblem, lint
from sotopia_env.tasks.task_files import Record

__all__ = ["BUILT_IN", "LintProblem", "Material", "Record", "lint", "read_material"]
