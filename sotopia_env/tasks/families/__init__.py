"""Families of procedural tasks, one module each; a module is imported on first use of its family."""

from sotopia_env.tasks.families.family import LEVELS, Draft, Family, Phrases
from sotopia_env.tasks.families.registry import FAMILIES, family, family_of, generate, register_family

__all__ = ["FAMILIES", "LEVELS", "Draft", "Family", "Phrases", "family", "family_of", "generate", "register_family"]
