"""Settings as a form for people: the fields of a record of settings, what a browser sends for them, and back.

A browser sends a text for each field; its name is the path of the setting, such as ``interview.0.text``. One function
makes the form of any class of settings, so whatever a file can say can be said in a form, and the other way round.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sotopia_env.foundation.errors import FieldError, InvalidValueError, joined
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.validation import invalid_part
from sotopia_env.foundation.yaml_text import parse_yaml, to_yaml

RecordT = TypeVar("RecordT", bound=BaseModel)


class SettingHint(Settings):
    """The words of a setting for people.

    Attributes:
        label: its name.
        hint: a line on its meaning.
        widget: the name of its widget; ``long`` for a text of several lines, ``wide`` for a long line.
        one: what one row of a list is called.
        when: the value of the setting ``kind`` to which it belongs.
    """

    label: str
    hint: str = ""
    widget: str = ""
    one: str = ""
    when: str = ""


Hints = Mapping[str, SettingHint]
"""The hints by class and name of the setting, such as ``Study.title``, in the order of fields in a row.

A setting without a hint is in the form as well, under its own name.
"""
_LONG = 80
"""Characters from which a text gets a field of several lines."""


@dataclass(frozen=True, slots=True)
class FieldShape:
    """How the value of a setting is written in a form.

    Attributes:
        kind: ``text``, ``number``, ``flag``, ``choice`` (one of ``options``), ``lines`` (a text for each line),
            ``rows`` (a list of ``record``), ``group`` (a ``record``) or ``yaml`` (any other value).
        options: the values of a choice.
        record: the class of settings in rows and groups.
        optional: whether the value may be ``None``, which is an empty field.
    """

    kind: str
    options: tuple[str, ...] = ()
    record: type[BaseModel] | None = None
    optional: bool = False


def written(kind: type[BaseModel]) -> dict[str, FieldInfo]:
    """Returns the settings of a class that people write: all but those that are marked as hidden."""
    every = kind.model_fields
    return {name: every[name] for name in every if every[name].json_schema_extra != {"hidden": True}}


def shape_of(field: FieldInfo) -> FieldShape:
    """Returns the shape of a setting, by its type."""
    members = _members(field.annotation)
    optional = type(None) in members
    kinds = [member for member in members if member is not type(None)]
    first = kinds[0]
    if get_origin(first) is Literal:
        return FieldShape("choice", tuple(map(str, get_args(first))), optional=optional)
    if get_origin(first) is tuple:
        inner = get_args(first)[0]
        return FieldShape("rows", record=inner) if _is_record(inner) else FieldShape("lines")
    if _is_record(first):
        return FieldShape("group", record=first)
    if first is bool:
        return FieldShape("flag", ("true", "false"))
    if str in kinds:
        return FieldShape("text", optional=optional)
    return FieldShape("number" if first in (int, float) else "yaml", optional=optional)


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@dataclass(frozen=True, slots=True)
class SettingField:
    """One field of a form.

    Attributes:
        path: the path of the setting, which is the name of the field.
        words: its name for people, and further words.
        shape: how the value is written.
        widget: the kind of the shape, or a widget of its own.
        value: the text in the field.
        is_long: whether the text needs several lines.
        needed: whether it may not be empty.
        rows: the fields of each row; of a group, of the only one.
    """

    path: str
    words: SettingHint
    shape: FieldShape
    widget: str
    value: str = ""
    is_long: bool = False
    needed: bool = False
    rows: tuple[tuple[SettingField, ...], ...] = ()


def fields_of(
    kind: type[BaseModel], hints: Hints, sent: Mapping[str, str], prefix: str = ""
) -> tuple[SettingField, ...]:
    """Returns the fields of a class of settings, filled with what a browser has sent, or else with the defaults."""
    order = {key.partition(".")[2]: number for number, key in enumerate(hints) if key.startswith(f"{kind.__name__}.")}
    fields = list(_fields(kind, hints, sent, prefix))
    return tuple(sorted(fields, key=lambda field: order.get(field.path[len(prefix) :], -1)))


def _fields(kind: type[BaseModel], hints: Hints, sent: Mapping[str, str], prefix: str) -> Iterator[SettingField]:
    for name, setting in written(kind).items():
        path, shape = f"{prefix}{name}", shape_of(setting)
        hint = next((hints[key] for base in kind.__mro__ if (key := f"{base.__name__}.{name}") in hints), None)
        if hint is None and len(shape.options) == 1:  # the tag of a kind, which nobody chooses
            continue
        hint = hint or SettingHint(label=name.replace("_", " ").capitalize())
        rows: tuple[tuple[SettingField, ...], ...] = ()
        if shape.record is not None:
            numbers = [f"{path}.{n}." for n in range(row_count(sent, path))] if shape.kind == "rows" else [f"{path}."]
            rows = tuple(fields_of(shape.record, hints, sent, start) for start in numbers)
        value = sent.get(path, "")
        is_long = len(value) > _LONG or "\n" in value or hint.widget == "long"
        widget = shape.kind if hint.widget in ("", "long", "wide") else hint.widget
        needed = setting.is_required()
        yield SettingField(path, hint, shape, widget, value, is_long, needed, rows)


def labels_of(fields: Iterable[SettingField], start: str = "") -> dict[str, str]:
    """Returns where each setting is, for people: ``factor 1: level 2: Value``."""
    labels: dict[str, str] = {}
    for field in fields:
        labels[field.path] = f"{start}{field.words.label}"
        for number, row in enumerate(field.rows, start=1):
            is_list = field.shape.kind == "rows"
            inner = f"{start}{field.words.one or 'row'} {number}" if is_list else field.words.label
            labels |= {f"{field.path}.{number - 1}": inner} if is_list else {}
            labels |= labels_of(row, f"{inner}: ")
    return labels


def row_count(sent: Mapping[str, str], path: str) -> int:
    """Returns the number of rows of a list in what a browser has sent."""
    heads = (name[len(path) + 1 :].partition(".")[0] for name in sent if name.startswith(f"{path}."))
    return max((int(head) + 1 for head in heads if head.isdecimal() and len(head) < 4), default=0)


def values_of(kind: type[BaseModel], sent: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Returns the values of settings that a browser has sent, to be validated; what it did not send is left out."""
    values: dict[str, Any] = {}
    for name, setting in written(kind).items():
        path, shape = f"{prefix}{name}", shape_of(setting)
        text = sent.get(path)
        if shape.record is not None:
            count = row_count(sent, path)
            if shape.kind == "group":
                values[name] = values_of(shape.record, sent, f"{path}.")
            # An empty list is not the default of every list, so a form sends the path of a list besides its rows.
            elif count or text is not None:
                values[name] = [values_of(shape.record, sent, f"{path}.{number}.") for number in range(count)]
        elif text is not None:
            value = _value(shape, text.replace("\r\n", "\n"))
            if value is not None or shape.optional:
                values[name] = value
            elif shape.kind == "text" and not setting.is_required():
                values[name] = ""
    return values


