"""Language models' policies by name: ``local/my-model:temperature=0.7,reasks=1``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.policies.llm import LLMPolicy

ModelMaker = Callable[[str], ChatModel]
"""Makes the model that a name such as ``local/my-model`` means."""


# Model names may hold colons ("ollama/llama3:8b"): settings begin at the first one that "key=" follows.
_SPEC = re.compile(r"(?P<model>[^:]*/.*?)\s*(?::\s*(?P<given>\w+\s*=.*)?)?")


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.lower() == "none" else read(text)


_SETTINGS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "format": (str, "a word"),
    "temperature": (_or_none(float), "a number or 'none'"),
    "max_tokens": (_or_none(int), "a whole number or 'none'"),
    "reasks": (int, "a whole number"),
    "on_unusable": (str, "a word"),
    "context_limit": (_or_none(int), "a whole number or 'none'"),
    "examples": (Path, "a path"),
    "template": (Path, "a path"),
    "send_seed": (_truth, "'true' or 'false'"),
    "structured": (_truth, "'true' or 'false'"),
    "logprobs": (_truth, "'true' or 'false'"),
    "name": (str, "a word"),
}


def names_a_model(spec: str) -> bool:
    """Whether ``spec`` is ``PROVIDER/MODEL``, maybe with settings behind it."""
    return _SPEC.fullmatch(spec.strip()) is not None


def make_llm(spec: str, make: ModelMaker = make_model, manner: Mapping[str, Any] | None = None) -> LLMPolicy:
    """Returns the policy that ``spec`` names.

    Args:
        spec: a model, optionally followed by ``:`` and settings of :class:`LLMPolicy` as ``key=value`` with commas.
        make: makes the model; give one that knows base URL, limits and ledger, and that makes each model once.
        manner: settings of :class:`LLMPolicy` that ``spec`` need not give; its own go first.

    Raises:
        UnknownNameError: the provider or a setting is not known; names the nearest.
        InvalidValueError: a setting's value cannot be read or is out of range.
    """
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise InvalidValueError(f"policy: expected a model as PROVIDER/MODEL, got {spec!r}")
    model = match["model"]
    settings = {**(manner or {}), **_settings(model, match["given"])}
    return LLMPolicy(make(model), **settings)


def _settings(model: str, given: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in given.split(",") if given else ():
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidValueError(f"policy {model!r}: expected key=value pairs with commas between, got {pair!r}")
        if key not in _SETTINGS:
            raise UnknownNameError(f"policy {model!r}, parameter: {name_hint(key, _SETTINGS)}")
        if key in found:
            raise InvalidValueError(f"policy {model!r}: parameter {key!r} is given twice")
        found[key] = _read(model, key, text)
    return found


def _read(model: str, key: str, text: str) -> Any:
    read, expected = _SETTINGS[key]
    try:
        return read(text)
    except (ValueError, KeyError):
        raise InvalidValueError(f"policy {model!r}, {key}: expected {expected}, got {text!r}") from None
