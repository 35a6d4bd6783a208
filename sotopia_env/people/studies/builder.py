"""The builder of studies: its words, drafts of studies as forms, and the changes of rows in a draft."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sotopia_env import naming, tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings, read_settings
from sotopia_env.people.settings_form import (
    Edited,
    SettingField,
    SettingHint,
    blank,
    edited,
    fields_of,
    labels_of,
    record_at,
    rows_of,
    sent_of,
    values_of,
    with_rows,
)
from sotopia_env.people.studies.design import tasks_of
from sotopia_env.people.studies.settings import KINDS, PERSON, AnyStudy, PlayStudy, study_of
from sotopia_env.world import Task

DRAFT = "draft."
"""Prefix of the fields of a draft that are not settings."""
OTHER = ".other"
"""Suffix of the field that replaces the choice of a menu, for a name that is not on it."""


class FieldGroup(Settings):
    """A card of the builder.

    Attributes:
        title: its heading.
        note: a line below it.
        fields: the settings in it.
        folded: whether it is closed at first.
    """

    title: str
    note: str = ""
    fields: tuple[str, ...]
    folded: bool = False


class BuilderWords(Settings):
    """The words of the builder.

    Attributes:
        settings: the words of each setting.
        groups: the cards of each kind of study, in order.
        examples: the study with which a new draft of each kind begins.
    """

    settings: dict[str, SettingHint]
    groups: dict[str, tuple[FieldGroup, ...]]
    examples: dict[str, dict[str, Any]]


@cache
def words() -> BuilderWords:
    """Returns the words of the builder."""
    return read_settings(Path(__file__).parent / "builder.yaml", BuilderWords)


def cards(kind: str, sent: Mapping[str, str]) -> list[tuple[FieldGroup, list[SettingField]]]:
    """Returns the cards of the builder with their fields, filled with a draft."""
    fields = {field.path: field for field in fields_of(KINDS[kind], words().settings, sent)}
    groups = [(group, [fields.pop(name) for name in group.fields]) for group in words().groups[kind]]
    groups[-1][1].extend(fields.values())  # a setting that no card names is in the last one
    return groups


def labels(sent: Mapping[str, str]) -> dict[str, str]:
    """Returns where each setting of a draft is, in words."""
    return labels_of(fields_of(KINDS[sent["kind"]], words().settings, sent))


def draft_of(study: AnyStudy) -> dict[str, str]:
    """Returns the draft from which a study is built again."""
    return sent_of(study)


def read_draft(sent: Mapping[str, str]) -> Edited[Any]:
    """Reads the settings in a draft; names that are empty are made from what they name."""
    kind = KINDS[sent["kind"]]
    values = values_of(kind, sent) | {"kind": sent["kind"]}
    fill_names(values)
    return edited(kind, values, sent)


def new_draft(kind: str) -> dict[str, str]:
    """Returns a new draft of a kind of study, without a title."""
    return draft_of(study_of(words().examples[kind])) | {"name": "", "title": ""}


def rearranged(sent: Mapping[str, str], action: str) -> tuple[dict[str, str], str]:
    """Returns a draft after ``add PATH``, ``remove PATH.N``, ``up PATH.N`` or ``down PATH.N``, and the row to go to.

    Raises:
        InvalidValueError: there is no such row.
    """
    verb, _, path = action.partition(" ")
    parent, _, last = path.rpartition(".")
    if verb == "add":
        record = record_at(KINDS[sent["kind"]], path)
        rows = rows_of(sent, path)
        return with_rows(sent, path, [*rows, blank(record)]), f"{path}.{len(rows)}"
    rows, number = rows_of(sent, parent), int(last) if last.isdecimal() else -1
    other = number + {"up": -1, "down": 1, "remove": 0}.get(verb, len(rows))
    if not (0 <= number < len(rows) and 0 <= other < len(rows)):
        raise InvalidValueError(field="do", expected="a change of a row that exists", got=action)
    if verb == "remove":
        del rows[number]
    else:
        rows[number], rows[other] = rows[other], rows[number]
    return with_rows(sent, parent, rows), f"{parent}.{other}" if rows else parent


def short_name(title: str) -> str:
    """Returns a name for a study's address, from its title; empty if the title has no letter that an address has."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-")


def fill_names(values: Any) -> None:
    """Makes each empty name in the values of settings from the title, question, value or setting that it names."""
    if isinstance(values, dict):
        subject = next((values[key] for key in ("title", "text", "value", "varies") if values.get(key)), "")
        if not values.get("name") and (name := short_name(str(subject))):
            values["name"] = name
    for inner in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        fill_names(inner)


@cache
def example_tasks() -> tuple[tuple[str, Task], ...]:
    """Returns the sources of tasks that a study can choose, each with its first task."""
    names = [*naming.SHIPPED, *tasks.FAMILIES]
    return tuple((name, naming.task_set(name, 1 if name in tasks.FAMILIES else None, 0, "medium")[0]) for name in names)


def offered_tasks(study: Mapping[str, str], search: str, most: int) -> tuple[list[Task], int]:
    """Returns the tasks from which a draft can pick, the picked ones first, and the number of all that match.

    Raises:
        InvalidValueError: the draft names no tasks.
    """
    number = study.get("n", "").strip()
    whole = int(number) if number.isdecimal() and len(number) < 6 and study["tasks"] not in naming.SHIPPED else None
    source = {"tasks": study["tasks"], "n": whole, "level": study.get("level", "medium")}
    values: dict[str, Any] = {"kind": "play", "name": "offer", "title": "", **source, "seed": study.get("seed") or 0}
    every = tasks_of(PlayStudy.model_validate(values))
    picked = set(study.get("only", "").split("\n"))
    query = search.casefold()
    matches = [t for t in every if query in f"{t.id} {t.scenario.context}".casefold() and t.id not in picked]
    return [*(t for t in every if t.id in picked), *matches][: most + len(picked)], len(matches)


PARTNERS = ((PERSON, "Another participant: two people talk with each other."),)
"""Partners that are not policies, each with a line."""
