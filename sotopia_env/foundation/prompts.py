"""Prompt texts, which are data files of the packages that use them, and the function that fills in their placeholders.

A placeholder is ``{{name}}``. Substitution is a single pass, so a placeholder inside a value is not replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@cache
def reader(package: str) -> Callable[[str], str]:
    """Returns the function that returns the text of ``prompts/<name>.txt`` in a package, and reads it once.

    Args:
        package: the package's full name, in its own modules ``__package__``.

    Raises:
        UnknownNameError: (the function) the package does not contain this file.
    """

    @cache
    def load(name: str) -> str:
        folder = files(package) / "prompts"
        try:
            return (folder / f"{name}.txt").read_text(encoding="utf-8").strip("\n")
        except FileNotFoundError:
            names = sorted(entry.name[:-4] for entry in folder.iterdir() if entry.name.endswith(".txt"))
            raise UnknownNameError(field="prompt", got=name, valid=names) from None

    return load


def fill(template: str, **values: str) -> str:
    """Returns ``template`` with every placeholder replaced by the value of its name.

    Raises:
        InvalidValueError: the placeholders of the template are not exactly the names in ``values``.
    """
    placeholders = set(_PLACEHOLDER.findall(template))
    if placeholders != set(values):
        raise InvalidValueError(
            field="template", expected=f"the placeholders {sorted(values)}", got=sorted(placeholders)
        )
    # One pass: values are texts from outside, and a ``{{goal}}`` in one must not be filled in.
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)
