"""Settings that earlier versions recorded in ``stage.json``, in the present form.

A stage compares its settings with the recorded ones before it continues. A setting that was deleted may be left out of
this comparison only if the run used the value that is now fixed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sotopia_env.foundation.settings import Settings

_FIXED: Mapping[str, Any] = {
    "level": "medium",
    "temperature": 1.0,
    "max_tokens": None,
    "dtype": "auto",
    "max_batch": 64,
    "seed": 0,
    "layers": 2,
    "heads": 4,
    "context": 1024,
    "vocabulary": 1024,
}
_SOURCE: Mapping[str, Any] = {"n": None, "level": "medium", "seed": 0, "split": None}
"""The options of a source of tasks, which earlier versions wrote as a mapping, with their defaults."""
_OF_A_WRITER = {"max_tokens": 1024}
"""The value of deleted settings in a writing model, where it differs from their value elsewhere."""


def present_settings(recorded: Any, kind: type[Settings]) -> Any:
    """Returns recorded settings in the form of this version, with defaults for settings that it has added.

    Settings that cannot be expressed in this form remain as they are, so that they differ from all others.
    """
    try:
        return kind.model_validate(recorded).model_dump(mode="json")
    except ValidationError as error:
        settings = copy.deepcopy(recorded)
        changes = [_corrected(settings, item) for item in error.errors()]
        return present_settings(settings, kind) if all(changes) else settings


def _corrected(settings: Any, problem: Mapping[str, Any]) -> bool:
    """Deletes or renames one invalid setting; returns whether that is possible."""
    if not isinstance(settings, dict) or not problem["loc"]:
        return False
    *path, name = problem["loc"]
    parent: Any = settings
    for part in path:
        # Pydantic puts the tags of unions into the path, which are no keys.
        if isinstance(part, int) or (isinstance(parent, dict) and part in parent):
            parent = parent[part]
    value = problem["input"]
    if problem["type"] == "extra_forbidden":
        fixed = (_OF_A_WRITER if "inspirations" in parent else {}).get(name, _FIXED.get(name, _Unknown))
        return value == fixed and parent.pop(name, _Unknown) is not _Unknown
    if isinstance(value, dict) and "source" in value and value.keys() <= {"source", *_SOURCE}:
        parent[name] = _source_name(value)
        return True
    return False


class _Unknown:
    """A marker that differs from the value of every setting."""


def _source_name(source: Mapping[str, Any]) -> str:
    """Returns the name of a source of tasks that was recorded as a mapping."""
    options = [f"{key}={source[key]}" for key, default in _SOURCE.items() if source.get(key, default) != default]
    return ":".join([source["source"], *([",".join(options)] if options else [])])
