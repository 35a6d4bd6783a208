"""Prompt texts, as data files beside this module, and the function that fills them.

A placeholder is ``{{name}}``. Substitution is a single pass, so a placeholder inside a value stays as it is.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from sotopia_env.errors import InvalidValueError, UnknownNameError

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@cache
def load(name: str, package: str = __name__) -> str:
    """Returns the text of ``<name>.txt`` beside this module, or in another package of prompt texts.

    Raises:
        UnknownNameError: there is no such file.
    """
    folder = files(package)
    try:
        return (folder / f"{name}.txt").read_text(encoding="utf-8").strip("\n")
    except FileNotFoundError:
        names = sorted(entry.name[:-4] for entry in folder.iterdir() if entry.name.endswith(".txt"))
        raise UnknownNameError(field="prompt", got=name, valid=names) from None


def fill(template: str, **values: str) -> str:
    """Returns ``template`` with every placeholder replaced, in one pass.

    Raises:
        InvalidValueError: the placeholders of the template are not exactly the given names.
    """
    placeholders = set(_PLACEHOLDER.findall(template))
    if placeholders != set(values):
        raise InvalidValueError(
            field="template", expected=f"the placeholders {sorted(values)}", got=sorted(placeholders)
        )
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)
