"""The families of procedural tasks, one module for each, loaded when it is first asked for."""

from sotopia_env.tasks.families.family import LEVELS, Family
from sotopia_env.tasks.families.registry import FAMILIES, family, family_of, generate

__all__ = ["FAMILIES", "LEVELS", "Family", "family", "family_of", "generate"]
