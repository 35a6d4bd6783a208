"""Prompt texts of training, as data files beside this module; filled by :func:`sotopia_env.prompts.fill`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sotopia_env.errors import UnknownNameError, name_hint


@cache
def load(name: str) -> str:
    """Returns the text of ``prompts/<name>.txt``.

    Raises:
        UnknownNameError: there is no such file.
    """
    folder = files(__name__)
    try:
        return (folder / f"{name}.txt").read_text(encoding="utf-8").strip("\n")
    except FileNotFoundError:
        known = sorted(entry.name[:-4] for entry in folder.iterdir() if entry.name.endswith(".txt"))
        raise UnknownNameError(f"prompt: {name_hint(name, known)}") from None
