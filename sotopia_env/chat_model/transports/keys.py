"""API keys: read from the environment only, and removed from everything that a server sends."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.errors import InvalidValueError

DEFAULT_KEY = "OPENAI_COMPATIBLE_API_KEY"
"""The variable that holds the key of an OpenAI-compatible server; it may be unset, most such servers take none."""
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)(?:_ID)?$")
_KEY_VARIABLES: set[str] = set()  # variables that keys were read from: secrets under any name
_SHORTEST = 8
"""Characters; shorter values ("1", "none", "test") are left as they are, since replacing them would garble texts."""


def read_key(variable: str | None) -> str:
    """Returns the key in ``variable``; with ``None`` the one in :data:`DEFAULT_KEY`, or ``""``.

    Raises:
        InvalidValueError: the named variable is not set, or cannot stand in a header.
    """
    _KEY_VARIABLES.add(variable or DEFAULT_KEY)
    key = os.environ.get(variable or DEFAULT_KEY, "").strip()
    if variable and not key:
        raise InvalidValueError("the environment variable of the API key is not set", field=variable)
    if not key.isprintable() or not key.isascii():
        raise InvalidValueError(field=variable or DEFAULT_KEY, expected="a key of printable ASCII characters")
    return key


def secrets() -> Mapping[str, str]:
    """Returns the keys in the environment, of at least 8 characters, by value, longest first; with what replaces them.

    These are the variables that keys were read from, and those that have the name of a secret.
    """
    values = {
        value: f"${name}"  # as a shell has it; brackets would have the shape of a control token
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and (name in _KEY_VARIABLES or _SECRET_NAME.search(name.upper()))
    }
    return {value: values[value] for value in sorted(values, key=len, reverse=True)}


def redact(text: str, keys: Mapping[str, str] | None = None) -> str:
    """Returns ``text`` with every key replaced: servers echo them in their messages.

    Args:
        text: from a server.
        keys: of :func:`secrets`; ``None`` reads the environment now.
    """
    for value, name in (secrets() if keys is None else keys).items():
        text = text.replace(value, name)
    return text


def redact_reply(reply: ChatReply, keys: Mapping[str, str]) -> ChatReply:
    """Returns the reply with every key in its texts replaced; then without the token ids, which spell it, too."""
    texts = {name: getattr(reply, name) for name in ("text", "reasoning", "model", "finish_reason")}
    changes: dict[str, Any] = {name: clean for name, text in texts.items() if (clean := redact(text, keys)) != text}
    return replace(reply, **changes, token_ids=None, logprobs=None) if changes else reply
