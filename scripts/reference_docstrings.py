"""Turns the reStructuredText of docstrings into the Markdown of the documentation site.

mkdocstrings, which ``make docs`` runs, renders docstrings as Markdown. Ours name objects as PyCharm and Sphinx read
them, such as ``:class:`~sotopia_env.world.Task```, and open a block of code with ``::``.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":[a-z]+:`(~?)([^`]+)`")
_LITERAL = re.compile(r"^(.*?) ?::$", re.MULTILINE)


def markdown(text: str) -> str:
    """Returns a docstring with roles as code, the last part of a name after ``~``, and without ``::``."""
    text = _ROLE.sub(lambda match: f"`{match[2].rpartition('.')[2] if match[1] else match[2]}`", text)
    return _LITERAL.sub(lambda match: f"{match[1]}:" if match[1] else "", text)


class Markdown(griffe.Extension):
    """Rewrites each docstring as griffe reads it."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
