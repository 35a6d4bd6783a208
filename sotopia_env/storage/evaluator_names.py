"""Names of evaluators: the recorded name for the one in a configuration, and labels that say how two of them differ.

A judge's recorded name ends with a hash of its options: ``judge(MODEL)#217f3f``. Its options are in the parameters of
its evaluations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.json_text import canonical_json

Parameters = Mapping[str, Mapping[str, Any]]
"""The parameters of evaluators, by recorded name."""
_TAG = re.compile("#[0-9a-f]{6}")
# The wording of prompts is not an option, and those who share a name before the hash share the model.
_NO_OPTIONS = ("prompt", "model")


def recorded_evaluator(
    name: str, recorded: Collection[str], parameters: Parameters | None = None, setting: str = "evaluator"
) -> str:
    """Returns the recorded name for the name in a configuration, such as ``judge(MODEL)#217f3f`` for ``judge:MODEL``.

    Args:
        name: a recorded name, or the name in a configuration; options (``judge:MODEL:bands=true``) choose among
            evaluators of one model.
        recorded: the recorded names.
        parameters: the parameters of their evaluations.
        setting: the field in the error message.

    Raises:
        UnknownNameError: no recorded name matches, or several match, which are named with their options.
    """
    if name in recorded:
        return name
    matches = [item for item in recorded if _matches(name.split("+"), item, parameters or {})]
    if len(matches) == 1:
        return matches[0]
    labels = evaluator_labels(matches, parameters or {}) if matches else {}
    hint = f"{len(matches)} match: {'; '.join(sorted(labels.values()))}; name one by its options" if matches else ""
    raise UnknownNameError(field=setting, got=name, valid=sorted(matches or recorded), hint=hint)


def _matches(parts: Collection[str], recorded: str, parameters: Parameters) -> bool:
    members = recorded.split("+")
    own = parameters.get(recorded, {})
    return len(parts) == len(members) and all(
        _is_recorded_as(part, member, own.get("members", {}).get(member, own))
        for part, member in zip(parts, members, strict=True)
    )


def _is_recorded_as(part: str, member: str, parameters: Mapping[str, Any]) -> bool:
    kind, colon, model = part.partition(":")
    base = _TAG.sub("", member)
    if base == (f"{kind}({model})" if colon else part):
        return True
    # A model's name may contain colons, but no equals sign.
    model, _, options = model.rpartition(":")
    pairs = [option.partition("=") for option in options.split(",")]
    return base == f"{kind}({model})" and all(
        equals and key in parameters and value in (parameters[key], canonical_json(parameters[key]))
        for key, equals, value in pairs
    )


def evaluator_labels(names: Iterable[str], parameters: Parameters) -> Mapping[str, str]:
    """Returns a label for each evaluator: its name, and the options in which those differ that share all but the hash.

    Args:
        names: the recorded names.
        parameters: the parameters of their evaluations.
    """
    names = list(names)
    labels = {}
    for name in names:
        others = [item for item in names if item != name and _TAG.sub("", item) == _TAG.sub("", name)]
        texts = {key: canonical_json(value) for key, value in parameters.get(name, {}).items()}
        differing = [
            f"{key}={text}"
            for key, text in texts.items()
            if key not in _NO_OPTIONS
            and any(canonical_json(parameters.get(other, {}).get(key)) != text for other in others)
        ]
        labels[name] = f"{name} ({', '.join(differing)})" if differing else name
    return labels
