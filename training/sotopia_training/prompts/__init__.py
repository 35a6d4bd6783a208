"""Prompt texts of training, as data files beside this module; filled by :func:`sotopia_env.foundation.prompts.fill`."""

from __future__ import annotations

from sotopia_env.foundation import prompts


def load(name: str) -> str:
    """Returns the text of ``<name>.txt`` beside this module, as :func:`sotopia_env.foundation.prompts.load` does."""
    return prompts.load(name, __name__)