def _value(shape: FieldShape, text: str) -> Any:
    """The value in the text of a field; ``None`` for an empty one."""
    if shape.kind == "lines":
        return [line.strip() for line in text.split("\n") if line.strip()]
    if not text.strip() and (shape.kind != "text" or not text):
        return None
    if shape.kind == "yaml":
        with suppress(InvalidValueError):  # then the text itself is refused, beside its field
            return parse_yaml(text, "")
    return text if shape.kind == "text" else text.strip()


def sent_of(record: BaseModel, prefix: str = "") -> dict[str, str]:
    """Returns what a browser would send for a record: :func:`values_of` gives the values of the record back."""
    sent: dict[str, str] = {}
    for name, setting in written(type(record)).items():
        path, value = f"{prefix}{name}", getattr(record, name)
        shape = shape_of(setting)
        if shape.kind == "group":
            sent |= sent_of(value, f"{path}.")
        elif shape.kind == "rows":
            sent[path] = ""
            for number, row in enumerate(value):
                sent |= sent_of(row, f"{path}.{number}.")
        else:
            sent[path] = _text(shape, value)
    return sent


def _text(shape: FieldShape, value: Any) -> str:
    if value is None:
        return ""
    if shape.kind == "lines":
        return "\n".join(value)
    if shape.kind == "yaml":
        return to_yaml(value) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


