"""API keys: read from the environment only, and removed from all texts that a server sends."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.foundation.errors import InvalidValueError

DEFAULT_KEY = "OPENAI_COMPATIBLE_API_KEY"
"""The variable with the key of an OpenAI-compatible server; it may be unset, since most such servers need no key."""
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)(?:_ID)?$")
_KEY_VARIABLES: set[str] = set()  # variables that keys were read from; these are secrets whatever their name
# Characters. Shorter values, such as "1", "none" or "test", are not replaced, since that would garble texts.
_SHORTEST = 8


def read_key(variable: str | None) -> str:
    """Returns the key in ``variable``; for ``None``, the one in :data:`DEFAULT_KEY` or ``""``.

    Raises:
        InvalidValueError: ``variable`` is not set, or its value cannot be sent in a header.
    """
    _KEY_VARIABLES.add(variable or DEFAULT_KEY)
    key = os.environ.get(variable or DEFAULT_KEY, "").strip()
    if variable and not key:
        raise InvalidValueError("the environment variable of the API key is not set", field=variable)
    if not key.isprintable() or not key.isascii():
        raise InvalidValueError(field=variable or DEFAULT_KEY, expected="a key of printable ASCII characters")
    return key


def read_headers(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns headers with their values from the environment, which are treated as secrets.

    Args:
        variables: the environment variable of each header.

    Raises:
        InvalidValueError: a variable is not set, or its value cannot be sent in a header.
    """
    return {name: read_key(variable) for name, variable in variables.items()}


def secrets() -> Mapping[str, str]:
    """Returns the secrets in the environment, longest first, each with its replacement.

    Secrets are the values, of at least 8 characters, of variables that keys were read from or whose name looks like
    that of a secret.
    """
    # The replacement is "$NAME", as in a shell: brackets could look like a control token of a chat template.
    values = {
        value: f"${name}"
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and (name in _KEY_VARIABLES or _SECRET_NAME.search(name.upper()))
    }
    # If one secret contains another, the longer one must be replaced first.
    return {value: values[value] for value in sorted(values, key=len, reverse=True)}


def redact(text: str, keys: Mapping[str, str] | None = None) -> str:
    """Returns ``text`` with every key replaced, since servers repeat keys in error messages.

    Args:
        text: a text from a server.
        keys: the result of :func:`secrets`; ``None`` reads the environment again.
    """
    for value, name in (secrets() if keys is None else keys).items():
        text = text.replace(value, name)
    return text


def redact_reply(reply: ChatReply, keys: Mapping[str, str]) -> ChatReply:
    """Returns the reply with every key in its texts replaced, and then without the token ids, which spell the key."""
    texts = {name: getattr(reply, name) for name in ("text", "reasoning", "model", "finish_reason")}
    changes: dict[str, Any] = {name: clean for name, text in texts.items() if (clean := redact(text, keys)) != text}
    return replace(reply, **changes, token_ids=None, logprobs=None, alternatives=None) if changes else reply
