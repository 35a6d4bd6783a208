"""API keys: read from the environment only, and removed from all messages."""

from __future__ import annotations

import os
import re

from sotopia_env.errors import InvalidValueError

DEFAULT_KEY = "OPENAI_COMPATIBLE_API_KEY"
"""The variable that holds the key of an OpenAI-compatible server; it may be unset, most such servers take none."""
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)(?:_ID)?$")
_KEY_VARIABLES: set[str] = set()  # variables that keys were read from: secrets under any name
_SHORTEST = 6  # shorter values ("1", "true", "none") are no secrets, and replacing them would garble messages


def read_key(variable: str | None) -> str:
    """Returns the key in ``variable``; with ``None`` the one in :data:`DEFAULT_KEY`, or ``""``.

    Raises:
        InvalidValueError: the named variable is not set, or cannot stand in a header.
    """
    _KEY_VARIABLES.add(variable or DEFAULT_KEY)
    key = os.environ.get(variable or DEFAULT_KEY, "").strip()
    if variable and not key:
        raise InvalidValueError(f"expected an API key in the environment variable {variable}, which is not set")
    if not key.isprintable() or not key.isascii():
        raise InvalidValueError(f"{variable or DEFAULT_KEY}: expected a key of printable ASCII characters")
    return key


def redact(text: str) -> str:
    """Returns ``text`` with every secret of the environment replaced: servers echo keys in their messages."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and value in text and (name in _KEY_VARIABLES or _SECRET_NAME.search(name.upper())):
            text = text.replace(value, f"[{name}]")
    return text