@dataclass(frozen=True, slots=True)
class Edited(Generic[RecordT]):
    """A submitted form.

    Attributes:
        fields: the fields as the browser sent them, to fill the form in again.
        record: the record; ``None`` if a field is invalid.
        problems: messages by field; under an empty name, messages that belong to no field.
    """

    fields: Mapping[str, str]
    record: RecordT | None
    problems: Mapping[str, str]


def edited(kind: type[RecordT], values: Mapping[str, Any], fields: Mapping[str, str]) -> Edited[RecordT]:
    """Reads a record.

    Args:
        kind: the class of the record.
        values: the values made from the fields; problems are named by these keys, with dots between nested keys.
        fields: the fields as the browser sent them.
    """
    try:
        return Edited(fields, kind.model_validate(dict(values)), {})
    except ValidationError as error:
        problems: dict[str, str] = {}
        for item in error.errors():
            problem = invalid_part(item)
            path = joined(".".join(str(part) for part in item["loc"]), problem.field)
            problems.setdefault(_form_field(path, fields), _sentence(item["type"], problem))
        return Edited(fields, None, problems)


def _form_field(path: str, fields: Mapping[str, str]) -> str:
    """The field of the form that a path belongs to: the path itself, or the part of it that has a field."""
    while path and path not in fields:
        path = path.rpartition(".")[0]
    return path


def _sentence(kind: str, problem: FieldError) -> str:
    text = "this is needed" if kind == "missing" else str(problem)
    return text[:1].upper() + text[1:]


def with_rows(sent: Mapping[str, str], path: str, rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Returns what a browser has sent, with other rows in a list."""
    changed = {name: text for name, text in sent.items() if not name.startswith(f"{path}.")} | {path: ""}
    for number, row in enumerate(rows):
        changed |= {f"{path}.{number}.{name}": text for name, text in row.items()}
    return changed


def rows_of(sent: Mapping[str, str], path: str) -> list[dict[str, str]]:
    """Returns the rows of a list in what a browser has sent, with the paths within a row."""
    starts = [f"{path}.{number}." for number in range(row_count(sent, path))]
    return [{name[len(start) :]: text for name, text in sent.items() if name.startswith(start)} for start in starts]


def blank(kind: type[BaseModel]) -> dict[str, str]:
    """Returns what a browser would send for a new row of a class of settings, with as few rows in it as may be."""
    row: dict[str, str] = {}
    for name, setting in written(kind).items():
        shape = shape_of(setting)
        fewest = max((getattr(item, "min_length", 0) for item in setting.metadata), default=0)
        if shape.record is not None and shape.kind == "rows":
            row |= with_rows({}, name, [blank(shape.record)] * fewest)
        elif shape.record is not None:
            row |= {f"{name}.{inner}": text for inner, text in blank(shape.record).items()}
        elif setting.is_required():
            row[name] = shape.options[0] if shape.options else ""
        else:
            row[name] = _text(shape, setting.get_default())
    return row


def record_at(kind: type[BaseModel], path: str) -> type[BaseModel]:
    """Returns the class of the rows of the list at a path.

    Raises:
        InvalidValueError: there is no list at the path.
    """
    inner: type[BaseModel] | None = kind
    for part in path.split("."):
        if part.isdecimal():
            continue
        setting = inner.model_fields.get(part) if inner is not None else None
        inner = None if setting is None else shape_of(setting).record
    if inner is None:
        raise InvalidValueError(field="path", expected="the path of a list of settings", got=path)
    return inner
