"""Prompt texts of training, as data files beside this module; filled by :func:`sotopia_env.prompts.fill`."""

from __future__ import annotations

from sotopia_env import prompts


def load(name: str) -> str:
    """Returns the text of ``<name>.txt`` beside this module; errors are those of :func:`sotopia_env.prompts.load`."""
    return prompts.load(name, __name__)
