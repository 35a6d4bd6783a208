"""Settings of training stages: YAML read into frozen records, before any heavy import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sotopia_env.errors import InvalidValueError, UnknownNameError, excerpt, joined
from sotopia_env.records import invalid_part
from sotopia_env.yaml_text import parse_yaml, read_yaml


class Settings(BaseModel):
    """Base of all settings: frozen; undeclared keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_SettingsT = TypeVar("_SettingsT", bound=Settings)


class LoraSettings(Settings):
    """Low-rank adaptation (SOTOPIA-π, arXiv 2403.08715, B.5; SOTOPIA-RL, C.1: the same rank, alpha and dropout).

    Attributes:
        rank: of the two factors; at least 1.
        alpha: the update is scaled by alpha / rank.
        dropout: before the first factor, from 0 to below 1.
        target_modules: names of the adapted layers, or ``"all-linear"``.
    """

    rank: int = Field(default=8, ge=1)
    alpha: int = Field(default=16, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    target_modules: str | tuple[str, ...] = "all-linear"


class ModelSettings(Settings):
    """The model that a stage starts from.

    Attributes:
        base: directory or hub name of the base model.
        adapter: directory of an adapter on ``base`` to start from; ``None`` starts from the base itself.
        lora: the adapter to train; ``None`` trains all weights.
        quantization: ``"nf4"`` loads the base in 4 bit with double quantisation (QLoRA), ``"none"`` as it is.
        dtype: of the weights (of the computation, with ``nf4``).
        attention: transformers' ``attn_implementation``; ``None`` for its default.
    """

    base: str
    adapter: str | None = None
    lora: LoraSettings | None = LoraSettings()
    quantization: str = Field(default="none", pattern="^(none|nf4)$")
    dtype: str = Field(default="float32", pattern="^(float32|bfloat16|float16)$")
    attention: str | None = None


class PromptSettings(Settings):
    """Format and limits of prompts; saved beside every trained model, which is prompted the same way when it plays.

    Attributes:
        format: see :mod:`sotopia_env.policies.agent_prompt`; what is trained is text, not function calls.
        max_length: tokens of prompt and answer together; longer prompts lose their oldest turns.
        max_answer: of these, tokens reserved for the answer.
        chat_template: replaces the model's own, e.g. one that keeps conversations as they were (Mistral's does not).
        chat_template_kwargs: arguments of the model's chat template, e.g. ``{enable_thinking: false}`` of Qwen3.
    """

    format: Literal["chat", "single", "brief"] = "chat"
    max_length: int = Field(default=4096, ge=16)
    max_answer: int = Field(default=256, ge=1)
    chat_template: str | None = None
    chat_template_kwargs: dict[str, bool | int | float | str] = {}


class Assumptions(Settings):
    """What a forecast takes for granted, because no file says it yet.

    Attributes:
        devices: the forecast is made for one device and for so many.
        rows: answers, conversations or prompts to train on; ``None`` counts them in the data.
        row_tokens: mean tokens of a row, prompt and answer together; ``None`` takes the longest possible row.
        answer_tokens: mean tokens of an answer; ``None`` takes the longest possible one.
        base: the base model, where the stage that is started from has not run yet.
        scorer: the reward model's base, where it is not trained yet.
        max_length: tokens of prompt and answer, where the earlier stage's prompt settings do not exist yet.
        max_answer: tokens of an answer, likewise.
        trained_per_second: tokens that one device trains on in a second; ``None`` leaves the hours unknown.
        sampled_per_second: tokens that one device samples in a second, likewise.
        device_memory: of one device, in GB; of which vLLM takes its share.
    """

    devices: int = Field(default=8, ge=1)
    rows: int | None = Field(default=None, ge=1)
    row_tokens: float | None = Field(default=None, gt=0)
    answer_tokens: float | None = Field(default=None, gt=0)
    base: str | None = None
    scorer: str | None = None
    max_length: int = Field(default=4096, ge=16)
    max_answer: int = Field(default=256, ge=1)
    trained_per_second: float | None = Field(default=None, gt=0)
    sampled_per_second: float | None = Field(default=None, gt=0)
    device_memory: float = Field(default=80.0, gt=0)


def read_settings(path: str | Path, kind: type[_SettingsT], overrides: Sequence[str] = ()) -> _SettingsT:
    """Reads a YAML file, with ``key=value`` overrides on top (``a.b=3`` for nested keys, values as YAML).

    Raises:
        InvalidValueError: the file cannot be read, is not YAML, or holds an invalid value.
        UnknownNameError: a key does not exist; the message names the nearest one.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise InvalidValueError(expected="a mapping of settings", got=type(values), where=path)
    return settings_of(_overridden(values, overrides, "--set"), kind, str(path))


def read_overrides(overrides: Sequence[str], kind: type[_SettingsT], origin: str) -> _SettingsT:
    """Returns settings made of ``key=value`` alone; errors are those of :func:`read_settings`."""
    return settings_of(_overridden({}, overrides, origin), kind, origin)


def settings_of(values: dict[str, Any], kind: type[_SettingsT], origin: str) -> _SettingsT:
    """Returns the settings in a mapping; errors name ``origin`` and are those of :func:`read_settings`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            parent, prefix = _record_at(kind, first["loc"][:-1])
            name = str(first["loc"][-1])
            raise UnknownNameError(
                "unknown setting", field=joined(prefix, name), got=name, valid=parent.model_fields, where=origin
            ) from None
        path = _record_at(kind, first["loc"])[1]
        raise InvalidValueError.of(invalid_part(first), within=path, where=origin) from None


def _overridden(values: dict[str, Any], overrides: Sequence[str], origin: str) -> dict[str, Any]:
    for override in overrides:
        _override(values, override, origin)
    return values


def _override(values: dict[str, Any], override: str, origin: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise InvalidValueError(field=origin, expected="KEY=VALUE", got=override)
    *parents, last = name.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InvalidValueError(f"{parent!r} holds no settings of its own", field=origin, got=override)
        values = inner
    values[last] = parse_yaml(text, f"{origin} {excerpt(override)}")


def _record_at(kind: type[BaseModel], path: Sequence[int | str]) -> tuple[type[BaseModel], str]:
    """The settings class at ``path``, and the path as in the file, without the tags of unions.

    The class is ``kind`` itself where the path leads through no settings class.
    """
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
    return kind, ".".join(names)


def _is_tag(part: int | str, member: type[BaseModel]) -> bool:
    """Whether ``part`` is pydantic's tag of a union member: its class name, or the only value of one of its fields."""
    literals = [get_args(field.annotation) for field in member.model_fields.values()]
    return part == member.__name__ or (part,) in literals


def _types(annotation: Any) -> list[type]:
    if isinstance(annotation, type) and not getattr(annotation, "__args__", ()):
        return [annotation]
    return [member for part in getattr(annotation, "__args__", ()) for member in _types(part)]
