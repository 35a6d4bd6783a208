"""Settings of runs and of training stages, read from YAML and ``key=value`` overrides into frozen records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, excerpt, joined
from sotopia_env.foundation.validation import invalid_part
from sotopia_env.foundation.yaml_text import parse_yaml, read_yaml


class Settings(BaseModel):
    """Base of all settings: frozen; undeclared keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_SettingsT = TypeVar("_SettingsT", bound=Settings)


def read_settings(path: str | Path, kind: type[_SettingsT], overrides: Sequence[str] = ()) -> _SettingsT:
    """Reads a YAML file, with ``key=value`` overrides on top (``a.b=3`` for nested keys, values as YAML).

    Raises:
        InvalidValueError: the file cannot be read, is not YAML, or holds an invalid value.
        UnknownNameError: a key does not exist; the message names the nearest one.
    """
    return settings_of(overridden(read_values(path), overrides, "--set"), kind, str(path))


def read_values(path: str | Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file, or raises :class:`InvalidValueError`."""
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise InvalidValueError(expected="a mapping of settings", got=type(values), where=path)
    return values


def settings_of(values: dict[str, Any], kind: type[_SettingsT], origin: str) -> _SettingsT:
    """Returns the settings in a mapping; raises the errors of :func:`read_settings`, with ``origin`` as location."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # Only the first problem is reported: correcting it often removes the others.
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            parent, prefix = _record_at(kind, first["loc"][:-1])
            name = str(first["loc"][-1])
            raise UnknownNameError(
                "unknown setting", field=joined(prefix, name), got=name, valid=parent.model_fields, where=origin
            ) from None
        path = _record_at(kind, first["loc"])[1]
        raise InvalidValueError.of(invalid_part(first), within=path, where=origin) from None


def overridden(values: dict[str, Any], overrides: Sequence[str], origin: str) -> dict[str, Any]:
    """Returns ``values``, changed by ``key=value`` texts (``a.b=3`` for nested keys, values as YAML).

    Raises:
        InvalidValueError: a text is not of this form.
    """
    for override in overrides:
        _override(values, override, origin)
    return values


def merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Returns nested settings in which ``more`` takes precedence over ``values``."""
    both = dict(values)
    for name, value in more.items():
        own = both.get(name)
        both[name] = merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return both


def _override(values: dict[str, Any], override: str, origin: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise InvalidValueError(field=origin, expected="KEY=VALUE", got=override)
    *parents, last = name.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InvalidValueError(f"{parent!r} does not have nested settings", field=origin, got=override)
        values = inner
    values[last] = parse_yaml(text, f"{origin} {excerpt(override)}")


def _record_at(kind: type[BaseModel], path: Sequence[int | str]) -> tuple[type[BaseModel], str]:
    """Returns the settings class at ``path``, and the path as in the file, without the tags of unions.

    The class is ``kind`` itself if no part of the path belongs to another settings class.
    """
    # Pydantic puts the tag of a union's member into the path, as an extra part after the name of the field.
    names: list[str] = []
    choice: list[type[BaseModel]] = []
    for part in path:
        tagged = next((member for member in choice if _is_tag(part, member)), None)
        if tagged is not None:
            kind, choice = tagged, []
            continue
        names.append(str(part))
        field = kind.model_fields.get(str(part))
        choice = [member for member in _types(field.annotation) if issubclass(member, BaseModel)] if field else []
        kind = choice[0] if choice else kind
    return kind, ".".join(filter(None, names))


def _is_tag(part: int | str, member: type[BaseModel]) -> bool:
    """Whether ``part`` is pydantic's tag of a union member: its class name, or the only value of one of its fields."""
    literals = [get_args(field.annotation) for field in member.model_fields.values()]
    return part == member.__name__ or (part,) in literals


def _types(annotation: Any) -> list[type]:
    if isinstance(annotation, type) and not getattr(annotation, "__args__", ()):
        return [annotation]
    return [member for part in getattr(annotation, "__args__", ()) for member in _types(part)]
