"""The extension with which mkdocstrings, run by ``make docs``, renders our docstrings as Markdown."""

from __future__ import annotations

from typing import Any

import griffe

from scripts.docstrings import markdown


class Markdown(griffe.Extension):
    """Rewrites each docstring as griffe reads it."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
